// SPDX-License-Identifier: Apache-2.0

package cuda

// #include <stdlib.h>
// #include "calls_cuda.h"
import "C"

import (
	"unsafe"

	"github.com/gpurdma/gpurdma/gpualloc/internal/runtimelib"
)

// cdriver is the driver of a loaded libcuda. The table lies in C memory and,
// like the library, is never given back: the driver keeps state in the process
// that cannot be torn down.
type cdriver struct {
	lib *runtimelib.Library
	api *C.struct_gpurdma_cuda
}

// symbol is a function of the table and how a driver without it is treated.
type symbol struct {
	name     string // as the library exports it
	at       func(*C.struct_gpurdma_cuda) unsafe.Pointer
	optional bool // came after CUDA 10.2, the oldest driver that makes sense
	older    string
}

// symbols lists what is looked up. The suffix _v2 is part of the name: the
// symbol without it is an older function with other types.
var symbols = []symbol{
	{name: "cuInit", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuInit) }},
	{name: "cuDriverGetVersion", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuDriverGetVersion) }},
	{name: "cuDeviceGetCount", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuDeviceGetCount) }},
	{name: "cuDeviceGet", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuDeviceGet) }},
	{name: "cuDeviceGetName", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuDeviceGetName) }},
	{name: "cuDeviceGetUuid", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuDeviceGetUuid) }, optional: true},
	{name: "cuDeviceGetUuid_v2", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuDeviceGetUuid_v2) }, older: "cuDeviceGetUuid"}, // since 11.4: a MIG instance has its own
	{name: "cuDeviceGetPCIBusId", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuDeviceGetPCIBusId) }},
	{name: "cuDeviceTotalMem_v2", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuDeviceTotalMem) }},
	{name: "cuDeviceGetAttribute", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuDeviceGetAttribute) }},
	{name: "cuDevicePrimaryCtxRetain", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuDevicePrimaryCtxRetain) }},
	{name: "cuDevicePrimaryCtxRelease_v2", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuDevicePrimaryCtxRelease) }, older: "cuDevicePrimaryCtxRelease"},
	{name: "cuCtxPushCurrent_v2", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuCtxPushCurrent) }},
	{name: "cuCtxPopCurrent_v2", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuCtxPopCurrent) }},
	{name: "cuCtxSynchronize", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuCtxSynchronize) }},
	{name: "cuMemGetInfo_v2", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuMemGetInfo) }},
	{name: "cuMemAlloc_v2", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuMemAlloc) }},
	{name: "cuMemFree_v2", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuMemFree) }},
	{name: "cuMemGetAddressRange_v2", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuMemGetAddressRange) }},
	{name: "cuPointerGetAttribute", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuPointerGetAttribute) }},
	{name: "cuPointerSetAttribute", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuPointerSetAttribute) }},
	{name: "cuMemsetD8_v2", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuMemsetD8) }},
	{name: "cuMemcpyDtoH_v2", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuMemcpyDtoH) }},
	{name: "cuMemcpyHtoD_v2", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuMemcpyHtoD) }},
	{name: exportFunction, at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer {
		return unsafe.Pointer(&a.cuMemGetHandleForAddressRange)
	}, optional: true},
	{name: flushFunction, at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuFlushGPUDirectRDMAWrites) }, optional: true},
	{name: "cuMemGetAllocationGranularity", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer {
		return unsafe.Pointer(&a.cuMemGetAllocationGranularity)
	}, optional: true},
	{name: "cuMemCreate", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuMemCreate) }, optional: true},
	{name: "cuMemRelease", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuMemRelease) }, optional: true},
	{name: "cuMemAddressReserve", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuMemAddressReserve) }, optional: true},
	{name: "cuMemAddressFree", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuMemAddressFree) }, optional: true},
	{name: "cuMemMap", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuMemMap) }, optional: true},
	{name: "cuMemUnmap", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuMemUnmap) }, optional: true},
	{name: "cuMemSetAccess", at: func(a *C.struct_gpurdma_cuda) unsafe.Pointer { return unsafe.Pointer(&a.cuMemSetAccess) }, optional: true},
}

// load finds the library and its functions.
func load() (driver, error) {
	lib, err := runtimelib.Open(library)
	if err != nil {
		return nil, err
	}
	api := (*C.struct_gpurdma_cuda)(C.calloc(1, C.sizeof_struct_gpurdma_cuda))
	for _, s := range symbols {
		f := lib.Symbol(s.name)
		if f == nil && s.older != "" {
			f = lib.Symbol(s.older)
		}
		if f == nil && !s.optional {
			C.free(unsafe.Pointer(api))
			return nil, lib.TooOld(s.name, "install a driver of CUDA 10.2 or later")
		}
		*(*unsafe.Pointer)(s.at(api)) = f
	}
	return &cdriver{lib: lib, api: api}, nil
}

func (d *cdriver) path() string { return d.lib.Path() }

func (d *cdriver) missing(function string) bool {
	for _, s := range symbols {
		if s.name == function {
			return *(*unsafe.Pointer)(s.at(d.api)) == nil
		}
	}
	return true
}

func (d *cdriver) init() Result { return Result(C.gpurdma_cuInit(d.api)) }

func (d *cdriver) version() (int, Result) {
	var v C.int
	r := C.gpurdma_cuDriverGetVersion(d.api, &v)
	return int(v), Result(r)
}

func (d *cdriver) deviceCount() (int, Result) {
	var n C.int
	r := C.gpurdma_cuDeviceGetCount(d.api, &n)
	return int(n), Result(r)
}

func (d *cdriver) device(ordinal int) (device, Result) {
	var dev C.int
	r := C.gpurdma_cuDeviceGet(d.api, &dev, C.int(ordinal))
	return device(dev), Result(r)
}

func (d *cdriver) name(dev device) (string, Result) {
	var buf [nameLen]C.char
	r := C.gpurdma_cuDeviceGetName(d.api, &buf[0], nameLen-1, C.int(dev))
	return C.GoString(&buf[0]), Result(r)
}

func (d *cdriver) uuid(dev device) ([uuidLen]byte, Result) {
	var id C.gpurdma_CUuuid
	r := C.gpurdma_cuDeviceGetUuid_v2(d.api, &id, C.int(dev))
	return *(*[uuidLen]byte)(unsafe.Pointer(&id)), Result(r)
}

func (d *cdriver) uuidOfGPU(dev device) ([uuidLen]byte, Result) {
	if d.missing("cuDeviceGetUuid") {
		return [uuidLen]byte{}, NotSupported
	}
	var id C.gpurdma_CUuuid
	r := C.gpurdma_cuDeviceGetUuid(d.api, &id, C.int(dev))
	return *(*[uuidLen]byte)(unsafe.Pointer(&id)), Result(r)
}

func (d *cdriver) pciBusID(dev device) (string, Result) {
	var buf [pciBusIDLen + 16]C.char
	r := C.gpurdma_cuDeviceGetPCIBusId(d.api, &buf[0], C.int(len(buf)-1), C.int(dev))
	return C.GoString(&buf[0]), Result(r)
}

func (d *cdriver) totalMem(dev device) (uint64, Result) {
	var n C.size_t
	r := C.gpurdma_cuDeviceTotalMem(d.api, &n, C.int(dev))
	return uint64(n), Result(r)
}

func (d *cdriver) attribute(attr int, dev device) (int, Result) {
	var v C.int
	r := C.gpurdma_cuDeviceGetAttribute(d.api, &v, C.int(attr), C.int(dev))
	return int(v), Result(r)
}

func (d *cdriver) retain(dev device) (contextHandle, Result) {
	var ctx C.uintptr_t
	r := C.gpurdma_cuDevicePrimaryCtxRetain(d.api, &ctx, C.int(dev))
	return contextHandle(ctx), Result(r)
}

func (d *cdriver) release(dev device) Result {
	return Result(C.gpurdma_cuDevicePrimaryCtxRelease(d.api, C.int(dev)))
}

func (d *cdriver) memInfo(ctx contextHandle) (free, total uint64, r Result) {
	var f, t C.size_t
	res := C.gpurdma_cuMemGetInfo(d.api, C.uintptr_t(ctx), &f, &t)
	return uint64(f), uint64(t), Result(res)
}

func (d *cdriver) alloc(ctx contextHandle, size uint64) (pointer, Result) {
	var p C.gpurdma_CUdeviceptr
	r := C.gpurdma_cuMemAlloc(d.api, C.uintptr_t(ctx), &p, C.size_t(size))
	return pointer(p), Result(r)
}

func (d *cdriver) free(ctx contextHandle, p pointer) Result {
	return Result(C.gpurdma_cuMemFree(d.api, C.uintptr_t(ctx), C.gpurdma_CUdeviceptr(p)))
}

func (d *cdriver) addressRange(ctx contextHandle, p pointer) (base pointer, size uint64, r Result) {
	var b C.gpurdma_CUdeviceptr
	var n C.size_t
	res := C.gpurdma_cuMemGetAddressRange(d.api, C.uintptr_t(ctx), &b, &n, C.gpurdma_CUdeviceptr(p))
	return pointer(b), uint64(n), Result(res)
}

// pointerUint reads an attribute of up to 8 bytes. The library writes as many
// as the attribute has; the machine is little-endian.
func (d *cdriver) pointerUint(attr int, p pointer) (uint64, Result) {
	var v C.uint64_t
	r := C.gpurdma_cuPointerGetAttribute(d.api, unsafe.Pointer(&v), C.int(attr), C.gpurdma_CUdeviceptr(p))
	return uint64(v), Result(r)
}

func (d *cdriver) syncMemops(ctx contextHandle, p pointer) Result {
	on := C.uint(1)
	return Result(C.gpurdma_cuPointerSetAttribute(d.api, C.uintptr_t(ctx), unsafe.Pointer(&on), pointerAttrSyncMemops, C.gpurdma_CUdeviceptr(p)))
}

func (d *cdriver) fill(ctx contextHandle, p pointer, value byte, size uint64) Result {
	return Result(C.gpurdma_cuMemsetD8(d.api, C.uintptr_t(ctx), C.gpurdma_CUdeviceptr(p), C.uchar(value), C.size_t(size)))
}

func (d *cdriver) toHost(ctx contextHandle, to []byte, from pointer) Result {
	return Result(C.gpurdma_cuMemcpyDtoH(d.api, C.uintptr_t(ctx), unsafe.Pointer(unsafe.SliceData(to)), C.gpurdma_CUdeviceptr(from), C.size_t(len(to))))
}

func (d *cdriver) toDevice(ctx contextHandle, to pointer, from []byte) Result {
	return Result(C.gpurdma_cuMemcpyHtoD(d.api, C.uintptr_t(ctx), C.gpurdma_CUdeviceptr(to), unsafe.Pointer(unsafe.SliceData(from)), C.size_t(len(from))))
}

func (d *cdriver) export(ctx contextHandle, p pointer, size, flags uint64) (fd int, r Result) {
	n := C.int(-1)
	res := C.gpurdma_cuMemGetHandleForAddressRange(d.api, C.uintptr_t(ctx), &n, C.gpurdma_CUdeviceptr(p), C.size_t(size), C.ulonglong(flags))
	return int(n), Result(res)
}

func (d *cdriver) flushWrites(ctx contextHandle) Result {
	return Result(C.gpurdma_cuFlushGPUDirectRDMAWrites(d.api, C.uintptr_t(ctx)))
}

func (d *cdriver) granularity(dev device, rdma bool) (uint64, Result) {
	var n C.size_t
	r := C.gpurdma_cuMemGetAllocationGranularity(d.api, &n, C.int(dev), flag(rdma))
	return uint64(n), Result(r)
}

func (d *cdriver) create(ctx contextHandle, size uint64, dev device, rdma bool) (vmmHandle, Result) {
	var h C.ulonglong
	r := C.gpurdma_cuMemCreate(d.api, C.uintptr_t(ctx), &h, C.size_t(size), C.int(dev), flag(rdma))
	return vmmHandle(h), Result(r)
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func (d *cdriver) releaseHandle(h vmmHandle) Result {
	return Result(C.gpurdma_cuMemRelease(d.api, C.ulonglong(h)))
}

func (d *cdriver) reserve(ctx contextHandle, size uint64) (pointer, Result) {
	var p C.gpurdma_CUdeviceptr
	r := C.gpurdma_cuMemAddressReserve(d.api, C.uintptr_t(ctx), &p, C.size_t(size))
	return pointer(p), Result(r)
}

func (d *cdriver) addressFree(ctx contextHandle, p pointer, size uint64) Result {
	return Result(C.gpurdma_cuMemAddressFree(d.api, C.uintptr_t(ctx), C.gpurdma_CUdeviceptr(p), C.size_t(size)))
}

func (d *cdriver) mapHandle(ctx contextHandle, p pointer, size uint64, h vmmHandle) Result {
	return Result(C.gpurdma_cuMemMap(d.api, C.uintptr_t(ctx), C.gpurdma_CUdeviceptr(p), C.size_t(size), C.ulonglong(h)))
}

func (d *cdriver) unmap(ctx contextHandle, p pointer, size uint64) Result {
	return Result(C.gpurdma_cuMemUnmap(d.api, C.uintptr_t(ctx), C.gpurdma_CUdeviceptr(p), C.size_t(size)))
}

func (d *cdriver) setAccess(ctx contextHandle, p pointer, size uint64, dev device) Result {
	return Result(C.gpurdma_cuMemSetAccess(d.api, C.uintptr_t(ctx), C.gpurdma_CUdeviceptr(p), C.size_t(size), C.int(dev)))
}

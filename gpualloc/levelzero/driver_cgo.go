// SPDX-License-Identifier: Apache-2.0

package levelzero

// #include <stdlib.h>
// #include "calls_ze.h"
import "C"

import (
	"unsafe"

	"github.com/gpurdma/gpurdma/gpualloc/internal/runtimelib"
)

// cdriver is the driver of a loaded libze_loader. The table lies in C memory
// and, like the library, is never given back.
type cdriver struct {
	lib *runtimelib.Library
	api *C.struct_gpurdma_ze
}

// symbols lists what is looked up; all of it is of version 1.4 or earlier.
var symbols = []struct {
	name string
	at   func(*C.struct_gpurdma_ze) unsafe.Pointer
}{
	{"zeInit", func(a *C.struct_gpurdma_ze) unsafe.Pointer { return unsafe.Pointer(&a.zeInit) }},
	{"zeDriverGet", func(a *C.struct_gpurdma_ze) unsafe.Pointer { return unsafe.Pointer(&a.zeDriverGet) }},
	{"zeDeviceGet", func(a *C.struct_gpurdma_ze) unsafe.Pointer { return unsafe.Pointer(&a.zeDeviceGet) }},
	{"zeDeviceGetProperties", func(a *C.struct_gpurdma_ze) unsafe.Pointer { return unsafe.Pointer(&a.zeDeviceGetProperties) }},
	{"zeDeviceGetMemoryProperties", func(a *C.struct_gpurdma_ze) unsafe.Pointer { return unsafe.Pointer(&a.zeDeviceGetMemoryProperties) }},
	{"zeDeviceGetExternalMemoryProperties", func(a *C.struct_gpurdma_ze) unsafe.Pointer {
		return unsafe.Pointer(&a.zeDeviceGetExternalMemoryProperties)
	}},
	{"zeDevicePciGetPropertiesExt", func(a *C.struct_gpurdma_ze) unsafe.Pointer { return unsafe.Pointer(&a.zeDevicePciGetPropertiesExt) }},
	{"zeContextCreate", func(a *C.struct_gpurdma_ze) unsafe.Pointer { return unsafe.Pointer(&a.zeContextCreate) }},
	{"zeCommandListCreateImmediate", func(a *C.struct_gpurdma_ze) unsafe.Pointer { return unsafe.Pointer(&a.zeCommandListCreateImmediate) }},
	{"zeCommandListDestroy", func(a *C.struct_gpurdma_ze) unsafe.Pointer { return unsafe.Pointer(&a.zeCommandListDestroy) }},
	{"zeCommandListAppendMemoryCopy", func(a *C.struct_gpurdma_ze) unsafe.Pointer { return unsafe.Pointer(&a.zeCommandListAppendMemoryCopy) }},
	{"zeCommandListAppendMemoryFill", func(a *C.struct_gpurdma_ze) unsafe.Pointer { return unsafe.Pointer(&a.zeCommandListAppendMemoryFill) }},
	{"zeMemAllocDevice", func(a *C.struct_gpurdma_ze) unsafe.Pointer { return unsafe.Pointer(&a.zeMemAllocDevice) }},
	{"zeMemFree", func(a *C.struct_gpurdma_ze) unsafe.Pointer { return unsafe.Pointer(&a.zeMemFree) }},
	{"zeMemGetAllocProperties", func(a *C.struct_gpurdma_ze) unsafe.Pointer { return unsafe.Pointer(&a.zeMemGetAllocProperties) }},
	{"zeMemGetAddressRange", func(a *C.struct_gpurdma_ze) unsafe.Pointer { return unsafe.Pointer(&a.zeMemGetAddressRange) }},
}

// load finds the library and its functions.
func load() (driver, error) {
	lib, err := runtimelib.Open(library)
	if err != nil {
		return nil, err
	}
	api := (*C.struct_gpurdma_ze)(C.calloc(1, C.sizeof_struct_gpurdma_ze))
	for _, s := range symbols {
		f := lib.Symbol(s.name)
		if f == nil {
			C.free(unsafe.Pointer(api))
			return nil, lib.TooOld(s.name, "install a Level Zero loader of version 1.4 or later")
		}
		*(*unsafe.Pointer)(s.at(api)) = f
	}
	return &cdriver{lib: lib, api: api}, nil
}

func (d *cdriver) path() string { return d.lib.Path() }
func (d *cdriver) init() Result { return Result(C.gpurdma_ze_init(d.api)) }

// enumerate asks how many handles there are, then for them.
func enumerate[T ~uintptr](get func(n *C.uint32_t, out *C.uintptr_t) C.int) ([]T, Result) {
	var n C.uint32_t
	if r := get(&n, nil); r != 0 || n == 0 {
		return nil, Result(r)
	}
	raw := make([]C.uintptr_t, n)
	if r := get(&n, &raw[0]); r != 0 {
		return nil, Result(r)
	}
	var out []T
	for _, h := range raw[:min(int(n), len(raw))] {
		out = append(out, T(h))
	}
	return out, Success
}

func (d *cdriver) drivers() ([]driverHandle, Result) {
	return enumerate[driverHandle](func(n *C.uint32_t, out *C.uintptr_t) C.int {
		return C.gpurdma_ze_drivers(d.api, n, out)
	})
}

func (d *cdriver) devices(h driverHandle) ([]deviceHandle, Result) {
	return enumerate[deviceHandle](func(n *C.uint32_t, out *C.uintptr_t) C.int {
		return C.gpurdma_ze_devices(d.api, C.uintptr_t(h), n, out)
	})
}

func (d *cdriver) properties(h deviceHandle) (properties, Result) {
	var p C.gpurdma_ze_device_properties
	r := C.gpurdma_ze_properties(d.api, C.uintptr_t(h), &p)
	return properties{
		kind: int(p._type), vendor: uint32(p.vendorId), flags: uint32(p.flags), maxSize: uint64(p.maxMemAllocSize),
		uuid: *(*[16]byte)(unsafe.Pointer(&p.uuid)), name: C.GoString(&p.name[0]),
	}, Result(r)
}

func (d *cdriver) totalMem(h deviceHandle) (uint64, Result) {
	var p C.gpurdma_ze_memory_properties
	r := C.gpurdma_ze_memory(d.api, C.uintptr_t(h), &p)
	return uint64(p.totalSize), Result(r)
}

func (d *cdriver) exportTypes(h deviceHandle) (uint32, Result) {
	var p C.gpurdma_ze_external_properties
	r := C.gpurdma_ze_external(d.api, C.uintptr_t(h), &p)
	return uint32(p.memoryAllocationExportTypes), Result(r)
}

func (d *cdriver) pci(h deviceHandle) (domain, bus, dev, function uint32, r Result) {
	var p C.gpurdma_ze_pci_properties
	res := C.gpurdma_ze_pci(d.api, C.uintptr_t(h), &p)
	return uint32(p.domain), uint32(p.bus), uint32(p.device), uint32(p.function), Result(res)
}

func (d *cdriver) context(h driverHandle) (contextHandle, Result) {
	var ctx C.uintptr_t
	r := C.gpurdma_ze_context(d.api, C.uintptr_t(h), &ctx)
	return contextHandle(ctx), Result(r)
}

func (d *cdriver) list(ctx contextHandle, dev deviceHandle) (listHandle, Result) {
	var l C.uintptr_t
	r := C.gpurdma_ze_list(d.api, C.uintptr_t(ctx), C.uintptr_t(dev), &l)
	return listHandle(l), Result(r)
}

func (d *cdriver) destroyList(l listHandle) Result {
	return Result(C.gpurdma_ze_list_destroy(d.api, C.uintptr_t(l)))
}

func (d *cdriver) toHost(l listHandle, to []byte, from pointer) Result {
	return Result(C.gpurdma_ze_to_host(d.api, C.uintptr_t(l), unsafe.Pointer(unsafe.SliceData(to)), C.uintptr_t(from), C.size_t(len(to))))
}

func (d *cdriver) toDevice(l listHandle, to pointer, from []byte) Result {
	return Result(C.gpurdma_ze_to_device(d.api, C.uintptr_t(l), C.uintptr_t(to), unsafe.Pointer(unsafe.SliceData(from)), C.size_t(len(from))))
}

func (d *cdriver) zero(l listHandle, p pointer, size uint64) Result {
	return Result(C.gpurdma_ze_zero(d.api, C.uintptr_t(l), C.uintptr_t(p), C.size_t(size)))
}

func (d *cdriver) alloc(ctx contextHandle, dev deviceHandle, size, alignment uint64, export bool) (pointer, Result) {
	var p C.uintptr_t
	r := C.gpurdma_ze_alloc(d.api, C.uintptr_t(ctx), C.uintptr_t(dev), C.size_t(size), C.size_t(alignment), C._Bool(export), &p)
	return pointer(p), Result(r)
}

func (d *cdriver) free(ctx contextHandle, p pointer) Result {
	return Result(C.gpurdma_ze_free(d.api, C.uintptr_t(ctx), C.uintptr_t(p)))
}

func (d *cdriver) allocProperties(ctx contextHandle, p pointer) (allocProperties, Result) {
	var out C.gpurdma_ze_alloc_properties
	var dev C.uintptr_t
	r := C.gpurdma_ze_alloc_facts(d.api, C.uintptr_t(ctx), C.uintptr_t(p), &out, &dev)
	return allocProperties{kind: int(out._type), pageSize: uint64(out.pageSize), device: deviceHandle(dev)}, Result(r)
}

func (d *cdriver) export(ctx contextHandle, p pointer) (fd int, r Result) {
	n := C.int(-1)
	res := C.gpurdma_ze_export(d.api, C.uintptr_t(ctx), C.uintptr_t(p), &n)
	return int(n), Result(res)
}

func (d *cdriver) addressRange(ctx contextHandle, p pointer) (base pointer, size uint64, r Result) {
	var b C.uintptr_t
	var n C.size_t
	res := C.gpurdma_ze_range(d.api, C.uintptr_t(ctx), C.uintptr_t(p), &b, &n)
	return pointer(b), uint64(n), Result(res)
}

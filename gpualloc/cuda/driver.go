// SPDX-License-Identifier: Apache-2.0

package cuda

import "errors"

// ErrNotBuilt is the error of a build without cgo.
var ErrNotBuilt = errors.New("built without cgo: no CUDA")

// device is a CUdevice, contextHandle a CUcontext, pointer a CUdeviceptr.
type (
	device        int32
	contextHandle uintptr
	pointer       uint64
	vmmHandle     uint64 // CUmemGenericAllocationHandle
)

// driver is one loaded libcuda, one method for one of its functions. Methods
// with a context make it current for the call and restore the previous one.
type driver interface {
	path() string
	// missing names the functions that this driver does not have, of those
	// that came later than its oldest supported release.
	missing(function string) bool

	init() Result
	version() (int, Result)
	deviceCount() (int, Result)
	device(ordinal int) (device, Result)
	name(device) (string, Result)
	uuid(device) ([uuidLen]byte, Result)
	uuidOfGPU(device) ([uuidLen]byte, Result) // the older call, which knows no MIG instances
	pciBusID(device) (string, Result)
	totalMem(device) (uint64, Result)
	attribute(attr int, d device) (int, Result)

	retain(device) (contextHandle, Result)
	release(device) Result

	memInfo(contextHandle) (free, total uint64, r Result)
	alloc(ctx contextHandle, size uint64) (pointer, Result)
	free(contextHandle, pointer) Result
	addressRange(contextHandle, pointer) (base pointer, size uint64, r Result)
	pointerUint(attr int, p pointer) (uint64, Result)
	syncMemops(contextHandle, pointer) Result
	fill(ctx contextHandle, p pointer, value byte, size uint64) Result
	toHost(ctx contextHandle, to []byte, from pointer) Result
	toDevice(ctx contextHandle, to pointer, from []byte) Result
	export(ctx contextHandle, p pointer, size, flags uint64) (fd int, r Result)
	flushWrites(ctx contextHandle) Result

	granularity(d device, rdma bool) (uint64, Result)
	create(ctx contextHandle, size uint64, d device, rdma bool) (vmmHandle, Result)
	releaseHandle(vmmHandle) Result
	reserve(ctx contextHandle, size uint64) (pointer, Result)
	addressFree(contextHandle, pointer, uint64) Result
	mapHandle(contextHandle, pointer, uint64, vmmHandle) Result
	unmap(contextHandle, pointer, uint64) Result
	setAccess(contextHandle, pointer, uint64, device) Result
}

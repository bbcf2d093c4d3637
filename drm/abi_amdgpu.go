// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"runtime"
	"structs"
	"unsafe"

	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// From include/uapi/drm/amdgpu_drm.h.

// abiAmdgpuCreateIn is struct drm_amdgpu_gem_create_in, which fills union
// drm_amdgpu_gem_create.
type abiAmdgpuCreateIn struct {
	_           structs.HostLayout
	BOSize      uint64
	Alignment   uint64
	Domains     uint64
	DomainFlags uint64
}

// abiAmdgpuCreateOut is struct drm_amdgpu_gem_create_out, the answer at the
// beginning of the same union.
type abiAmdgpuCreateOut struct {
	_      structs.HostLayout
	Handle uint32
	Pad    uint32
}

// abiAmdgpuMmapIn is struct drm_amdgpu_gem_mmap_in, of union
// drm_amdgpu_gem_mmap.
type abiAmdgpuMmapIn struct {
	_      structs.HostLayout
	Handle uint32
	Pad    uint32
}

// abiAmdgpuMmapOut is struct drm_amdgpu_gem_mmap_out, the answer in its place.
type abiAmdgpuMmapOut struct {
	_       structs.HostLayout
	AddrPtr uint64
}

// abiAmdgpuInfo is struct drm_amdgpu_info. Queries here use nothing of the
// union at its end.
type abiAmdgpuInfo struct {
	_             structs.HostLayout
	ReturnPointer unsafe.Pointer
	ReturnSize    uint32
	Query         uint32
	Pad           [4]uint32
}

// abiAmdgpuHeap is struct drm_amdgpu_heap_info.
type abiAmdgpuHeap struct {
	_             structs.HostLayout
	TotalSize     uint64
	UsableSize    uint64
	Usage         uint64
	MaxAllocation uint64
}

// abiAmdgpuMemory is struct drm_amdgpu_memory_info.
type abiAmdgpuMemory struct {
	_       structs.HostLayout
	VRAM    abiAmdgpuHeap
	Visible abiAmdgpuHeap
	GTT     abiAmdgpuHeap
}

// abiAmdgpuDevice is the beginning of struct drm_amdgpu_info_device, which
// grows from kernel to kernel: the kernel copies what fits.
type abiAmdgpuDevice struct {
	_                        structs.HostLayout
	DeviceID                 uint32
	ChipRev                  uint32
	ExternalRev              uint32
	PCIRev                   uint32
	Family                   uint32
	NumShaderEngines         uint32
	NumShaderArraysPerEngine uint32
	GPUCounterFreq           uint32
	MaxEngineClock           uint64
	MaxMemoryClock           uint64
	CUActiveNumber           uint32
	CUAOMask                 uint32
	CUBitmap                 [4][4]uint32
	EnabledRBPipesMask       uint32
	NumRBPipes               uint32
	NumHWGfxContexts         uint32
	PCIeGen                  uint32
	IDsFlags                 uint64
	VirtualAddressOffset     uint64
	VirtualAddressMax        uint64
	VirtualAddressAlignment  uint32
	PTEFragmentSize          uint32
	GartPageSize             uint32
	CERAMSize                uint32
	VRAMType                 uint32
	VRAMBitWidth             uint32
}

const (
	amdgpuInfoDevice = 0x16 // AMDGPU_INFO_DEV_INFO
	amdgpuInfoMemory = 0x19 // AMDGPU_INFO_MEMORY

	amdgpuFusion = 0x1 // AMDGPU_IDS_FLAGS_FUSION: GPU and CPU share one memory
)

var (
	reqAmdgpuCreate = ioctl.IOWR(drmBase, commandBase+0x00, uint32(unsafe.Sizeof(abiAmdgpuCreateIn{}))) // DRM_IOCTL_AMDGPU_GEM_CREATE
	reqAmdgpuMmap   = ioctl.IOWR(drmBase, commandBase+0x01, uint32(unsafe.Sizeof(abiAmdgpuMmapOut{})))  // DRM_IOCTL_AMDGPU_GEM_MMAP
	reqAmdgpuInfo   = ioctl.IOW(drmBase, commandBase+0x05, uint32(unsafe.Sizeof(abiAmdgpuInfo{})))      // DRM_IOCTL_AMDGPU_INFO
)

func amdgpuCreate(t ioctl.Transport, fd int, in abiAmdgpuCreateIn) (uint32, error) {
	if err := t.Ioctl(fd, reqAmdgpuCreate, unsafe.Pointer(&in)); err != nil {
		return 0, err
	}
	return (*abiAmdgpuCreateOut)(unsafe.Pointer(&in)).Handle, nil
}

func amdgpuMmap(t ioctl.Transport, fd int, handle uint32) (uint64, error) {
	var arg struct { // union drm_amdgpu_gem_mmap, aligned as its largest member
		_   structs.HostLayout
		out abiAmdgpuMmapOut
	}
	(*abiAmdgpuMmapIn)(unsafe.Pointer(&arg)).Handle = handle
	err := t.Ioctl(fd, reqAmdgpuMmap, unsafe.Pointer(&arg))
	return arg.out.AddrPtr, err
}

// amdgpuAsk lets the kernel fill *out, as much of it as it knows.
func amdgpuAsk[T any](t ioctl.Transport, fd int, query uint32) (T, error) {
	out := new(T)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(out)
	arg := &abiAmdgpuInfo{ReturnPointer: unsafe.Pointer(out), ReturnSize: uint32(unsafe.Sizeof(*out)), Query: query}
	err := t.Ioctl(fd, reqAmdgpuInfo, unsafe.Pointer(arg))
	return *out, err
}

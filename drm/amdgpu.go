// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"fmt"
	"math"
	"os"

	"github.com/gpurdma/gpurdma/failure"
)

// Amdgpu has amdgpu's own ioctls on a Device, which it does not close.
type Amdgpu struct{ dev *Device }

// Amdgpu returns amdgpu's ioctls on the Device, or ENOTTY if the Device has
// another driver.
func (d *Device) Amdgpu() (Amdgpu, error) { return Amdgpu{d}, d.speaks("amdgpu") }

// AmdgpuDomain says in which memory a buffer is made. With several, combined by
// "|", the driver chooses.
type AmdgpuDomain uint64

// The domains.
const (
	AmdgpuCPU  AmdgpuDomain = 0x1 // AMDGPU_GEM_DOMAIN_CPU: system memory that the GPU does not reach
	AmdgpuGTT  AmdgpuDomain = 0x2 // AMDGPU_GEM_DOMAIN_GTT: system memory that it does
	AmdgpuVRAM AmdgpuDomain = 0x4 // AMDGPU_GEM_DOMAIN_VRAM
)

// AmdgpuFlag changes how a buffer is made.
type AmdgpuFlag uint64

// The flags of interest here.
const (
	AmdgpuCPUAccess   AmdgpuFlag = 1 << 0 // AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED: in VRAM, then behind the BAR
	AmdgpuNoCPUAccess AmdgpuFlag = 1 << 1 // AMDGPU_GEM_CREATE_NO_CPU_ACCESS: mapping answers EPERM
	AmdgpuUSWC        AmdgpuFlag = 1 << 2 // AMDGPU_GEM_CREATE_CPU_GTT_USWC: in GTT, write-combined
	AmdgpuVRAMCleared AmdgpuFlag = 1 << 3 // AMDGPU_GEM_CREATE_VRAM_CLEARED
)

// AmdgpuHeap is one kind of memory.
type AmdgpuHeap struct {
	Size    int64 // bytes
	Usable  int64 // the part of Size that buffers can have
	Used    int64 // by all processes and the kernel
	Largest int64 // the largest buffer by the driver's estimate
}

// AmdgpuMemory is the answer to AMDGPU_INFO_MEMORY.
type AmdgpuMemory struct {
	VRAM    AmdgpuHeap
	Visible AmdgpuHeap // of VRAM, what lies behind the BAR
	GTT     AmdgpuHeap
}

// Memory reads how much memory there is, and how much of it is used
// (AMDGPU_INFO_MEMORY).
func (g Amdgpu) Memory() (AmdgpuMemory, error) {
	var m abiAmdgpuMemory
	err := g.dev.fd.Do(func(raw int) (err error) {
		m, err = amdgpuAsk[abiAmdgpuMemory](g.dev.t, raw, amdgpuInfoMemory)
		return err
	})
	if err != nil {
		return AmdgpuMemory{}, g.dev.fail("DRM_IOCTL_AMDGPU_INFO", "AMDGPU_INFO_MEMORY", err)
	}
	heap := func(h abiAmdgpuHeap) AmdgpuHeap {
		return AmdgpuHeap{Size: int64(h.TotalSize), Usable: int64(h.UsableSize), Used: int64(h.Usage), Largest: int64(h.MaxAllocation)}
	}
	return AmdgpuMemory{VRAM: heap(m.VRAM), Visible: heap(m.Visible), GTT: heap(m.GTT)}, nil
}

// Regions returns Memory's numbers as Regions, as for the other drivers. Memory
// that the kernel keeps for itself counts as used.
func (g Amdgpu) Regions() ([]Region, error) {
	m, err := g.Memory()
	if err != nil {
		return nil, err
	}
	page := int64(os.Getpagesize())
	used := func(h AmdgpuHeap) int64 { return max(h.Used, h.Size-h.Usable) }
	return []Region{
		{Size: m.GTT.Size, Visible: m.GTT.Size, Used: used(m.GTT), VisibleUsed: used(m.GTT), Page: page},
		{VRAM: true, Size: m.VRAM.Size, Visible: m.Visible.Size, Used: used(m.VRAM), VisibleUsed: used(m.Visible), Page: page},
	}, nil
}

// AmdgpuDevice is the part of AMDGPU_INFO_DEV_INFO that concerns memory.
type AmdgpuDevice struct {
	DeviceID uint32
	Family   uint32 // AMDGPU_FAMILY_…
	APU      bool   // GPU and CPU share one memory: VRAM is a part of it, set aside
	GartPage int64  // bytes
	VRAMType uint32 // AMDGPU_VRAM_TYPE_…
}

// Info reads the GPU's IDs and the properties of its memory
// (AMDGPU_INFO_DEV_INFO).
func (g Amdgpu) Info() (AmdgpuDevice, error) {
	var i abiAmdgpuDevice
	err := g.dev.fd.Do(func(raw int) (err error) {
		i, err = amdgpuAsk[abiAmdgpuDevice](g.dev.t, raw, amdgpuInfoDevice)
		return err
	})
	if err != nil {
		return AmdgpuDevice{}, g.dev.fail("DRM_IOCTL_AMDGPU_INFO", "AMDGPU_INFO_DEV_INFO", err)
	}
	return AmdgpuDevice{
		DeviceID: i.DeviceID, Family: i.Family, APU: i.IDsFlags&amdgpuFusion != 0,
		GartPage: int64(i.GartPageSize), VRAMType: i.VRAMType,
	}, nil
}

// Create makes a buffer. size is rounded up to pages.
//
// The driver reports success even if it does less than it was asked for: it makes
// the buffer in GTT if VRAM has no room for it, and it drops CPU access that it
// cannot give. Memory says beforehand how much room there is.
//
// Errors: EINVAL for domains or flags that the GPU does not have, ENOMEM.
func (g Amdgpu) Create(size int64, domains AmdgpuDomain, flags AmdgpuFlag) (GEM, error) {
	const op = "DRM_IOCTL_AMDGPU_GEM_CREATE"
	page := int64(os.Getpagesize())
	if size > math.MaxInt64-page {
		return GEM{}, g.dev.fail(op, fmt.Sprintf("size %d", size), failure.ErrRange)
	}
	size = (size + page - 1) / page * page // the driver rounds, and does not say
	in := abiAmdgpuCreateIn{BOSize: uint64(size), Alignment: uint64(page), Domains: uint64(domains), DomainFlags: uint64(flags)}
	where := func() string { return fmt.Sprintf("domains %#x, flags %#x", domains, flags) }
	return g.dev.create(op, size, where, func(raw int) (GEM, error) {
		handle, err := amdgpuCreate(g.dev.t, raw, in)
		return GEM{Handle: handle, Size: size}, err
	})
}

// MmapOffset returns the offset at which [Device.Mmap] shows a buffer
// (DRM_IOCTL_AMDGPU_GEM_MMAP).
func (g Amdgpu) MmapOffset(handle uint32) (uint64, error) {
	return g.dev.offset("DRM_IOCTL_AMDGPU_GEM_MMAP", handle, func(raw int) (uint64, error) {
		return amdgpuMmap(g.dev.t, raw, handle)
	})
}

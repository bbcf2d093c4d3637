// SPDX-License-Identifier: Apache-2.0

package rocm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/align"
	"github.com/gpurdma/gpurdma/gpualloc/internal/vendor"
)

// ExportOptions of [Export]. The zero value suits every importer.
type ExportOptions struct {
	// Name is given to the dma-bufs, at most 31 bytes.
	Name string
	// PCIe asks for the mapping over PCIe (HSA_AMD_DMABUF_MAPPING_TYPE_PCIE, ROCm
	// 7.1 on). If the runtime does not give it, Export fails.
	PCIe bool
	// PageAlignedIOVA is for an importer that needs IOVAs that are multiples of the
	// page size. The MRs then begin less than a page before the memory.
	PageAlignedIOVA bool
	// MaxLength is the longest MR in bytes; longer memory gets several. 0 is no
	// limit.
	MaxLength int64
}

// Exported is exported memory of the caller.
type Exported struct {
	// Buffer is the memory, one segment for each MR. Its Close closes the
	// descriptors; the memory stays the caller's.
	*gpualloc.Buffer
	// MRs says what to register of each segment's dma-buf: offset, length and
	// IOVA in bytes. Without PageAlignedIOVA it is the segment.
	MRs []align.MR
}

// Export exports length bytes of device memory at ptr, which the caller owns: from
// an HSA memory pool or from HIP, at any address and length, in any number of
// allocations next to each other. The memory must stay allocated until the Buffer
// and every MR on it are closed. The caller closes the Exported.
//
// The dma-bufs are of whole allocations. Export refuses those that are larger than
// the part of the memory behind the GPU's BAR (failure.ErrLimit), because amdgpu
// would move them to system memory and report success.
//
// It also refuses memory of the host, a range of which a part is not allocated,
// and pointers that the runtime does not know, such as freed ones. Errors are
// *failure.Error with a [Status], failure.ErrRange or failure.ErrLimit, or those of
// package align.
func Export(ptr uintptr, length int64, opt ExportOptions) (*Exported, error) {
	s, err := start(gpualloc.Env{})
	if err != nil {
		return nil, err
	}
	return s.exportMemory(pointer(ptr), length, opt, gpualloc.Env{})
}

func (s *session) exportMemory(p pointer, length int64, opt ExportOptions, env gpualloc.Env) (*Exported, error) {
	on := fmt.Sprintf("pointer %#x", uint64(p))
	if length <= 0 || opt.MaxLength < 0 {
		return nil, &failure.Error{Op: "export", Device: on, Err: failure.ErrRange, Detail: fmt.Sprintf("length %d, MRs of at most %d", length, opt.MaxLength)}
	}
	mem := align.Range{Addr: uint64(p), Length: uint64(length)}
	allocations, owner, err := s.allocations(on, mem)
	if err != nil {
		return nil, err
	}
	d, err := s.owner(owner, on)
	if err != nil {
		return nil, err
	}
	on = fmt.Sprintf("%v, pointer %#x", d, uint64(p))
	if l, ok := visibleLimit(d, env); ok {
		if err := vendor.WholeBeyond(on, allocations, l); err != nil {
			return nil, err
		}
	}
	req := align.Request{Memory: mem, Allocations: allocations, MaxLength: uint64(opt.MaxLength)}
	if page := vendor.PageSize(); req.MaxLength > 0 && req.MaxLength < page {
		req.MaxLength = page
	}
	if opt.PageAlignedIOVA {
		req.IOVA = align.PageAligned
	}
	flags := uint64(0)
	if opt.PCIe {
		flags = mappingTypePCIe
	}
	made, err := s.place(on, req, flags)
	if err != nil {
		return nil, err
	}
	out := &Exported{}
	var parts []gpualloc.Exported
	for _, m := range made {
		parts = append(parts, s.part(on, m))
		out.MRs = append(out.MRs, m.MR)
	}
	if err := vendor.SetNames(made, opt.Name); err != nil {
		return nil, errors.Join(err, vendor.CloseAll(made))
	}
	desc := describeDevice(d)
	desc.Spec = fmt.Sprintf("rocm:%d", d.Ordinal)
	out.Buffer = gpualloc.NewBuffer(desc, length, parts)
	return out, nil
}

// owner finds the GPU that an allocation belongs to.
func (s *session) owner(a agent, on string) (Device, error) {
	devices, err := s.devices()
	if err != nil {
		return Device{}, err
	}
	for _, d := range devices {
		if d.agent == a {
			return d, nil
		}
	}
	return Device{}, failed("export", on, InvalidAgent, "register it as host memory", "the memory belongs to no GPU")
}

// maxSegments bounds the walk over allocations, far above any real number.
const maxSegments = 1 << 20

// allocations walks the allocations that hold the memory, of one agent.
func (s *session) allocations(on string, mem align.Range) ([]align.Range, agent, error) {
	last := mem.Addr + (mem.Length - 1)
	if last < mem.Addr {
		return nil, 0, &failure.Error{Op: "export", Device: on, Err: failure.ErrRange, Detail: fmt.Sprintf("%v wraps around the address space", mem)}
	}
	var out []align.Range
	var owner agent
	for at := mem.Addr; len(out) < maxSegments; {
		info, st := s.drv.pointerInfo(pointer(at))
		if st != Success {
			return nil, 0, failed("hsa_amd_pointer_info", on, st, "", "%#x", at)
		}
		held := align.Range{Addr: uint64(info.base), Length: info.size}
		switch {
		case info.kind == pointerUnknown:
			return nil, 0, &failure.Error{
				Op: "hsa_amd_pointer_info", Device: on, Err: failure.ErrRange,
				Detail: fmt.Sprintf("%#x, %#x bytes into %v, is in no allocation that the runtime knows", at, at-mem.Addr, mem),
				Remedy: "pass device memory of this process that is allocated as a whole, and not freed",
			}
		case info.kind == pointerLocked:
			return nil, 0, failed("export", on, InvalidAgent, "register it as host memory", "%#x is memory of the host that was locked for the GPU", at)
		case !held.Contains(align.Range{Addr: at, Length: 1}):
			return nil, 0, &failure.Error{Op: "hsa_amd_pointer_info", Device: on, Err: unix.EPROTO, Detail: fmt.Sprintf("%v does not hold %#x", held, at)}
		case len(out) > 0 && info.owner != owner:
			return nil, 0, &failure.Error{Op: "export", Device: on, Err: failure.ErrRange, Detail: fmt.Sprintf("%#x, %#x bytes into %v, belongs to another GPU", at, at-mem.Addr, mem)}
		}
		owner = info.owner
		out = append(out, held)
		if held.Length-1 >= last-held.Addr {
			return out, owner, nil
		}
		at = held.Addr + held.Length
	}
	return nil, 0, &failure.Error{Op: "export", Device: on, Err: failure.ErrLimit, Detail: fmt.Sprintf("more than %d allocations", maxSegments)}
}

// SPDX-License-Identifier: Apache-2.0

package levelzero

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
	// PageAlignedIOVA is for an importer that needs IOVAs that are multiples of
	// the page size. The MRs then begin less than a page before the memory.
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

// Export exports length bytes of device memory at ptr, which the caller owns,
// of the context (a ze_context_handle_t) that it was allocated in. The memory
// must have been allocated with an export descriptor for dma-bufs, and must
// stay allocated until the Buffer and every MR on it are closed. The caller
// closes the Exported.
//
// The dma-buf is of the whole allocation. Other devices reach it only through
// BAR 2 of the GPU: Export refuses an allocation that is larger
// (failure.ErrLimit).
//
// It also refuses memory of the host, shared memory, whose pages migrate, a
// range of which a part is not allocated, and pointers that the context does
// not know, such as freed ones and those of another context. Errors are
// *failure.Error with a [Result], failure.ErrRange or failure.ErrLimit, or those
// of package align.
func Export(context, ptr uintptr, length int64, opt ExportOptions) (*Exported, error) {
	s, err := start()
	if err != nil {
		return nil, err
	}
	return s.exportMemory(contextHandle(context), pointer(ptr), length, opt, gpualloc.Env{})
}

func (s *session) exportMemory(ctx contextHandle, p pointer, length int64, opt ExportOptions, env gpualloc.Env) (*Exported, error) {
	on := fmt.Sprintf("pointer %#x", uint64(p))
	if length <= 0 || opt.MaxLength < 0 {
		return nil, &failure.Error{Op: "export", Device: on, Err: failure.ErrRange, Detail: fmt.Sprintf("length %d, MRs of at most %d", length, opt.MaxLength)}
	}
	mem := align.Range{Addr: uint64(p), Length: uint64(length)}
	facts, err := s.pointerInfo(ctx, on, p)
	if err != nil {
		return nil, err
	}
	held, err := s.allocation(ctx, on, mem)
	if err != nil {
		return nil, err
	}
	d, err := s.owner(facts.device, on)
	if err != nil {
		return nil, err
	}
	on = fmt.Sprintf("%v, pointer %#x", d, uint64(p))
	if l, ok := barLimit(d, env); ok {
		if err := vendor.WholeBeyond(on, []align.Range{held}, l); err != nil {
			return nil, err
		}
	}
	req := align.Request{Memory: mem, Allocations: []align.Range{held}, MaxLength: uint64(opt.MaxLength)}
	if opt.PageAlignedIOVA {
		req.IOVA = align.PageAligned
	}
	made, err := s.place(ctx, on, req, facts.pageSize)
	if err != nil {
		return nil, err
	}
	if err := vendor.SetNames(made, opt.Name); err != nil {
		return nil, errors.Join(err, vendor.CloseAll(made))
	}
	q, err := s.newQueue(ctx, d)
	if err != nil {
		return nil, errors.Join(err, vendor.CloseAll(made))
	}
	out := &Exported{}
	var parts []gpualloc.Exported
	for i, m := range made {
		e := s.part(q, on, m)
		if i == len(made)-1 {
			e.Free = q.put
		}
		parts = append(parts, e)
		out.MRs = append(out.MRs, m.MR)
	}
	desc := describeDevice(d)
	desc.Spec = fmt.Sprintf("ze:%d", d.Ordinal)
	out.Buffer = gpualloc.NewBuffer(desc, length, parts)
	return out, nil
}

// pointerInfo asks whose memory it is, and refuses what cannot be exported.
func (s *session) pointerInfo(ctx contextHandle, on string, p pointer) (allocProperties, error) {
	if ctx == 0 {
		return allocProperties{}, failed("export", on, InvalidNullHandle, "pass the context that the memory was allocated in", "no context")
	}
	facts, r := s.drv.allocProperties(ctx, p)
	if r != Success {
		return facts, failed("zeMemGetAllocProperties", on, r, "", "")
	}
	switch facts.kind {
	case memoryDevice:
		return facts, nil
	case memoryUnknown:
		return facts, &failure.Error{
			Op: "zeMemGetAllocProperties", Device: on, Err: failure.ErrRange, Detail: "the context does not know the address",
			Remedy: "pass a pointer of this context that is allocated: a freed one, or another context's, is not known",
		}
	case memoryShared:
		return facts, failed("export", on, UnsupportedFeature, "use zeMemAllocDevice", "it is shared memory, whose pages migrate")
	}
	return facts, failed("export", on, UnsupportedFeature, "register it as host memory", "memory type %d is not device memory", facts.kind)
}

// allocation is the one that holds all of the memory.
func (s *session) allocation(ctx contextHandle, on string, mem align.Range) (align.Range, error) {
	base, size, r := s.drv.addressRange(ctx, pointer(mem.Addr))
	if r != Success {
		return align.Range{}, failed("zeMemGetAddressRange", on, r, "", "")
	}
	held := align.Range{Addr: uint64(base), Length: size}
	if !held.Contains(align.Range{Addr: mem.Addr, Length: 1}) {
		return held, &failure.Error{Op: "zeMemGetAddressRange", Device: on, Err: unix.EPROTO, Detail: fmt.Sprintf("%v does not hold %#x", held, mem.Addr)}
	}
	if !held.Contains(mem) {
		return held, &failure.Error{Op: "export", Device: on, Err: failure.ErrRange, Detail: fmt.Sprintf("%v is beyond its allocation %v", mem, held), Remedy: "export each allocation by itself"}
	}
	return held, nil
}

// owner finds the GPU that an allocation belongs to.
func (s *session) owner(h deviceHandle, on string) (Device, error) {
	devices, err := s.devices()
	if err != nil {
		return Device{}, err
	}
	for _, d := range devices {
		if d.handle == h {
			return d, nil
		}
	}
	return Device{}, failed("export", on, InvalidNullHandle, "", "the memory belongs to a device that is not listed, such as one tile of a GPU")
}

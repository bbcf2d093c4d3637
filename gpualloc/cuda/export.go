// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

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
	// Mapping says how the descriptors address the memory.
	Mapping Mapping
	// PageAlignedIOVA is for an importer that needs IOVAs that are multiples of the
	// page size (mlx5's data-direct path). The MRs then begin less than a page before
	// the memory.
	PageAlignedIOVA bool
	// MaxLength is the longest export in bytes; longer memory gets several. 0 is no
	// limit. An IOMMU that translates maps all of a descriptor.
	MaxLength int64
}

// Exported is exported memory of the caller.
type Exported struct {
	// Buffer is the memory, one segment for each export. Its Close closes the
	// descriptors; the memory stays the caller's.
	*gpualloc.Buffer
	// MRs says what to register of each segment's dma-buf: offset, length and
	// IOVA in bytes. Without PageAlignedIOVA it is the segment.
	MRs []align.MR
	// Mapping is the mapping that the descriptors have.
	Mapping Mapping
}

// Export exports length bytes of device memory at ptr, which the caller owns: from
// cuMemAlloc, the virtual memory API (any number of mappings) or a framework that uses
// one of these, at any address and length. The memory must stay allocated and mapped
// until the Buffer and every MR on it are closed. If a mapping changes, export the
// memory again. The caller closes the Exported.
//
// Export refuses memory that is larger than BAR 1 (failure.ErrLimit). It does not know
// how much of BAR 1 is free: before the buffer is registered, nvml.CheckBAR1 says
// whether the buffer fits.
//
// It also refuses managed memory, whose pages migrate, memory of the host or of several
// GPUs, a range of which a part is not allocated, and pointers that CUDA does not know,
// such as freed ones. Errors are *failure.Error with a [Result], failure.ErrRange or
// failure.ErrLimit, or those of package align.
func Export(ptr uintptr, length int64, opt ExportOptions) (*Exported, error) {
	s, err := start()
	if err != nil {
		return nil, err
	}
	return s.exportMemory(pointer(ptr), length, opt, gpualloc.Env{})
}

func (s *session) exportMemory(p pointer, length int64, opt ExportOptions, env gpualloc.Env) (*Exported, error) {
	on := fmt.Sprintf("pointer %#x", uint64(p))
	if length <= 0 || opt.MaxLength < 0 {
		return nil, &failure.Error{Op: "export", Device: on, Err: failure.ErrRange, Detail: fmt.Sprintf("length %d, pieces of at most %d", length, opt.MaxLength)}
	}
	info, err := s.pointerInfo(p, on)
	if err != nil {
		return nil, err
	}
	d, err := s.describe(info.ordinal, env)
	if err != nil {
		return nil, err
	}
	on = fmt.Sprintf("%v, pointer %#x", d, uint64(p))
	if l, ok := barLimit(d, env); ok {
		if err := vendor.Beyond(on, window(length, opt.MaxLength), l); err != nil {
			return nil, err
		}
	}
	// The pointer's own context is used, if it has one, which its owner keeps. Mappings
	// of the virtual memory API have none, and are used in the primary one, which is
	// kept as long as the buffer.
	ctx, r := s.drv.retain(d.dev)
	if r != Success {
		return nil, failed("cuDevicePrimaryCtxRetain", on, r, "", "")
	}
	release := func() error { return failed("cuDevicePrimaryCtxRelease", on, s.drv.release(d.dev), "", "") }
	theirs := info.context != 0
	if theirs {
		ctx = info.context
	}
	out, err := s.exportIn(ctx, theirs, d, on, p, length, opt, release)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	return out, nil
}

// window is how much of BAR 1 the exports take: each has pages of its own there, as
// nvml.Window says.
func window(length, most int64) int64 {
	each := uint64(length)
	if most > 0 && most < length {
		page := vendor.PageSize()
		each = max(uint64(most)&^(page-1), page)
	}
	high, low := bits.Mul64((uint64(length)-1)/each+1, (each+smallUnit-1)&^(smallUnit-1))
	if high != 0 || low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(low)
}

// exportIn exports memory in a context, which is theirs if an application has made it.
func (s *session) exportIn(ctx contextHandle, theirs bool, d Device, on string, p pointer, length int64, opt ExportOptions, release func() error) (*Exported, error) {
	allocations, err := s.allocations(ctx, d, on, p, uint64(length))
	if err != nil {
		return nil, err
	}
	for _, a := range allocations {
		if err := s.setSyncMemops(ctx, on, pointer(max(a.Addr, uint64(p)))); err != nil {
			return nil, err
		}
	}
	req := align.Request{
		Memory:      align.Range{Addr: uint64(p), Length: uint64(length)},
		Allocations: allocations,
		MaxLength:   uint64(opt.MaxLength),
	}
	if page := vendor.PageSize(); req.MaxLength > 0 && req.MaxLength < page {
		req.MaxLength = page
	}
	if opt.PageAlignedIOVA {
		req.IOVA = align.PageAligned
	}
	made, mapping, err := s.place(ctx, on, req, opt.Mapping)
	if err != nil {
		return nil, err
	}
	if err := vendor.SetNames(made, opt.Name); err != nil {
		return nil, errors.Join(err, vendor.CloseAll(made))
	}
	out := &Exported{Mapping: mapping}
	var parts []gpualloc.Exported
	for i, m := range made {
		there := always
		if theirs {
			there = s.presence(on, pointer(m.Piece.Memory.Addr))
		}
		e := s.part(ctx, d, on, m, mapping, there)
		if i == len(made)-1 {
			e.Free = release
		}
		parts = append(parts, e)
		out.MRs = append(out.MRs, m.MR)
	}
	desc := describeDevice(d)
	desc.Spec = fmt.Sprintf("cuda:%d", d.Ordinal)
	out.Buffer = gpualloc.NewBuffer(desc, length, parts)
	return out, nil
}

// part is a piece as gpualloc wants it. Nothing is done with memory that is not there.
func (s *session) part(ctx contextHandle, d Device, on string, m vendor.Placed, mapping Mapping, there func() error) gpualloc.Exported {
	e := gpualloc.Exported{
		Segment: m.Segment(),
		View:    s.view(ctx, on, pointer(m.Piece.Memory.Addr), int64(m.Piece.Memory.Length), there),
	}
	if mapping == MappingDefault {
		e.Flush = func() error {
			if err := there(); err != nil {
				return err
			}
			return s.flush(ctx, d, on)
		}
	}
	return e
}

// always is the presence of memory that this package keeps.
func always() error { return nil }

// presence returns a function that fails once an application has freed its memory, or destroyed
// the context of it. CUDA does not check the handle of a context that is gone: a call in it fails,
// succeeds, or ends the process with SIGSEGV (seen with driver 580.159.04).
func (s *session) presence(on string, p pointer) func() error {
	id, r := s.drv.pointerUint(pointerBufferID, p)
	numbered := r == Success
	return func() error {
		if _, r := s.drv.pointerUint(pointerMemoryType, p); r != Success {
			return gone(on, r, p)
		}
		if !numbered {
			return nil
		}
		if now, r := s.drv.pointerUint(pointerBufferID, p); r != Success || now != id {
			return gone(on, InvalidValue, p)
		}
		return nil
	}
}

func gone(on string, r Result, p pointer) error {
	return failed("cuPointerGetAttribute", on, r, remedies[ContextIsDestroyed],
		"%#x is not the exported memory any more: it was freed, or the context was destroyed", uint64(p))
}

// view copies through CUDA.
func (s *session) view(ctx contextHandle, on string, p pointer, size int64, there func() error) *vendor.View {
	return &vendor.View{
		On: on, Size: size,
		Read: func(to []byte, off int64) error {
			if err := there(); err != nil {
				return err
			}
			return failed("cuMemcpyDtoH", on, s.drv.toHost(ctx, to, p+pointer(off)), "", "%#x bytes at %#x", len(to), uint64(p)+uint64(off))
		},
		Write: func(from []byte, off int64) error {
			if err := there(); err != nil {
				return err
			}
			return failed("cuMemcpyHtoD", on, s.drv.toDevice(ctx, p+pointer(off), from), "", "%#x bytes at %#x", len(from), uint64(p)+uint64(off))
		},
	}
}

// pointerFacts is what CUDA knows about an address.
type pointerFacts struct {
	ordinal int
	context contextHandle // 0: of no context, as mappings of the virtual memory API are
}

// pointerInfo asks whose memory it is, and refuses what cannot be exported.
func (s *session) pointerInfo(p pointer, on string) (pointerFacts, error) {
	kind, r := s.drv.pointerUint(pointerMemoryType, p)
	if r != Success {
		return pointerFacts{}, failed("cuPointerGetAttribute", on, r,
			"pass a device pointer of this process that is allocated: a freed one, memory of the host, or another process's is not known", "CUDA does not know the address")
	}
	if kind != memoryTypeDevice {
		return pointerFacts{}, failed("export", on, NotSupported,
			"register it as host memory", "memory type %d is not device memory", kind)
	}
	if managed, r := s.drv.pointerUint(pointerIsManaged, p); r == Success && managed != 0 {
		return pointerFacts{}, failed("export", on, NotSupported,
			"use cuMemAlloc or cuMemCreate", "it is managed memory, whose pages migrate between the GPU and the host")
	}
	if capable, r := s.drv.pointerUint(pointerRDMACapable, p); r == Success && capable == 0 {
		return pointerFacts{}, failed("export", on, NotSupported,
			"allocate with cuMemAlloc, or cuMemCreate with allocFlags.gpuDirectRDMACapable", "it was allocated without GPUDirect RDMA")
	}
	ordinal, r := s.drv.pointerUint(pointerDeviceOrdinal, p)
	if r != Success {
		return pointerFacts{}, failed("cuPointerGetAttribute", on, r, "", "CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL")
	}
	ctx, r := s.drv.pointerUint(pointerContext, p)
	if r != Success {
		ctx = 0
	}
	return pointerFacts{ordinal: int(int32(ordinal)), context: contextHandle(ctx)}, nil
}

// maxSegments bounds the walk over mappings, far above any real number.
const maxSegments = 1 << 20

// allocations walks the allocations, or mappings, that hold the memory, of one GPU.
func (s *session) allocations(ctx contextHandle, d Device, on string, p pointer, length uint64) ([]align.Range, error) {
	mem := align.Range{Addr: uint64(p), Length: length}
	if length-1 > ^uint64(0)-uint64(p) {
		return nil, &failure.Error{Op: "export", Device: on, Err: failure.ErrRange, Detail: fmt.Sprintf("%v wraps around the address space", mem)}
	}
	last := mem.Addr + (length - 1)
	var out []align.Range
	for at := mem.Addr; len(out) < maxSegments; {
		base, size, r := s.drv.addressRange(ctx, pointer(at))
		if r != Success {
			return nil, &failure.Error{
				Op: "cuMemGetAddressRange", Device: on, Err: fmt.Errorf("%w (%w)", failure.ErrRange, r),
				Detail: fmt.Sprintf("%#x, %#x bytes into %v, is in no allocation", at, at-mem.Addr, mem),
				Remedy: "pass memory that is allocated, or mapped, as a whole, and not freed",
			}
		}
		held := align.Range{Addr: uint64(base), Length: size}
		if !held.Contains(align.Range{Addr: at, Length: 1}) {
			return nil, &failure.Error{Op: "cuMemGetAddressRange", Device: on, Err: unix.EPROTO, Detail: fmt.Sprintf("%v does not hold %#x", held, at)}
		}
		if len(out) > 0 {
			if err := s.belongs(d, on, at, mem); err != nil {
				return nil, err
			}
		}
		out = append(out, held)
		if held.Length-1 >= last-held.Addr {
			return out, nil
		}
		at = held.Addr + held.Length
	}
	return nil, &failure.Error{Op: "export", Device: on, Err: failure.ErrLimit, Detail: fmt.Sprintf("more than %d mappings", maxSegments)}
}

// belongs refuses a further mapping that is not exportable memory of the first one's
// GPU: mappings next to each other may be of any.
func (s *session) belongs(d Device, on string, at uint64, mem align.Range) error {
	info, err := s.pointerInfo(pointer(at), fmt.Sprintf("%s, at %#x, %#x bytes into %v", on, at, at-mem.Addr, mem))
	if err != nil || info.ordinal == d.Ordinal {
		return err
	}
	return &failure.Error{
		Op: "export", Device: on, Err: failure.ErrRange,
		Detail: fmt.Sprintf("%#x, %#x bytes into %v, belongs to another GPU, cuda:%d", at, at-mem.Addr, mem, info.ordinal),
		Remedy: "export the memory of each GPU by itself",
	}
}

// setSyncMemops makes copies on the memory synchronous: without it, a copy may
// still run when the call returns, while an RDMA device already reads. Mappings
// of the virtual memory API do not have the attribute.
func (s *session) setSyncMemops(ctx contextHandle, on string, p pointer) error {
	r := s.drv.syncMemops(ctx, p)
	if r == NotSupported || r == InvalidValue {
		return nil
	}
	return failed("cuPointerSetAttribute", on, r, "", "CU_POINTER_ATTRIBUTE_SYNC_MEMOPS at %#x", uint64(p))
}

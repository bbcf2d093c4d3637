// SPDX-License-Identifier: Apache-2.0

package rocm

import (
	"errors"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/align"
	"github.com/gpurdma/gpurdma/gpualloc/internal/vendor"
)

// place exports what req asks for.
func (s *session) place(on string, req align.Request, flags uint64) ([]vendor.Placed, error) {
	req.Page = vendor.PageSize()
	req.Rule = align.Whole
	if flags != 0 && !s.drv.hasFlags() {
		return nil, &failure.Error{
			Op: exportFunction + "_v2", Device: s.drv.path(), Err: errors.ErrUnsupported,
			Detail: "the runtime has no such function", Remedy: "export without the PCIe mapping, or install ROCm 7.1 or later",
		}
	}
	// The runtime's own descriptor is open beside our duplicate.
	return vendor.Place(on, req, 1, func(p align.Piece) (vendor.Placed, error) { return s.placePiece(on, p, flags) })
}

func (s *session) placePiece(on string, p align.Piece, flags uint64) (vendor.Placed, error) {
	buf, offset, err := s.export(on, p.Export, flags)
	if err != nil {
		return vendor.Placed{}, err
	}
	d := align.Descriptor{Size: uint64(buf.Size()), Offset: offset, Reported: true}
	mr, err := p.Bind(d)
	if errors.Is(err, align.ErrOffset) {
		if d.Proven = s.offsetMoves(on, p.Export, flags); d.Proven {
			mr, err = p.Bind(d)
		}
	}
	if err != nil {
		return vendor.Placed{}, errors.Join(err, buf.Close())
	}
	return vendor.Placed{Buf: buf, MR: mr, Piece: p}, nil
}

// export asks for the descriptor of an allocation. The runtime's is given back
// by its own call; what stays is a duplicate.
func (s *session) export(on string, r align.Range, flags uint64) (*dmabuf.Buf, uint64, error) {
	raw, offset, st := s.drv.export(pointer(r.Addr), r.Length, flags)
	if st != Success {
		remedy := ""
		switch st {
		case InvalidAllocation:
			remedy = "pass memory of a GPU that is allocated, and not freed"
		case InvalidAgent:
			remedy = "the memory is not a GPU's: register it as host memory"
		case Error:
			remedy = "the kernel refused: it needs amdgpu with DMA-buf export (Linux 5.12 and later), and /dev/dri/renderD* must be accessible"
		}
		return nil, 0, failed(exportFunction, on, st, remedy, "%v", r)
	}
	buf, err := dmabuf.Import(raw)
	if st := s.drv.closeDMABuf(raw); st != Success {
		err = errors.Join(err, failed("hsa_amd_portable_close_dmabuf", on, st, "", "fd %d", raw))
	}
	if err != nil {
		if buf != nil {
			err = errors.Join(err, buf.Close())
		}
		return nil, 0, err
	}
	return buf, offset, nil
}

// offsetMoves asks for the allocation's second page, and whether its offset is
// a page further: a runtime that fills in offsets at all passes.
func (s *session) offsetMoves(on string, r align.Range, flags uint64) bool {
	page := vendor.PageSize()
	if r.Length <= page {
		return false
	}
	buf, offset, err := s.export(on, align.Range{Addr: r.Addr + page, Length: r.Length - page}, flags)
	if err != nil {
		return false
	}
	return buf.Close() == nil && offset == page
}

// part is a piece as gpualloc wants it.
func (s *session) part(on string, m vendor.Placed) gpualloc.Exported {
	p := pointer(m.Piece.Memory.Addr)
	return gpualloc.Exported{
		Segment: m.Segment(),
		View: &vendor.View{
			On: on, Size: int64(m.Piece.Memory.Length),
			Read: func(to []byte, off int64) error {
				return failed("hsa_memory_copy", on, s.drv.toHost(to, p+pointer(off)), "", "%#x bytes from %#x", len(to), uint64(p)+uint64(off))
			},
			Write: func(from []byte, off int64) error {
				return failed("hsa_memory_copy", on, s.drv.toDevice(p+pointer(off), from), "", "%#x bytes to %#x", len(from), uint64(p)+uint64(off))
			},
		},
	}
}

// SPDX-License-Identifier: Apache-2.0

package levelzero

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/align"
	"github.com/gpurdma/gpurdma/gpualloc/internal/vendor"
)

// place exports what req asks for. The allocation's own page size is what its
// dma-buf may be rounded up to.
func (s *session) place(ctx contextHandle, on string, req align.Request, pageSize uint64) ([]vendor.Placed, error) {
	req.Page = vendor.PageSize()
	req.Rule = align.Whole
	if pageSize > req.Page && pageSize&(pageSize-1) == 0 {
		req.Granule = pageSize
	}
	if req.MaxLength > 0 {
		req.MaxLength = max(req.MaxLength, req.Granule, req.Page)
	}
	// Beside the duplicates that stay, the driver's two.
	return vendor.Place(on, req, 2, func(p align.Piece) (vendor.Placed, error) { return s.placePiece(ctx, on, p) })
}

func (s *session) placePiece(ctx contextHandle, on string, p align.Piece) (vendor.Placed, error) {
	buf, err := s.export(ctx, on, pointer(p.Export.Addr))
	if err != nil {
		return vendor.Placed{}, err
	}
	mr, err := p.Bind(align.Descriptor{Size: uint64(buf.Size())})
	if err != nil {
		return vendor.Placed{}, errors.Join(err, buf.Close())
	}
	return vendor.Placed{Buf: buf, MR: mr, Piece: p}, nil
}

// export asks for an allocation's descriptor, twice: a driver that returns the same
// one again keeps it for itself. If export closed it, the driver would later return a
// number that by then is another file's.
func (s *session) export(ctx contextHandle, on string, p pointer) (*dmabuf.Buf, error) {
	first, err := s.descriptor(ctx, on, p)
	if err != nil {
		return nil, err
	}
	second, err := s.descriptor(ctx, on, p)
	if err != nil {
		_ = unix.Close(first) // a driver that keeps one has no reason to fail
		return nil, err
	}
	buf, err := dmabuf.Import(first)
	if first != second {
		err = errors.Join(err, unix.Close(first), unix.Close(second))
		if err != nil && buf != nil {
			err = errors.Join(err, buf.Close())
		}
	}
	if err != nil {
		return nil, err
	}
	return buf, nil
}

func (s *session) descriptor(ctx contextHandle, on string, p pointer) (int, error) {
	fd, r := s.drv.export(ctx, p)
	if r != Success {
		remedy := ""
		switch r {
		case UnsupportedFeature, UnsupportedEnumeration, InvalidEnumeration, InvalidArgument:
			remedy = "allocate the memory with ze_external_memory_export_desc_t and ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF"
		}
		return -1, failed("zeMemGetAllocProperties", on, r, remedy, "export of %#x", uint64(p))
	}
	if fd < 0 {
		return -1, &failure.Error{
			Op: "zeMemGetAllocProperties", Device: on, Err: errors.ErrUnsupported,
			Detail: fmt.Sprintf("the driver says success and gives no descriptor of %#x", uint64(p)),
			Remedy: "allocate the memory with ze_external_memory_export_desc_t and ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF",
		}
	}
	return fd, nil
}

// part is a piece as gpualloc wants it.
func (s *session) part(q *queue, on string, m vendor.Placed) gpualloc.Exported {
	p := pointer(m.Piece.Memory.Addr)
	return gpualloc.Exported{
		Segment: m.Segment(),
		View: &vendor.View{
			On: on, Size: int64(m.Piece.Memory.Length),
			Read: func(to []byte, off int64) error {
				r := q.do(func(l listHandle) Result { return s.drv.toHost(l, to, p+pointer(off)) })
				return failed("zeCommandListAppendMemoryCopy", on, r, "", "%#x bytes from %#x", len(to), uint64(p)+uint64(off))
			},
			Write: func(from []byte, off int64) error {
				r := q.do(func(l listHandle) Result { return s.drv.toDevice(l, p+pointer(off), from) })
				return failed("zeCommandListAppendMemoryCopy", on, r, "", "%#x bytes to %#x", len(from), uint64(p)+uint64(off))
			},
		},
	}
}

// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc/align"
	"github.com/gpurdma/gpurdma/gpualloc/internal/vendor"
)

// place exports what req asks for: with one descriptor if the driver joins
// neighbouring allocations, otherwise with one each. It answers the mapping
// that they have.
func (s *session) place(ctx contextHandle, on string, req align.Request, m Mapping) ([]vendor.Placed, Mapping, error) {
	req.Page = vendor.PageSize()
	req.Rule = align.Exact
	req.Join = true
	made, got, err := s.placeOnce(ctx, on, req, m)
	if err == nil || len(req.Allocations) < 2 || !splitHelps(err) {
		return made, got, err
	}
	req.Join = false
	made, got, err2 := s.placeOnce(ctx, on, req, m)
	if err2 != nil {
		return nil, 0, errors.Join(err2, fmt.Errorf("and as one export: %w", err))
	}
	return made, got, nil
}

// splitHelps: the driver refused the range as such, or its descriptor ends
// with the first allocation.
func splitHelps(err error) bool {
	return errors.Is(err, InvalidValue) || errors.Is(err, NotSupported) || errors.Is(err, align.ErrShort)
}

func (s *session) placeOnce(ctx contextHandle, on string, req align.Request, m Mapping) (made []vendor.Placed, got Mapping, err error) {
	made, err = vendor.Place(on, req, 0, func(p align.Piece) (vendor.Placed, error) {
		var one vendor.Placed
		var err error
		one, got, err = s.placePiece(ctx, on, p, m)
		return one, err
	})
	return made, got, err
}

func (s *session) placePiece(ctx contextHandle, on string, p align.Piece, m Mapping) (vendor.Placed, Mapping, error) {
	raw, got, err := s.handle(ctx, on, pointer(p.Export.Addr), p.Export.Length, m)
	if err != nil {
		return vendor.Placed{}, 0, err
	}
	buf, err := dmabuf.New(raw)
	if err != nil {
		_ = unix.Close(raw)
		return vendor.Placed{}, 0, err
	}
	mr, err := p.Bind(align.Descriptor{Size: uint64(buf.Size())})
	if err != nil {
		return vendor.Placed{}, 0, errors.Join(err, buf.Close())
	}
	return vendor.Placed{Buf: buf, MR: mr, Piece: p}, got, nil
}

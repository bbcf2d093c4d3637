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

// placed is an exported piece: its descriptor, and where in it the memory is.
type placed struct {
	buf     *dmabuf.Buf
	mr      align.MR
	piece   align.Piece
	mapping Mapping
}

func closeAll(made []placed) error {
	var errs []error
	for _, p := range made {
		errs = append(errs, p.buf.Close())
	}
	return errors.Join(errs...)
}

// place exports what req asks for: with one descriptor if the driver joins
// neighbouring allocations, otherwise with one each.
func (s *session) place(ctx contextHandle, on string, req align.Request, m Mapping) ([]placed, error) {
	req.Page = vendor.PageSize()
	req.Rule = align.Exact
	req.Join = true
	made, err := s.placeOnce(ctx, on, req, m)
	if err == nil || len(req.Allocations) < 2 || !splitHelps(err) {
		return made, err
	}
	req.Join = false
	made, err2 := s.placeOnce(ctx, on, req, m)
	if err2 != nil {
		return nil, errors.Join(err2, fmt.Errorf("and as one export: %w", err))
	}
	return made, nil
}

// splitHelps: the driver refused the range as such, or its descriptor ends
// with the first allocation.
func splitHelps(err error) bool {
	return errors.Is(err, InvalidValue) || errors.Is(err, NotSupported) || errors.Is(err, align.ErrShort)
}

func (s *session) placeOnce(ctx contextHandle, on string, req align.Request, m Mapping) ([]placed, error) {
	pieces, err := align.Solve(req)
	if err != nil {
		return nil, err
	}
	if err := vendor.RoomForFDs(on, int64(len(pieces))); err != nil {
		return nil, err
	}
	var made []placed
	for i, p := range pieces {
		one, err := s.placePiece(ctx, on, p, m)
		if err != nil {
			if len(pieces) > 1 {
				err = fmt.Errorf("piece %d of %d: %w", i+1, len(pieces), err)
			}
			return nil, errors.Join(err, closeAll(made))
		}
		made = append(made, one)
	}
	return made, nil
}

func (s *session) placePiece(ctx contextHandle, on string, p align.Piece, m Mapping) (placed, error) {
	raw, got, err := s.handle(ctx, on, pointer(p.Export.Addr), p.Export.Length, m)
	if err != nil {
		return placed{}, err
	}
	buf, err := dmabuf.New(raw)
	if err != nil {
		_ = unix.Close(raw)
		return placed{}, err
	}
	mr, err := p.Bind(align.Descriptor{Size: uint64(buf.Size())})
	if err != nil {
		return placed{}, errors.Join(err, buf.Close())
	}
	return placed{buf: buf, mr: mr, piece: p, mapping: got}, nil
}

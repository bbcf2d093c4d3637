// SPDX-License-Identifier: Apache-2.0

package vendor

import (
	"errors"
	"fmt"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/align"
)

// Placed is an exported piece: its descriptor, and where in it the memory is.
type Placed struct {
	Buf   *dmabuf.Buf
	MR    align.MR
	Piece align.Piece
}

// Segment is the piece as gpualloc wants it.
func (p Placed) Segment() gpualloc.Segment {
	return gpualloc.Segment{
		Buf:    p.Buf,
		Offset: int64(p.MR.Offset + p.MR.Lead),
		Size:   int64(p.Piece.Memory.Length),
		Addr:   p.Piece.Memory.Addr,
	}
}

// Place exports what a request is split into, all of it or nothing. extra is
// how many descriptors are open for a moment beside those that stay.
func Place(on string, req align.Request, extra int64, export func(align.Piece) (Placed, error)) ([]Placed, error) {
	pieces, err := align.Solve(req)
	if err != nil {
		return nil, err
	}
	if err := RoomForFDs(on, int64(len(pieces))+extra); err != nil {
		return nil, err
	}
	var made []Placed
	for i, p := range pieces {
		one, err := export(p)
		if err != nil {
			if len(pieces) > 1 {
				err = fmt.Errorf("piece %d of %d: %w", i+1, len(pieces), err)
			}
			return nil, errors.Join(err, CloseAll(made))
		}
		made = append(made, one)
	}
	return made, nil
}

// SetNames names the dma-bufs; "" does not.
func SetNames(made []Placed, name string) error {
	if name == "" {
		return nil
	}
	for _, p := range made {
		if err := p.Buf.SetName(name); err != nil {
			return err
		}
	}
	return nil
}

// CloseAll closes the descriptors.
func CloseAll(made []Placed) error {
	var errs []error
	for _, p := range made {
		errs = append(errs, p.Buf.Close())
	}
	return errors.Join(errs...)
}

// SPDX-License-Identifier: Apache-2.0

package request

import (
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/verify"
)

// Sums reads a write's bytes, and returns the trailer with their sums. It is nil if no block was chosen.
func (r *Request) Sums(mode verify.Mode) ([]byte, error) {
	if mode == verify.Sampled && len(r.bufs) == 1 {
		if _, own := r.bufs[0].OwnLayout(); !own && r.Length <= r.bufs[0].Memory() { // the trailer has room, and mostly no block is chosen
			c := verify.ChooseOne(r.Length)
			if c.None() {
				return nil, nil
			}
			return c.Make(r.Kind.String(), r.destination(), r.source())
		}
	}
	return verify.Make(mode, r.Kind.String(), r.destination(), r.Length, r.source())
}

// source returns the bytes that a write sends.
func (r *Request) source() verify.Source {
	if r.injected {
		return inSlot(r.slot.Bytes(r.Length))
	}
	var list verify.Joined
	for i := range r.operands {
		x := &r.operands[i]
		list = append(list, verify.Part{Source: x.Reading(), Len: x.Len})
	}
	return list
}

// inSlot is bytes that were injected: they are in the slot.
type inSlot []byte

// Each calls f with n bytes from off on.
func (p inSlot) Each(off, n int64, f func([]byte)) error {
	f(p[off : off+n])
	return nil
}

// destination returns the pieces of the peer's memory.
func (r *Request) destination() (list []verify.Piece) {
	sizes := map[*memory.RemoteBuffer]int64{}
	for i, rb := range r.bufs {
		size, known := sizes[rb]
		if !known {
			size = rb.Memory()
			sizes[rb] = size
		}
		w := &r.remote[i]
		p := verify.Piece{Memory: rb.ID(), Off: w.Off, Len: w.Len, Size: size}
		p.Layout, p.Own = rb.OwnLayout()
		list = append(list, p)
	}
	return list
}

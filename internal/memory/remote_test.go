// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/layouttest"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/layout"
)

func TestRemoteBufferWire(t *testing.T) {
	r := testenv.Seeded(t)
	for range 500 {
		s := layouttest.Shape{Sources: 1 + r.IntN(3), Room: 1 + r.Int64N(300), Blocks: 50}
		l, _ := s.Layout(t, r, 3)
		rb := &RemoteBuffer{id: r.Uint64(), token: r.Uint64(), access: ibvfd.AccessRemoteRead, layout: l}
		for _, m := range s.Memory(r) {
			rb.spaces, rb.memory = append(rb.spaces, lower.NewSpace(m)), append(rb.memory, r.Uint64())
		}
		wire := must(rb.MarshalBinary())(t)
		var back RemoteBuffer
		if err := back.UnmarshalBinary(wire); err != nil {
			t.Fatal(err)
		}
		if again := must(back.MarshalBinary())(t); string(again) != string(wire) {
			t.Fatalf("%x came back as %x", wire, again)
		}
		for cut := range wire {
			if back.UnmarshalBinary(wire[:cut]) == nil {
				// Without a layout the rest is valid, too: the zero layout is one byte.
				if back.Size() != 0 {
					t.Fatalf("the first %d bytes of %x pass", cut, wire)
				}
			}
		}
	}
}

func FuzzRemoteBuffer(f *testing.F) {
	small := RemoteBuffer{id: 1, token: 99, access: allAccess, spaces: []lower.Space{lower.NewSpace(lower.Memory{{Length: 8, Key: 1}})}, memory: []uint64{7}, layout: must(layout.Contiguous(0, 8))(f)}
	f.Add(must(small.MarshalBinary())(f))
	rb := RemoteBuffer{access: allAccess, spaces: []lower.Space{lower.NewSpace(lower.Memory{{Addr: 1 << 40, Length: 100, Key: 7}, {Addr: 5, Length: 50, Key: 8}})}, memory: []uint64{7}, layout: must(layout.Interleaved(layout.Extent{Off: 4, Len: 8}, layout.Dim{Count: 9, Stride: 16}))(f)}
	f.Add(must(rb.MarshalBinary())(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		var rb RemoteBuffer
		if err := rb.UnmarshalBinary(data); err != nil {
			return
		}
		// Every byte of the descriptor lies in memory of the descriptor.
		n := min(rb.Size(), 500)
		if n == 0 {
			return
		}
		p := lower.PiecesOf([]lower.Window{{Layout: rb.layout, Spaces: rb.spaces, Off: rb.Size() - n, Len: n}})
		got := int64(0)
		for m, ok := p.Next(); ok; m, ok = p.Next() {
			got += m.Length
		}
		if got != n || rb.access&^remoteAccess != 0 {
			t.Fatalf("%d bytes of %d, access %v", got, n, rb.access)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"encoding/binary"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/layout"
)

// A peer may describe a GiB byte by byte. What that costs is counted in blocks that
// were walked over: few for one work request, whatever they merge to.
func TestLoweringOfAPeersBytes(t *testing.T) {
	const total = 1 << 30
	strand := func(source int, off, stride int64) layout.Strand {
		return layout.Strand{Extent: layout.Extent{Source: source, Off: off, Len: 1}, Stride: stride}
	}
	wire := func(l layout.Layout, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		b, err := l.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	// Blocks that touch, as no constructor leaves them, and the wire may have them: version 1,
	// a weave, how often, one strand, of source 0, from 0 on, a byte, and the byte behind it.
	touching := append(binary.AppendUvarint([]byte{1, 2}, total), 1, 0, 0, 1, 2)
	pair, err := layout.SG(layout.Extent{Len: 1}, layout.Extent{Off: 1, Len: 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		wire   []byte
		blocks int64 // that are walked over for the first work request
	}{
		"touching":       {touching, 1},
		"two in turn":    {wire(layout.RoundRobin(total/2, strand(0, 0, 2), strand(0, 1, 2))), mostMerged},
		"of two sources": {wire(layout.RoundRobin(total/2, strand(0, 0, 2), strand(1, 0, 2))), mostMerged},
		"pairs repeated": {wire(pair.Repeat(total/2, 2)), mostMerged},
	} {
		t.Run(name, func(t *testing.T) {
			var came layout.Layout
			if err := came.UnmarshalBinary(c.wire); err != nil {
				t.Fatal(err)
			}
			if came.Size() != total {
				t.Fatalf("%d bytes", came.Size())
			}
			whole, err := layout.Contiguous(0, total)
			if err != nil {
				t.Fatal(err)
			}
			mine := Side{Layout: whole, Memory: []Memory{{{Length: total, Key: 3}}}}
			// Source 1 begins one byte behind source 0, under the same key.
			theirs := Side{Layout: came, Memory: []Memory{{{Addr: 1 << 40, Length: total, Key: 7}}, {{Addr: 1<<40 + 1, Length: total, Key: 7}}}}
			x := Lower(ibvfd.OpWrite, mine, theirs, total, Limits{MaxSGE: 1, MaxMsg: total})
			var wr [1]ibvfd.SendWR
			var sge [1]ibvfd.SGE
			for i := range int64(3) {
				at := total - x.left
				if c.blocks == 1 && i > 0 {
					if at != total {
						t.Errorf("one block takes more than a work request: it ends at %d", at)
					}
					break
				}
				if n := x.Next(wr[:], sge[:]); n != 1 {
					t.Fatal(n)
				}
				// Bytes that Pieces has walked over are lowered, or kept for later: at most one block.
				walked := total - x.left + x.r.Length + x.remote.ahead.Length + x.remote.block.Len
				if c.blocks == 1 {
					walked /= total
				}
				if most := (i + 1) * (c.blocks + 1); walked > most {
					t.Errorf("%d blocks were walked over for %d work requests, of at most %d", walked, i+1, most)
				}
				if wr[0].RemoteAddr != 1<<40+uint64(at) || wr[0].RKey != 7 || int64(sge[0].Length) != total-at-x.left || sge[0].Addr != uint64(at) {
					t.Errorf("%+v at %d", wr[0], at)
				}
			}
		})
	}
}

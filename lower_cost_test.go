// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// A peer may describe a GiB byte by byte. What that costs is counted in blocks that
// were walked over: few for one work request, whatever they merge to.
func TestLoweringOfAPeersBytes(t *testing.T) {
	const total = 1 << 30
	strand := func(source int, off, stride int64) Strand {
		return Strand{Extent: Extent{Source: source, Off: off, Len: 1}, Stride: stride}
	}
	pair := &node{kind: kindList, ranges: []Extent{{Len: 1}, {Off: 1, Len: 1}}}
	for name, c := range map[string]struct {
		root   *node
		blocks int64 // that are walked over for the first work request
	}{
		// As no constructor makes it, and the wire may have it.
		"touching":       {&node{kind: kindWeave, count: total, strands: []Strand{strand(0, 0, 1)}}, 1},
		"two in turn":    {&node{kind: kindWeave, count: total / 2, strands: []Strand{strand(0, 0, 2), strand(0, 1, 2)}}, mostMerged},
		"of two sources": {&node{kind: kindWeave, count: total / 2, strands: []Strand{strand(0, 0, 2), strand(1, 0, 2)}}, mostMerged},
		"pairs repeated": {&node{kind: kindRepeat, count: total / 2, stride: 2, kids: []*node{pair}}, mostMerged},
	} {
		t.Run(name, func(t *testing.T) {
			// Source 1 begins one byte behind source 0, under the same key.
			rb := RemoteBuffer{access: allAccess, layout: Layout{c.root}, spaces: []space{
				Memory{{Addr: 1 << 40, Length: total, Key: 7}}.space(), Memory{{Addr: 1<<40 + 1, Length: total, Key: 7}}.space(),
			}}
			wire := must(rb.MarshalBinary())(t)
			var came RemoteBuffer
			if err := came.UnmarshalBinary(wire); err != nil {
				t.Fatal(err)
			}
			if came.Size() != total {
				t.Fatalf("%d bytes", came.Size())
			}
			var x Lowering
			mine := Side{Layout: must(Contiguous(0, total))(t), Memory: []Memory{{{Length: total, Key: 3}}}}
			x.init(ibvfd.OpWrite, []window{mine.window(total)}, []window{{root: came.layout.root, mem: came.spaces, length: total}}, total,
				Limits{MaxSGE: 1, MaxMsg: total})
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
				// The cursor is as far as it has walked; one block is looked ahead to.
				walked := total - x.remote.c.left
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

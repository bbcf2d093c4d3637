// SPDX-License-Identifier: Apache-2.0

package gpurdma

import "testing"

// What an operation costs beside the NIC, which here is a copy in memory.
func BenchmarkWrite(b *testing.B) {
	w := inMemory(b).world(b, EndpointOptions{Depth: 64})
	mine, theirs := hostKind.make(b, w.a.nic, 64), hostKind.make(b, w.b.nic, 64)
	to := w.share(theirs.All(), allAccess).All()
	from := mine.All()
	done := make([]Completion, 64)
	b.ReportAllocs()
	for b.Loop() {
		for range len(done) {
			if err := w.a.Write(from, w.ab, to, nil); err != nil {
				b.Fatal(err)
			}
		}
		for n := 0; n < len(done); {
			k, err := w.a.Poll(done)
			if err != nil {
				b.Fatal(err)
			}
			n += k
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(done)), "ns/write")
}

// The wire length of a block table: 10,000 blocks of 16 KiB, of 20,000.
func TestBlockTableOnTheWire(t *testing.T) {
	r := seeded(t)
	var table []Extent
	for _, i := range r.Perm(20000)[:10000] {
		table = append(table, Extent{Off: int64(i) * benchBlock, Len: benchBlock})
	}
	wire := must(must(SG(table...))(t).MarshalBinary())(t)
	if len(wire) > 5*len(table)+16 {
		t.Errorf("%d bytes for %d blocks", len(wire), len(table))
	}
}

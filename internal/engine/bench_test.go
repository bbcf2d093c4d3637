// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/gpurdma/gpurdma/internal/operation"
)

// BenchmarkWrite measures the cost of a write in this package. The fake NIC only copies
// memory.
func BenchmarkWrite(b *testing.B) {
	w := inMemory(b).world(b, EndpointOptions{Depth: 64})
	mine, theirs := hostKind.make(b, w.a.nic, 64), hostKind.make(b, w.b.nic, 64)
	to := w.share(theirs.All(), allAccess).All()
	from := mine.All()
	done := make([]operation.Completion, 64)
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

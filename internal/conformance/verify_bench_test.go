// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// BenchmarkVerify compares the processor time of both sides for a write with a notification, which is
// taken, with the same with VerifySampled and VerifyAll. They take turns, each on a connection of its
// own; %more is the median of the rounds.
func BenchmarkVerify(b *testing.B) {
	for _, size := range []int64{64, 64 << 10, 1 << 20, 16 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := &setting{nics: []string{"mem0"}, listen: "127.0.0.1:0"}
			s.net = fabrictest.NewNetwork(fabrictest.Options{})
			s.open = s.net.Open
			names := []string{"none", "sampled", "all"}
			var writes []func()
			for i, mode := range []int{gpurdma.VerifyNone, gpurdma.VerifySampled, gpurdma.VerifyAll} {
				s.listen = fmt.Sprintf("127.0.0.1:%d", i+1)
				p := s.pairWith(b, gpurdma.Config{Verify: mode}, gpurdma.Config{})
				mine, _, remote := p.both(size)
				fill(b, testenv.Seeded(b), mine)
				writes = append(writes, func() {
					ok(b, p.client.Write(b.Context(), remote, mine.All(), gpurdma.Notify(nil)))
					must(p.server.ReceiveNotification(b.Context()))(b)
				})
			}
			var times [3]time.Duration
			var ratios [3][]float64 // to VerifyNone, of each round
			batch := int(max(1, min(16<<20/size, 5000)))
			for b.Loop() {
				var round [3]time.Duration
				for _, i := range rand.Perm(len(writes)) {
					began := processorTime()
					for range batch {
						writes[i]()
					}
					round[i] = processorTime() - began
				}
				for i, took := range round {
					times[i] += took
					ratios[i] = append(ratios[i], float64(took)/float64(round[0]))
				}
			}
			for i, took := range times {
				b.ReportMetric(float64(took.Nanoseconds())/float64(b.N*batch), "ns/"+names[i])
				if i > 0 {
					slices.Sort(ratios[i])
					b.ReportMetric(100*(ratios[i][len(ratios[i])/2]-1), "%more/"+names[i])
				}
			}
		})
	}
}

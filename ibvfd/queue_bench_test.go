// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

import (
	"fmt"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd/internal/verbsstub"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// The cost of the binding, through a provider that returns at once: "C" is the
// loop of a C program, which fills work requests, posts them, polls and looks at
// the completions; "Go" is the same loop; "binding" is what of it is this
// package's, PostSend and Poll of work requests that are filled already.
func BenchmarkPostAndPoll(b *testing.B) {
	for _, batch := range []int{1, 16, 64, 512} {
		for _, part := range []string{"Go", "binding"} {
			b.Run(fmt.Sprintf("batch=%d/%s", batch, part), func(b *testing.B) {
				round := goLoop(b, batch, part == "Go")
				b.ReportAllocs()
				cpu := testenv.CPUTime(b)
				for b.Loop() {
					round()
				}
				cpu(b.N*batch, "cpu-ns/WR")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/WR")
			})
		}
		b.Run(fmt.Sprintf("batch=%d/C", batch), func(b *testing.B) {
			cpu := testenv.CPUTime(b)
			if good := verbsstub.CLoop(b.N, batch); good != uint64(b.N*batch) {
				b.Fatalf("%d of %d completions", good, b.N*batch)
			}
			cpu(b.N*batch, "cpu-ns/WR")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/WR")
		})
	}
}

// goLoop makes the scripted queues; its result posts and polls a batch, and
// fills it before and looks at it after if it is the whole loop.
func goLoop(b *testing.B, batch int, whole bool) func() {
	b.Helper()
	c, err := open(newScript(), "roce0", deviceTree(b), idle{})
	if err != nil {
		b.Fatal(err)
	}
	pd, err := c.AllocPD()
	if err != nil {
		b.Fatal(err)
	}
	cq, err := c.CreateCQ(batch)
	if err != nil {
		b.Fatal(err)
	}
	qp, err := pd.CreateQP(QPAttr{Type: RC, SendCQ: cq, RecvCQ: cq})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		for _, x := range []interface{ Close() error }{qp, cq, pd, c} {
			if err := x.Close(); err != nil {
				b.Error(err)
			}
		}
	})
	wrs, sges, wc := make([]SendWR, batch), make([]SGE, batch), make([]WC, batch)
	fill := func(round uint64) {
		for i := range wrs {
			sges[i] = SGE{Addr: round + uint64(i), Length: 64, LKey: 3}
			wrs[i] = SendWR{ID: uint64(i), Op: OpWrite, Flags: SendSignaled, SGE: sges[i : i+1], RemoteAddr: round + uint64(i), RKey: 5}
		}
	}
	fill(0)
	round := uint64(0)
	return func() {
		if round++; whole {
			fill(round)
		}
		if n, err := qp.PostSend(wrs); n != batch || err != nil {
			b.Fatal(n, err)
		}
		for got := 0; got < batch; {
			n, err := cq.Poll(wc[got:])
			if err != nil {
				b.Fatal(err)
			}
			if whole {
				for i := range wc[got : got+n] {
					if wc[got+i].Status != WCSuccess {
						b.Fatal(wc[got+i])
					}
				}
			}
			got += n
		}
	}
}

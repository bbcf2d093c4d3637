// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/gpurdma/gpurdma/internal/layouttest"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestRandomOperations(t *testing.T) { testRandomOperations(t, inMemory(t), 2000) }

// Random operations of both sides, several at a time, checked against a model in plain memory.
func testRandomOperations(t *testing.T, s setting, steps int) {
	s.eachPair(t, func(t *testing.T, a, b kind) {
		r := testenv.Seeded(t)
		c := newContest(t, r, layouttest.Shape{Sources: 2, Room: 1000, Blocks: 60})
		c.strict = r.IntN(2) == 0
		order := memory.RelaxedOrdering
		if c.strict {
			order = memory.StrictOrdering
		}
		// Few SGEs and short queues make many work requests, some of which wait.
		w := s.world(t, EndpointOptions{MaxSGE: 1 + r.IntN(6), SendDepth: []int{3, 16, 128}[r.IntN(3)]})
		for i, k := range []kind{a, b} {
			e, to := w.a, w.ab
			if i == 1 {
				e, to = w.b, w.ba
			}
			c.side[i] = &side{e: e, peer: to}
			c.side[i].mine, c.side[i].bytes = buffersOf(t, r, e.nic, k, c.shape, order)
		}
		c.side[0].far = w.share(wholeOf(t, c.side[1].mine...), allAccess)
		w = &world{t: t, a: w.b, b: w.a, ab: w.ba, ba: w.ab}
		c.side[1].far = w.share(wholeOf(t, c.side[0].mine...), allAccess)
		for left := steps; left > 0; left -= 40 {
			c.run(min(left, 40), 1+r.IntN(16))
		}
		c.every(func() { c.run(8, 1+r.IntN(16)) })
		t.Logf("strict ordering %v, queues of %d, %d SGEs: %v", c.strict, w.a.opt.SendDepth, w.a.opt.MaxSGE, c.done)
	})
}

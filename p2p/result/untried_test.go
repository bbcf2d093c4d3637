// SPDX-License-Identifier: Apache-2.0

package result

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// chains are all chains whose library, attach, log and proof have these states. The links between
// them hold.
func chains(each func(chain.Chain)) {
	states := []chain.Answer{
		chain.Open("not read"), chain.Hold("it holds"), chain.Skip(""), chain.Break(chain.Staged, "it stages"), chain.Refuse(unix.EPERM, chain.StageAttach, "it refuses"),
	}
	var c chain.Chain
	for l := range c {
		c[l] = chain.Hold("it holds")
	}
	var fill func(links []chain.Link)
	fill = func(links []chain.Link) {
		if len(links) == 0 {
			each(c)
			return
		}
		for _, a := range states {
			c[links[0]] = a
			fill(links[1:])
		}
	}
	fill([]chain.Link{chain.Library, chain.Attach, chain.Log, chain.Proof})
}

func pairOf(c chain.Chain, prove bool) Pair {
	v := c.Conclude()
	if prove {
		v = c.ConcludeProven()
	}
	p := p2p.Pair{Verdict: v}
	p.Prediction.Outcome, p.Prediction.Errno = v.Predicted(), c[chain.Attach].Errno
	return PairOf(p)
}

// Without its proof a pair is what it would be if nothing had been tried. A log that contradicts a
// proof makes of the pair what the document does not say, and then it is unknown.
func TestUntried(t *testing.T) {
	n := 0
	chains(func(c chain.Chain) {
		bare := c
		bare[chain.Proof] = chain.Open("it was not tried")
		want := pairOf(bare, false)
		for _, prove := range []bool{false, true} {
			got := pairOf(c, prove)
			outcome, decides := got.Untried()
			n++
			if outcome != want.Outcome && !(want.Decides == "log" && outcome == "unknown") || decides != want.Decides {
				t.Fatalf("%v: %s by %q, want %s by %q", c, outcome, decides, want.Outcome, want.Decides)
			}
			if e := got.UntriedErrno(); outcome == "refused" && want.Decides == "attach" && (e == nil || e.Name != "EPERM") {
				t.Fatalf("%v: errno %v", c, e)
			}
		}
	})
	if n != 2*5*5*5*5 {
		t.Errorf("%d pairs", n)
	}
	// A pair of the first schema is what was predicted.
	if outcome, decides := (Pair{Outcome: "staged", Proof: &Proof{Outcome: "direct"}}).Untried(); outcome != "staged" || decides != "" {
		t.Error(outcome, decides)
	}
}

// Of finds a link by its name.
func TestOf(t *testing.T) {
	p := pairOf(chain.Chain{}, false)
	if l, ok := p.Of(chain.Fabric); !ok || l.Link != "fabric" || l.State != "unknown" {
		t.Errorf("%+v, %v", l, ok)
	}
	if l, ok := (Pair{}).Of(chain.Fabric); ok {
		t.Errorf("%+v", l)
	}
}

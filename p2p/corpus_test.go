// SPDX-License-Identifier: Apache-2.0

package p2p_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// confusion counts verdicts by the answer of the corpus, for one mark.
type confusion map[string]map[chain.Outcome]int

func (c confusion) add(answer string, o chain.Outcome) {
	if c[answer] == nil {
		c[answer] = map[chain.Outcome]int{}
	}
	c[answer][o]++
}

// answers are the rows, in the order in which they are printed.
var answers = []string{"direct", "staged", "refused", "lost", "not direct", "unknown"}

var outcomes = []chain.Outcome{chain.Direct, chain.Staged, chain.Refused, chain.Lost, chain.Broken, chain.OutcomeUnknown}

func (c confusion) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-12s", "answer")
	for _, o := range outcomes {
		fmt.Fprintf(&b, "%9v", o)
	}
	for _, a := range answers {
		if c[a] == nil {
			continue
		}
		fmt.Fprintf(&b, "\n%-12s", a)
		for _, o := range outcomes {
			fmt.Fprintf(&b, "%9d", c[a][o])
		}
	}
	return b.String()
}

// wrong reports a verdict that contradicts the answer. Unknown contradicts nothing.
func wrong(answer string, o chain.Outcome) bool {
	switch o {
	case chain.OutcomeUnknown:
		return false
	case chain.Broken:
		return answer == "direct"
	case chain.Direct:
		return answer != "direct"
	}
	return answer == "direct" || answer != "not direct" && answer != "unknown" && answer != o.String()
}

// The verdicts on every machine of the corpus against what was observed or documented of it:
// none is wrong, and few are unknown where what decides can be read. GPURDMA_CORPUS=1 prints
// the matrices, as `make corpus` does.
func TestCorpusVerdicts(t *testing.T) {
	marks := map[string]confusion{"observed": {}, "documented": {}, "constructed": {}}
	guests := map[string]confusion{"observed": {}, "documented": {}, "constructed": {}}
	for _, c := range testenv.Corpus(t) {
		m := machine.Open(c.Tree.Write(t))
		gpus, err1 := drivers.GPUs(m)
		nics, err2 := drivers.NICs(m)
		if len(c.Pairs) == 0 {
			if len(gpus) > 0 && len(nics) > 0 {
				t.Errorf("%s: %d GPUs and %d NICs, and no label", c.Name, len(gpus), len(nics))
			}
			continue
		}
		if err1 != nil || err2 != nil {
			t.Errorf("%s: %v, %v", c.Name, err1, err2)
		}
		for _, label := range c.Pairs {
			g := slices.IndexFunc(gpus, func(g drivers.GPU) bool { return g.Name == label.GPU })
			n := slices.IndexFunc(nics, func(n drivers.NIC) bool { return n.Name == label.NIC })
			if label.Answer == "" {
				continue
			}
			if g < 0 || n < 0 {
				t.Errorf("%s: %s -> %s is not found", c.Name, label.GPU, label.NIC)
				continue
			}
			p := p2p.Judge(m, gpus[g], nics[n])
			o := p.Verdict.Outcome()
			if wrong(label.Answer, o) {
				t.Errorf("%s: %s: %v; the answer is %s (%s): %s", c.Name, p.Name(), p.Verdict, label.Answer, label.Mark, label.Reason)
			}
			if label.Readable {
				marks[label.Mark].add(label.Answer, o)
			} else {
				guests[label.Mark].add(label.Answer, o)
			}
			if o == chain.OutcomeUnknown && label.Readable && label.Answer != "unknown" && os.Getenv("GPURDMA_CORPUS") != "" {
				t.Logf("%s: %s: %v; the answer is %s (%s)", c.Name, p.Name(), p.Verdict, label.Answer, label.Mark)
			}
		}
	}
	if n := marks["observed"]["direct"][chain.Direct] + marks["documented"]["direct"][chain.Direct]; n < 150 {
		t.Errorf("%d pairs are direct that were observed or documented to be, want 150", n)
	}
	for _, mark := range []string{"observed", "documented", "constructed"} {
		all, unknown := 0, 0
		for answer, row := range marks[mark] {
			for o, n := range row {
				all += n
				if o == chain.OutcomeUnknown && answer != "unknown" {
					unknown += n
				}
			}
		}
		if all == 0 || unknown*20 >= all {
			t.Errorf("%s: %d of %d pairs are unknown, of which what decides can be read", mark, unknown, all)
		}
		if os.Getenv("GPURDMA_CORPUS") != "" {
			t.Logf("%s, where what decides can be read: %d of %d unknown\n%v", mark, unknown, all, marks[mark])
			if len(guests[mark]) > 0 {
				t.Logf("%s, where it cannot\n%v", mark, guests[mark])
			}
		}
	}
}

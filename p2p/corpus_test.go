// SPDX-License-Identifier: Apache-2.0

package p2p_test

import (
	"fmt"
	"os"
	"regexp"
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

var outcomes = []chain.Outcome{chain.Direct, chain.Staged, chain.Refused, chain.Lost, chain.Broken, chain.OutcomeUnknown}

func (c confusion) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-12s", "answer")
	for _, o := range outcomes {
		fmt.Fprintf(&b, "%9v", o)
	}
	for _, a := range testenv.CorpusAnswers {
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

// figures are what the corpus comes to: of each mark the verdicts where what decides can be read,
// and where it cannot.
type figures struct {
	machines, withPairs, direct int
	readable, unreadable        map[string]confusion
}

func newFigures() *figures {
	of := func() map[string]confusion {
		return map[string]confusion{"observed": {}, "documented": {}, "constructed": {}}
	}
	return &figures{readable: of(), unreadable: of()}
}

// unknown counts the pairs of a mark, and those of them that are unknown though what decides can
// be read.
func (f *figures) unknown(mark string) (unknown, all int) {
	for answer, row := range f.readable[mark] {
		for o, n := range row {
			all += n
			if o == chain.OutcomeUnknown && answer != "unknown" {
				unknown += n
			}
		}
	}
	return unknown, all
}

// add judges the pairs of one machine. It reports the verdicts that are wrong.
func (f *figures) add(t *testing.T, c testenv.CorpusMachine) {
	t.Helper()
	f.machines++
	m := machine.Open(c.Tree.Write(t))
	gpus, err1 := drivers.GPUs(m)
	nics, err2 := drivers.NICs(m)
	if len(c.Pairs) == 0 {
		if len(gpus) > 0 && len(nics) > 0 {
			t.Errorf("%s: %d GPUs and %d NICs, and no label", c.Name, len(gpus), len(nics))
		}
		return
	}
	if err1 != nil || err2 != nil {
		t.Errorf("%s: %v, %v", c.Name, err1, err2)
	}
	f.withPairs++
	direct := false
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
		direct = direct || o == chain.Direct && label.Answer == "direct" && label.Mark != "constructed"
		if !label.Readable {
			f.unreadable[label.Mark].add(label.Answer, o)
			continue
		}
		f.readable[label.Mark].add(label.Answer, o)
		if o == chain.OutcomeUnknown && label.Answer != "unknown" && os.Getenv(printCorpus) != "" {
			t.Logf("%s: %s: %v; the answer is %s (%s)", c.Name, p.Name(), p.Verdict, label.Answer, label.Mark)
		}
	}
	if direct {
		f.direct++
	}
}

// String is the block that docs/reference/p2p-decisions.md has.
func (f *figures) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d machines, of which %d have a pair; on %d a pair is direct that is observed or documented as direct\n", f.machines, f.withPairs, f.direct)
	for _, mark := range testenv.CorpusMarks {
		unknown, all := f.unknown(mark)
		fmt.Fprintf(&b, "\n%s, the files that decide can be read: %d of %d pairs unknown\n%v\n", mark, unknown, all, f.readable[mark])
		if len(f.unreadable[mark]) > 0 {
			fmt.Fprintf(&b, "\n%s, a file that decides cannot be read\n%v\n", mark, f.unreadable[mark])
		}
	}
	return b.String()
}

// printCorpus is the variable with which `make corpus` asks for the figures.
const printCorpus = "GPURDMA_CORPUS"

// corpusBlock is the figures in docs/reference/p2p-decisions.md.
var corpusBlock = regexp.MustCompile("(?s)<!-- make corpus -->\n```\n(.*?)```\n")

// The verdicts on every machine of the corpus against what was observed or documented of it:
// none is wrong, and few are unknown where what decides can be read. GPURDMA_CORPUS=1 prints
// the matrices, as `make corpus` does; GPURDMA_CORPUS=write puts them into the document.
func TestCorpusVerdicts(t *testing.T) {
	f := newFigures()
	for _, c := range testenv.Corpus(t) {
		f.add(t, c)
	}
	if n := f.readable["observed"]["direct"][chain.Direct] + f.readable["documented"]["direct"][chain.Direct]; n < 150 {
		t.Errorf("%d pairs are direct that were observed or documented to be, want 150", n)
	}
	if f.direct < 20 {
		t.Errorf("%d machines have such a pair, want 20", f.direct)
	}
	for _, mark := range testenv.CorpusMarks {
		if unknown, all := f.unknown(mark); all == 0 || unknown*20 >= all {
			t.Errorf("%s: %d of %d pairs are unknown, of which what decides can be read", mark, unknown, all)
		}
	}
	if os.Getenv(printCorpus) != "" {
		t.Logf("\n%v", f)
	}
	text, err := os.ReadFile(decisions)
	if err != nil {
		t.Fatal(err)
	}
	block := corpusBlock.FindSubmatchIndex(text)
	if block == nil {
		t.Fatalf("%s has no block of figures behind “<!-- make corpus -->”", decisions)
	}
	if string(text[block[2]:block[3]]) == f.String() {
		return
	}
	if os.Getenv(printCorpus) != "write" {
		t.Errorf("%s has other figures than the corpus now. `make corpus CORPUS=write` puts these there:\n%v", decisions, f)
		return
	}
	if err := os.WriteFile(decisions, slices.Concat(text[:block[2]], []byte(f.String()), text[block[3]:]), 0o644); err != nil {
		t.Fatal(err)
	}
}

// decisions is the document that has the figures.
const decisions = "../docs/reference/p2p-decisions.md"

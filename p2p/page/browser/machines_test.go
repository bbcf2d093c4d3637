// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/checks"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/fleet"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/page"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/p2p/topo"
)

// look has the run and the tree of a machine.
type look struct {
	run  result.Run
	tree topo.Topology
}

// corpus is a machine of p2p/testdata/machines.
func corpus(t *testing.T, name string) look {
	t.Helper()
	all := testenv.Corpus(t)
	i := slices.IndexFunc(all, func(m testenv.CorpusMachine) bool { return m.Name == name })
	if i < 0 {
		t.Fatalf("no machine %q in the corpus", name)
	}
	return at(t, all[i].Tree)
}

// at looks at a machine.
func at(t *testing.T, tree testenv.Tree) look {
	t.Helper()
	m := machine.Open(tree.Write(t))
	gpus, err1 := drivers.GPUs(m)
	nics, err2 := drivers.NICs(m)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	var pairs []p2p.Pair
	for _, g := range gpus {
		for _, n := range nics {
			pairs = append(pairs, p2p.Judge(m, g, n))
		}
	}
	p2p.Combine(m, pairs)
	out := look{run: result.New(m, gpus, nics, pairs)}
	out.run.AddFindings(checks.Run(m, check.Subject{GPUs: gpus, NICs: nics, Pairs: pairs, Skip: []string{"LIB", "LIM", "CTR"}}))
	var errs []error
	out.tree, errs = topo.Read(m, gpus, nics, true)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if err := out.tree.Name([]string{"testdata/pci.ids"}); err != nil {
		t.Fatal(err)
	}
	return out
}

// gathering is a fleet that grows.
type gathering struct {
	merge fleet.Merge
	seen  *page.Fleet
	added int
	pairs map[*result.Pair]int // nodes, by their first pair: runs with the same pairs are looked at once
}

func gather() *gathering { return &gathering{seen: page.NewFleet(), pairs: map[*result.Pair]int{}} }

// add adds nodes with this run. Their names begin with prefix.
func (g *gathering) add(prefix string, n int, run result.Run) {
	first, known := -1, false
	if len(run.Pairs) > 0 && run.Baseline == "" {
		if first, known = g.pairs[&run.Pairs[0]]; !known {
			g.pairs[&run.Pairs[0]] = g.added
		}
	}
	for i := range n {
		g.merge.Add(fmt.Sprintf("%s%05d", prefix, i), run)
		if known {
			g.seen.Observe(g.added, nil, first)
		} else {
			first, known = g.added, true
			g.seen.Observe(g.added, &run, g.added)
		}
		g.added++
	}
}

func (g *gathering) page() *page.Page { return g.seen.Page(g.merge.Report()) }

// html is a page as text.
func html(t *testing.T, p *page.Page) string {
	t.Helper()
	var b strings.Builder
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// plural is a count as the pages write it.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

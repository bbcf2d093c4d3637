// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/looktest"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/fleet"
	"github.com/gpurdma/gpurdma/p2p/page"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// corpus is a machine of p2p/testdata/machines, with names of its PCI devices, and without the checks of the process.
func corpus(t *testing.T, name string) looktest.Look {
	t.Helper()
	return at(t, testenv.CorpusNamed(t, name).Tree)
}

func at(t *testing.T, tree testenv.Tree) looktest.Look {
	t.Helper()
	l := looktest.At(t, tree, "LIB", "LIM", "CTR")
	if err := l.Tree.Name([]string{"testdata/pci.ids"}); err != nil {
		t.Fatal(err)
	}
	return l
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

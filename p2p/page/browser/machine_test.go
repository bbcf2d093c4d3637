// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"slices"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/gpurdma/gpurdma/p2p/page"
	"github.com/gpurdma/gpurdma/p2p/page/browser/tab"
	"github.com/gpurdma/gpurdma/p2p/topo"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// hops are the functions that the tree marks, in their order on the way.
const hops = `[...document.querySelectorAll('.fn.on')].map((e) => [Number(e.querySelector('.hop').textContent), e.querySelector('.what .mono').textContent]).sort((a, b) => a[0] - b[0]).map((h) => h[1])`

// wayOf is the way between two functions of a tree, by its own means.
func wayOf(tree topo.Topology, from, to pciaddr.Addr) []string {
	line := func(a pciaddr.Addr) []pciaddr.Addr {
		for _, f := range tree.Functions {
			if f.PCI == a {
				return append([]pciaddr.Addr{a}, f.Above...)
			}
		}
		return nil
	}
	up, down := line(from), line(to)
	var out []string
	for _, a := range up {
		out = append(out, a.String())
		if i := slices.Index(down, a); i >= 0 {
			down = down[:i]
			break
		}
	}
	for _, a := range slices.Backward(down) {
		out = append(out, a.String())
	}
	return out
}

// The page of a machine draws the way of each pair, and says what each link rests on.
func TestMachine(t *testing.T) {
	for _, name := range []string{"hgx-6.14-translating-no-acs", "wrong-socket", "case-07-gb300-data-direct", "rccl-mi250-16p1h"} {
		t.Run(name, func(t *testing.T) {
			l := corpus(t, name)
			b := tab.Open(t, html(t, page.Machine("machine0", l.Run, l.Tree)))
			b.Has("header", l.Run.Headline(), l.Run.Machine.Kernel)
			nics := map[string]pciaddr.Addr{}
			for _, n := range l.Run.NICs {
				nics[n.Name] = *n.PCI
			}
			for i, p := range l.Run.Pairs {
				if i%5 != 0 { // of all GPUs and all NICs
					continue
				}
				b.Click(".matrix .cell[aria-label^='" + p.GPU + " to " + p.NIC + ":']")
				b.Has(".detail", p.GPU+" to "+p.NIC)
				for _, link := range p.Links {
					b.Has(".detail .chain", append([]string{link.Link}, link.Why...)...)
				}
				gpu, err := pciaddr.Parse(p.GPU)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := tab.Eval[[]string](b, hops), wayOf(l.Tree, gpu, nics[p.NIC]); !slices.Equal(got, want) {
					t.Errorf("%s to %s: %q, want %q", p.GPU, p.NIC, got, want)
				}
				if got := tab.Eval[[]string](b, "[...document.querySelectorAll('.way li:not(.root) .mono')].map((e) => e.textContent)"); !slices.Equal(got, wayOf(l.Tree, gpu, nics[p.NIC])) {
					t.Errorf("%s to %s: %q", p.GPU, p.NIC, got)
				}
			}
		})
	}
}

// The filters of a machine make the other pairs pale, and leave out findings.
func TestMachineFilters(t *testing.T) {
	l := corpus(t, "hgx-6.14-translating-no-acs")
	b := tab.Open(t, html(t, page.Machine("machine0", l.Run, l.Tree)))
	lit := func(want int) {
		t.Helper()
		b.Settle()
		if n := b.Count(".matrix .cell:not(.dim)"); n != want {
			t.Errorf("%d pairs, want %d", n, want)
		}
	}
	s := l.Run.Summary
	if s.Direct == 0 || s.Lost == 0 {
		t.Fatal(s)
	}
	lit(s.Total())
	b.Choose("#f-outcome", "lost")
	lit(s.Lost)
	b.Has("#count", "56 of 64 pairs")
	b.Choose("#f-outcome", "")
	b.Click("#f-device")
	b.Press("mlx5_0")
	lit(len(l.Run.GPUs))
	tab.Eval[bool](b, "(() => { const e = document.querySelector('#f-device'); e.value = ''; e.dispatchEvent(new Event('input')); return true; })()")
	card := tab.Eval[int](b, "[...document.querySelectorAll('.card')].findIndex((c) => c.textContent.includes('(LOST)')) + 1")
	b.Click(fmt.Sprintf(".card:nth-child(%d) .filter", card))
	n := b.Count(".matrix .cell:not(.dim)")
	if n == 0 || n == s.Total() {
		t.Errorf("a card leaves %d pairs", n)
	}
	b.Click(fmt.Sprintf(".card:nth-child(%d) .filter", card))
	lit(s.Total())
	findings := func(result string) (n int) {
		for _, f := range l.Run.Checks {
			if f.Result == result {
				n++
			}
		}
		return n
	}
	for _, result := range []string{"fail", "pass"} {
		b.Choose("#f-check", result)
		got := tab.Eval[string](b, "document.querySelector('.checks').previousElementSibling.textContent")
		if want := plural(findings(result), "finding"); got != want {
			t.Errorf("%s: %s, want %s", result, got, want)
		}
	}
	b.Choose("#f-check", "")
	b.Click("#f-text")
	b.Press("krn-version")
	b.Settle()
	b.Has(".checks", "KRN-VERSION")
	if n := b.Count(".checks > li"); n != 1 {
		t.Errorf("%d findings", n)
	}
	b.Click(".checks summary")
	b.Has(".checks details[open]", "Read:", l.Run.Machine.Kernel)
}

// The matrix is one stop of Tab, with arrow keys inside.
func TestMachineKeyboard(t *testing.T) {
	l := corpus(t, "hgx-6.14-translating-no-acs")
	b := tab.Open(t, html(t, page.Machine("machine0", l.Run, l.Tree)))
	tab.Eval[bool](b, "(() => { document.querySelector('.matrix .cell[tabindex=\"0\"]').focus(); return true; })()")
	at := func() string { return tab.Eval[string](b, "document.activeElement.getAttribute('aria-label')") }
	first := at()
	b.Press(kb.ArrowDown, kb.ArrowRight)
	moved := at()
	if first == moved {
		t.Error("arrow keys move nothing")
	}
	b.Press(kb.Enter)
	b.Has(".detail h3", moved[:len("0000:00:00.0")])
	if n := b.Count(".matrix .cell[tabindex='0']"); n != 1 {
		t.Errorf("%d stops of Tab", n)
	}
	if n := b.Count(".matrix .cell[aria-pressed='true']"); n != 1 {
		t.Errorf("%d chosen pairs", n)
	}
	b.Press(kb.ArrowUp, kb.ArrowUp, kb.ArrowUp, kb.ArrowLeft)
	if back := at(); back == moved {
		t.Error("arrow keys do not move back")
	}
}

// A machine without a pair says so.
func TestMachineWithoutPairs(t *testing.T) {
	l := corpus(t, "h100-guest")
	b := tab.Open(t, html(t, page.Machine("machine0", l.Run, l.Tree)))
	b.Has("main", "no pair to check", "has no pair of a GPU with memory of its own and an RDMA device", "PCI tree")
}

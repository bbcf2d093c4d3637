// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/gpurdma/gpurdma/p2p/page"
	"github.com/gpurdma/gpurdma/p2p/page/browser/tab"
)

// translating has nodes of several kinds. The IOMMU of two of them translates, and their evidence differs.
func translating(t *testing.T) *page.Page {
	g := gather()
	g.add("good", 4, good(t, "dgx-h100"))
	for i, name := range []string{"hgx-remap-off", "hgx-6.14-translating-no-acs", "mi300x-debian-6.12", "geforce-4090", "hgx-kernel-5.10", "wrong-socket"} {
		g.add(fmt.Sprint("kind", i, "-"), 1, corpus(t, name).Run)
	}
	return g.page()
}

// A change stands on one card, with all nodes that need it, however different their evidence is.
func TestEachChangeOnce(t *testing.T) {
	b := tab.Open(t, html(t, translating(t)))
	tab.Eval[bool](b, "(() => { for (let e; (e = document.querySelector('section > .more')); ) e.click(); return true; })()")
	cards := tab.Eval[[]string](b, "[...document.querySelectorAll('.card')].filter((c) => [...c.querySelectorAll('pre')].some((e) => e.textContent === 'iommu=pt')).map((c) => c.innerText)")
	if len(cards) != 1 {
		t.Fatalf("iommu=pt is on %d cards: %q", len(cards), cards)
	}
	for _, want := range []string{"kind0-00000, kind1-00000", "on the kernel's command line", "ISO-IOMMU-MODE", "LOST", "GPU-EXPORTER-OPS"} {
		if !strings.Contains(cards[0], want) {
			t.Errorf("no %q: %s", want, cards[0])
		}
	}
	titles := tab.Eval[[]string](b, "[...document.querySelectorAll('#f-cause option')].map((e) => e.textContent)")
	seen := map[string]bool{}
	for _, title := range titles {
		if seen[title] {
			t.Errorf("two choices are %q", title)
		}
		seen[title] = true
	}
}

// Paper has all changes, within its borders.
func TestPrintChanges(t *testing.T) {
	b := tab.Open(t, html(t, translating(t)))
	all := tab.Eval[int](b, "D.groups.length")
	shown := b.Count(".card")
	if shown >= all {
		t.Fatalf("%d cards of %d on the screen", shown, all)
	}
	b.Run(tab.Media["print"])
	b.Settle()
	if n := b.Count(".card"); n != all {
		t.Errorf("%d cards of %d on paper", n, all)
	}
	if n := tab.Eval[int](b, "[...document.querySelectorAll('section > .more')].filter((e) => e.getClientRects().length > 0).length"); n != 0 {
		t.Errorf("%d buttons for more are printed", n)
	}
	if n := tab.Eval[int](b, "[...document.querySelectorAll('.card, .grow')].filter((e) => e.getBoundingClientRect().right > document.documentElement.clientWidth - 1).length"); n != 0 {
		t.Errorf("%d boxes reach the paper's border", n)
	}
	if n := tab.Eval[int](b, "[...document.querySelectorAll('.grow.head')].filter((e) => getComputedStyle(e).breakAfter !== 'avoid').length"); n != 0 {
		t.Errorf("%d heads can stand alone at the foot of a page", n)
	}
	b.Run(tab.Media["light"])
	b.Settle()
	if n := b.Count(".card"); n != shown {
		t.Errorf("%d cards on the screen again, and %d before", n, shown)
	}
}

// The details are of a node that the filters leave.
func TestDetailsFollowFilters(t *testing.T) {
	b := tab.Open(t, html(t, translating(t)))
	title := func() string {
		return tab.Eval[string](b, "(document.querySelector('.panel h2') || {}).innerText || ''")
	}
	if got := title(); !strings.Contains(got, "kind0") {
		t.Fatal(got)
	}
	b.Click("#f-name")
	b.Press("kind1")
	b.Settle()
	if got := title(); !strings.Contains(got, "kind1") {
		t.Error(got)
	}
	b.Press("x")
	b.Settle()
	b.Has(".panel", "The filters leave no node")
	if got := title(); got != "" {
		t.Error(got)
	}
	b.Press(kb.Backspace)
	b.Settle()
	if got := title(); !strings.Contains(got, "kind1") {
		t.Error(got)
	}
}

// The details of a machine are of a pair that the filters leave.
func TestPairFollowsFilters(t *testing.T) {
	l := corpus(t, "hgx-6.14-translating-no-acs")
	b := tab.Open(t, html(t, page.Machine("node17.snapshot", l.Run, l.Tree)))
	b.Has("h1", "node17.snapshot")
	b.Has(".detail h3", "LOST")
	b.Choose("#f-outcome", "direct")
	b.Settle()
	b.Has(".detail h3", "direct")
	b.Click("#f-device")
	b.Press("nothing")
	b.Settle()
	b.Has(".detail", "The filters leave no pair")
	if n := b.Count(".detail h3, .fn.on, .matrix .cell[aria-pressed='true']"); n != 0 {
		t.Errorf("%d marks of a pair", n)
	}
}

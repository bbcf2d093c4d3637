// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/gpurdma/gpurdma/p2p/page/browser/tab"
)

// axe is the program that knows the rules of accessibility.
func axe(t *testing.T) string {
	t.Helper()
	name := os.Getenv("GPURDMA_AXE")
	text, err := os.ReadFile(name)
	if err != nil {
		tab.Absent(t, "no axe-core: "+err.Error())
	}
	return string(text)
}

// violation is a rule that a page breaks.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct {
		HTML           string
		FailureSummary string
	}
}

// violations lets axe look at a page, with all its rules but those of experiments.
const violations = `axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations.map((v) => ({ID: v.id, Impact: v.impact, Help: v.help, Nodes: v.nodes.slice(0, 3).map((n) => ({HTML: n.html, FailureSummary: n.failureSummary}))})))`

// axe-core finds nothing serious or critical: with light and dark colours, and as it is printed.
func TestAccessible(t *testing.T) {
	script := axe(t)
	for name, text := range all(t) {
		t.Run(name, func(t *testing.T) {
			for _, how := range []string{"light", "dark", "print"} {
				b := tab.Open(t, text, tab.Media[how])
				b.Run(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
					_, err := chromedp.Evaluate[any](script+"; 1")(ctx, target)
					return err
				}))
				for _, v := range tab.Eval[[]violation](b, violations) {
					for _, n := range v.Nodes {
						text := fmt.Sprintf("%s: %s (%s): %s: %s %s", how, v.ID, v.Impact, v.Help, n.HTML, n.FailureSummary)
						if v.Impact == "serious" || v.Impact == "critical" {
							t.Error(text)
						} else {
							t.Log(text)
						}
					}
				}
			}
		})
	}
}

// axe finds what is wrong: a page without it would pass as well.
func TestAxeFindsMistakes(t *testing.T) {
	script := axe(t)
	b := tab.Open(t, html(t, fleets["all-good"](t)))
	tab.Eval[bool](b, "(() => { document.querySelector('#f-name').previousSibling.remove(); document.querySelector('h1').style.color = '#eeeeee'; return true; })()")
	tab.Eval[any](b, script+"; 1")
	found := map[string]bool{}
	for _, v := range tab.Eval[[]violation](b, violations) {
		found[v.ID] = v.Impact == "serious" || v.Impact == "critical"
	}
	if !found["label"] || !found["color-contrast"] {
		t.Errorf("%v", found)
	}
}

// A printed page has all rows, and no row over another.
func TestPrint(t *testing.T) {
	g := gather()
	good := good(t, "dgx-h100")
	for i := range 120 {
		g.add(fmt.Sprintf("node%d-", i), 1, named(good, fmt.Sprintf("6.14.%d", i)))
	}
	b := tab.Open(t, html(t, g.page()))
	if n := b.Count(".grow[data-at]"); n >= 120 || n < 10 {
		t.Errorf("%d rows on the screen", n)
	}
	b.Run(tab.Media["print"])
	b.Settle()
	if n := b.Count(".grow[data-at]"); n != 120 {
		t.Errorf("%d rows on paper", n)
	}
	if n := tab.Eval[int](b, "(() => { let over = 0, end = -1; for (const e of document.querySelectorAll('.grow')) { const r = e.getBoundingClientRect(); if (r.top < end - 1) over++; end = r.bottom; } return over; })()"); n != 0 {
		t.Errorf("%d rows lie over others", n)
	}
	if tab.Eval[bool](b, "document.querySelector('.panel').getBoundingClientRect().top < [...document.querySelectorAll('.grow')].pop().getBoundingClientRect().bottom - 1") {
		t.Error("the last rows lie over what follows them")
	}
	if tab.Eval[bool](b, "document.querySelector('.bar').getClientRects().length > 0") {
		t.Error("the filters are printed")
	}
	b.Run(tab.Media["light"])
	b.Settle()
	if n := b.Count(".grow[data-at]"); n >= 120 || n < 10 {
		t.Errorf("%d rows on the screen again", n)
	}
	pdf := tab.Get(b, chromedp.PrintToPDF())
	if len(pdf) < 10_000 {
		t.Errorf("a PDF of %d bytes", len(pdf))
	}
}

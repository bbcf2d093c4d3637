// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/page/browser/tab"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// The page of a fleet with a few bad nodes says which they are, why, and what to change.
func TestFleet(t *testing.T) {
	b := tab.Open(t, html(t, fleets["few-bad"](t)))
	b.Has("header", "5 nodes fail", "380 nodes pass", "2 worse than in the earlier run", "compared with gpu-a00000")
	b.Has(".cards", "REFUSED with EPROTONOSUPPORT", "gpu-b00000, gpu-b00001, gpu-b00002", "Run a newer kernel", "gpu-c00000, gpu-c00001", "iommu=pt", "a device can reach all memory of the host")
	b.Has("#count", "385 nodes in 3 rows")
	b.Has(".grow[data-at='1']", "FAIL", "gpu-c00000", "+ 1 alike", "0/64 direct", "▼ 185 worse")
	b.Has(".grow[data-at='3']", "PASS", "gpu-a00000", "+ 379 alike", "64/64 direct")
	if n := b.Count(".grow[data-at='1'] .cell.o-lost"); n != 64 {
		t.Errorf("%d lost cells", n)
	}
	// The worst row and its worst pair are chosen.
	b.Has(".panel", "gpu-c00000, gpu-c00001", "Since the earlier run (/etc/p2pcheck.baseline.json): 185 worse", "LOST", "BREAKS", "decides", "/iommu_group/type")
	// Another row, and another pair of it.
	b.Click(".grow[data-at='2'] .cell[data-place='9']")
	b.Has(".panel", "gpu-b00000", "REFUSED with EPROTONOSUPPORT by uverbs", "0000:43:00.0 to mlx5_3")
	if got := tab.Eval[string](b, "document.querySelector('.panel .matrix .cell[aria-pressed=true]').getAttribute('aria-label')"); !strings.HasPrefix(got, "0000:43:00.0 to mlx5_3: REFUSED") {
		t.Error(got)
	}
	b.Click(".grow[data-at='3'] .g-name")
	b.Has(".panel", "PASS", "64 of 64 direct", "Every link from library to fabric holds")
}

// Each filter leaves the nodes that it names, and all together those that all of them name.
func TestFilters(t *testing.T) {
	b := tab.Open(t, html(t, fleets["few-bad"](t)))
	shows := func(words, first string) {
		t.Helper()
		b.Settle()
		b.Has("#count", words)
		b.Has("#live", words)
		if first == "" {
			if n := b.Count(".grow[data-at]"); n != 0 {
				t.Errorf("%d rows", n)
			}
			return
		}
		b.Has(".grow[data-at='1']", first)
	}
	b.Choose("#f-result", "fail")
	shows("5 of 385 nodes in 2 rows", "gpu-c00000")
	b.Choose("#f-outcome", "refused")
	shows("3 of 385 nodes in 1 row", "gpu-b00000")
	b.Choose("#f-result", "pass")
	shows("0 of 385 nodes in 0 rows", "")
	b.Click(".bar button")
	shows("385 nodes in 3 rows", "gpu-c00000")
	b.Choose("#f-drift", "worse")
	shows("2 of 385 nodes in 1 row", "gpu-c00000")
	b.Choose("#f-drift", "")
	// A card, and the same card again.
	b.Click(".card:nth-child(1) .filter")
	shows("3 of 385 nodes in 1 row", "gpu-b00000")
	if b.Text("#f-cause option:checked") == "any" || b.Count(".card .filter[aria-pressed='true']") != 1 {
		t.Error("the list of causes has another choice than the cards")
	}
	b.Click(".card:nth-child(1) .filter")
	shows("385 nodes in 3 rows", "gpu-c00000")
	// A name: of alike nodes those that have it remain.
	b.Click("#f-name")
	b.Press("A0037")
	shows("10 of 385 nodes in 1 row", "gpu-a00370")
	b.Press("9")
	shows("1 of 385 nodes in 1 row", "gpu-a00379")
	b.Press("x")
	shows("0 of 385 nodes in 0 rows", "")
}

// All that a pointer does, a keyboard does.
func TestKeyboard(t *testing.T) {
	b := tab.Open(t, html(t, fleets["few-bad"](t)))
	active := func(want string) {
		t.Helper()
		got := tab.Eval[string](b, "(() => { const e = document.activeElement; return (e.dataset.at || (e.closest('[data-at]') || {dataset: {}}).dataset.at || e.tagName) + (e.dataset.place ? '/' + e.dataset.place : ''); })()")
		if got != want {
			t.Errorf("the focus is on %s, not on %s", got, want)
		}
	}
	// From the last filter one press of Tab leads into the table, and one out of it.
	tab.Eval[bool](b, "(() => { const all = document.querySelectorAll('.bar button'); all[all.length - 1].focus(); return true; })()")
	b.Press(kb.Tab)
	active("1")
	b.Press(kb.ArrowDown)
	active("2")
	b.Press(kb.ArrowRight, kb.ArrowRight)
	active("2/1")
	b.Press(kb.ArrowDown)
	active("3/1")
	b.Press(kb.ArrowLeft, kb.ArrowLeft)
	active("3")
	b.Press(kb.ArrowDown)
	active("3") // the last one
	b.Press(kb.Home)
	active("1")
	b.Press(kb.End)
	active("3")
	b.Press(kb.ArrowUp, kb.ArrowRight, kb.Enter)
	active("H2")
	b.Has(".panel", "gpu-b00000", "0000:1b:00.0 to mlx5_0")
	// The matrix of the chosen node: one stop of Tab, and arrow keys within.
	tab.Eval[bool](b, "(() => { document.querySelector('.panel .matrix .cell[tabindex=\"0\"]').focus(); return true; })()")
	b.Press(kb.ArrowDown, kb.ArrowRight, kb.ArrowRight, kb.Enter)
	b.Has(".panel article", "0000:43:00.0 to mlx5_4")
	if n := b.Count(".panel .matrix .cell[tabindex='0']"); n != 1 {
		t.Errorf("%d stops of Tab in the matrix", n)
	}
	if n := b.Count(".grid [tabindex='0']"); n != 1 {
		t.Errorf("%d stops of Tab in the table", n)
	}
}

// maxElements is how many elements a page of 10,000 nodes may have at any time.
const maxElements = 6_000

// A page of 10,000 nodes has the rows that are visible, and no others.
func TestTenThousandNodes(t *testing.T) {
	one, good := corpus(t, "hgx-remap-off").Run, good(t, "dgx-h100")
	one.Checks, good.Checks = one.Checks[:20], good.Checks[:20] // the report of 10,000 kinds of nodes takes long
	one.Tally, good.Tally = result.TallyOf(one.Checks), result.TallyOf(good.Checks)
	for name, add := range map[string]func(*gathering){
		"few rows": func(g *gathering) {
			g.add("good", 9_990, good)
			g.add("bad", 10, one)
		},
		"10,000 rows": func(g *gathering) {
			g.add("good", 20, good)
			for i := range 9_970 {
				g.add(fmt.Sprintf("good-%d-", i), 1, named(good, fmt.Sprintf("6.14.%d", i)))
			}
			g.add("bad", 10, one)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := gather()
			add(g)
			text := html(t, g.page())
			t.Logf("%d bytes", len(text))
			if len(text) > 16<<20 {
				t.Errorf("%d bytes", len(text))
			}
			b := tab.Open(t, text)
			elements := func() {
				t.Helper()
				if n := b.Count("*"); n > maxElements {
					t.Errorf("%d elements", n)
				}
			}
			elements()
			b.Settle()
			t.Logf("%d elements, drawn %v ms after the navigation began, and painted after %v ms", b.Count("*"), tab.Eval[float64](b, "Math.round(performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd)"),
				tab.Eval[float64](b, "Math.round(Math.max(0, ...performance.getEntriesByType('paint').map((p) => p.startTime)))"))
			b.Has("header", "GPUs and NICs of 10,000 nodes", "10 nodes fail", "9,990 nodes pass")
			b.Has(".grow[data-at='1']", "bad00000", "+ 9 alike")
			// To the end and back, by keys and by the wheel.
			tab.Eval[bool](b, "(() => { document.querySelector('.grid [data-at=\"1\"]').focus(); return true; })()")
			b.Press(kb.End)
			elements()
			if last := tab.Eval[string](b, "document.activeElement.innerText"); !strings.Contains(last, "good") {
				t.Errorf("the last row: %s", last)
			}
			tab.Eval[bool](b, "(() => { const g = document.querySelector('.grid'); g.scrollTop = g.scrollHeight / 2; return true; })()")
			b.Settle()
			elements()
			if name == "10,000 rows" {
				middle := tab.Eval[int](b, "Math.max(...[...document.querySelectorAll('.grow[data-at]')].map((e) => Number(e.dataset.at)).filter((n) => n < 9000))")
				if middle < 4_000 || middle > 6_000 {
					t.Errorf("in the middle is row %d", middle)
				}
			}
			b.Choose("#f-result", "fail")
			b.Settle()
			b.Has("#count", "10 of 10,000 nodes in 1 row")
		})
	}
}

// A node with more pairs than cells are useful has a cell for each GPU, and then none.
func TestManyPairs(t *testing.T) {
	g := gather()
	big := func(gpus, nics int) result.Run {
		run := result.Run{GPUs: []result.GPU{}, NICs: []result.NIC{}}
		for i := range gpus {
			for n := range nics {
				outcome := "direct"
				if i == 1 && n == nics-1 {
					outcome = "lost"
				}
				run.Pairs = append(run.Pairs, result.Pair{GPU: fmt.Sprint("g", i), NIC: fmt.Sprint("n", n), Outcome: outcome, Counts: true})
			}
		}
		run.Summary = result.Summary{Direct: gpus*nics - 1, Lost: 1}
		return run
	}
	g.add("wide", 1, big(4, 512))
	g.add("tall", 1, big(512, 4))
	b := tab.Open(t, html(t, g.page()))
	if n := b.Count("*"); n > maxElements {
		t.Errorf("%d elements", n)
	}
	got := tab.Eval[[]string](b, "[...document.querySelectorAll('.grow[data-at] .cell')].map((e) => e.getAttribute('aria-label'))")
	if len(got) != 4 || got[0] != "g0: 512 of 512 direct, the worst direct" || got[1] != "g1: 511 of 512 direct, the worst LOST" {
		t.Errorf("%q", got)
	}
	b.Has(".rows", "2047 of 2048 direct, 1 lost")
	b.Click(".grow[data-at] .cell:nth-child(2)")
	b.Has(".panel article", "g1 to n511", "LOST")
}

// A node whose pairs are direct and slow is told from one without such pairs before anyone chooses it, and one node
// has a verb of its own.
func TestSlowPairs(t *testing.T) {
	slow := testenv.Machines["small-hgx"]()
	slow.Functions = strings.ReplaceAll(slow.Functions, "acs=0x00", "acs=0x1d")
	g := gather()
	g.add("good", 1, at(t, testenv.Machines["small-hgx"]()).Run)
	g.add("slow", 1, at(t, slow).Run)
	b := tab.Open(t, html(t, g.page()))
	b.Has("header", "0 nodes fail", "1 node warns", "1 node passes")
	b.Has(".legend", "direct and slower than it could be")
	letters := func(row int) string {
		return tab.Eval[string](b, fmt.Sprintf("[...document.querySelectorAll('.grow[data-at=\"%d\"] .cell')].map((e) => e.textContent).join('')", row))
	}
	b.Has(".grow[data-at='1']", "slow")
	b.Has(".grow[data-at='2']", "good")
	if letters(1) != "^^^^" || letters(2) != "••••" {
		t.Errorf("%q, %q", letters(1), letters(2))
	}
	if got := tab.Eval[string](b, "document.querySelector('.grow[data-at=\"1\"] .cell').getAttribute('aria-label')"); got != "0000:13:00.0 to mlx5_0: direct PIX, slower than it could be" {
		t.Error(got)
	}
	// A check's title says what should be.
	b.Has(".cards", "P2P-ACS-LIST, expected: No port on the way redirects to the root")
	b.Has(".panel", "P2P-ACS-LIST, expected: No port on the way redirects to the root")
}

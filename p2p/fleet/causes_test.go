// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// together reports that the text names two causes together.
func together(x, y Cause) bool {
	x.Result, y.Result = "fail", "fail"
	return len(Report{Causes: []Cause{x, y}}.together()) == 1
}

func TestMendedWith(t *testing.T) {
	of := func(what, change, command string, nodes ...string) Cause {
		return Cause{What: what, Nodes: nodes, Remedy: &result.Fix{Change: change, Command: command}}
	}
	a := of("NV-MODTYPE: x", "install the open modules, or rely on nvidia-peermem", "", "n1", "n2")
	for _, c := range []struct {
		with Cause
		want bool
	}{
		{of("GPU-DRIVER: x", "install the open modules, or take MLNX_OFED", "", "n1", "n2"), true},
		{of("pairs: x", "another change: see NV-MODTYPE", "", "n1", "n2"), true},
		{of("GPU-DRIVER: x", "install the open modules", "", "n1"), true},
		{of("pairs: x", "another change: see NV-MODTYPE", "", "n1"), false},
		{of("GPU-DRIVER: x", "install the open modules", "apt install", "n1", "n2"), false},
		{of("KRN-KMSG: x", "see what the line says", "", "n1", "n2"), false},
		{Cause{What: "not all could be looked at", Nodes: []string{"n1", "n2"}}, false},
	} {
		if together(a, c.with) != c.want || together(c.with, a) != c.want {
			t.Errorf("%+v: not %v", c.with, c.want)
		}
	}
	// A reason behind a colon makes no other change of it, and what is before a colon is a change only if it stands alone.
	newer := of("KRN-VERSION: x", "run a newer kernel", "", "n1")
	why := of("pairs: x", "run a newer kernel: 5.12 can", "", "n2")
	if !together(newer, why) || together(of("NV-X: x", "nothing: one", "", "n1"), of("NV-Y: y", "nothing: two", "", "n1")) {
		t.Error("reasons of changes")
	}
	// A command that looks at a device is the same for others; one that changes it is not.
	look := func(device string) Cause {
		return of("P2P-NV-GATE: x", "prove it", "p2pcheck --live --gpu "+device, "n1")
	}
	set := func(device string) Cause { return of("ISO-RO: x", "turn it on", "setpci -s "+device, "n1") }
	if !together(look("a"), look("b")) || together(set("a"), set("b")) {
		t.Error("commands of devices")
	}
}

// The text names the pairs that the same change mends, and those of causes that it leaves out.
func TestCausesNamePairs(t *testing.T) {
	mend := &result.Fix{Change: "mend it"}
	of := func(n int) (scope []string) {
		for i := range n {
			scope = append(scope, fmt.Sprintf("g%d -> n", i))
		}
		return scope
	}
	for _, c := range []struct {
		nodes []string
		pairs []int // of causes
		want  string
	}{
		{[]string{"a"}, []int{1}, "  by this change, too: 1 pair that fails: g0 -> n\n"},
		{[]string{"a"}, []int{4}, "  by this change, too: 4 pairs that fail: g0 -> n, g1 -> n, g2 -> n, g3 -> n\n"},
		{[]string{"a", "b"}, []int{3, 4}, "  by this change, too: 7 pairs that fail: g0 -> n on a, g1 -> n on a, g2 -> n on a, g0 -> n on a and\n    3 more\n"},
	} {
		r := Report{Causes: []Cause{{Result: "fail", What: "ISO-X: x", Nodes: c.nodes, Remedy: mend}}}
		for _, n := range c.pairs {
			r.Causes = append(r.Causes, Cause{Result: "fail", What: "pairs: x", Nodes: c.nodes, Scope: of(n), Remedy: mend})
		}
		var b strings.Builder
		causesText(&b, render.Style{}, r.together(), "fail", map[result.Remedy]bool{})
		if !strings.HasSuffix(b.String(), "  change: mend it\n"+c.want) {
			t.Errorf("%v: %s", c.pairs, b.String())
		}
	}
	// A change stands once, with all its nodes, whatever is read on them.
	mend.Command = "iommu=pt"
	r := Report{Causes: []Cause{
		{Result: "fail", What: "ISO-X: x", Nodes: []string{"a", "b"}, Why: []string{"blocked in 7 pairs"}, Remedy: mend},
		{Result: "fail", What: "ISO-X: x", Nodes: []string{"c"}, Why: []string{"blocked in 3 pairs"}, Remedy: mend},
		{Result: "unknown", What: "NV-Y: y", Nodes: []string{"d"}, Remedy: &result.Fix{Change: "mend it; prove the pair", Command: "iommu=pt"}},
	}}
	var b strings.Builder
	for _, rank := range result.Ranks {
		causesText(&b, render.Style{}, r.together(), rank, map[result.Remedy]bool{})
	}
	if want := "\nFAIL     ISO-X\n  on 4 nodes: a, b, c, d\n  blocked in 7 pairs\n  expected: x\n  change: mend it; put this on the kernel's command line:\n          iommu=pt\n" +
		"  by this change, too: ISO-X fails for 1 more: c\n  by this change, too: what is unknown in NV-Y (on d)\n"; b.String() != want {
		t.Errorf("%s, want %s", b.String(), want)
	}
	// Ten are told, and what is left out is counted and named.
	for _, c := range []struct {
		rest []Cause
		want string
	}{
		{[]Cause{{What: "ISO-X: x"}}, "\nFAIL     and 1 more cause: ISO-X\n"},
		{[]Cause{{What: "ISO-X: x"}, {What: "pairs: x", Scope: of(5)}, {What: "NV-Y: y"}, {What: "ISO-X: z"}}, "\nFAIL     and 4 more causes: ISO-X, NV-Y\n  5 pairs: g0 -> n, g1 -> n, g2 -> n, g3 -> n and 1 more, on a\n"},
		{[]Cause{{What: "pairs: x", Scope: of(1)}}, "\nFAIL     and 1 more cause\n  1 pair: g0 -> n, on a\n"},
		{[]Cause{{What: "pairs: x", Scope: of(1), Nodes: []string{"b", "c"}}}, "\nFAIL     and 1 more cause\n  1 pair: g0 -> n, on b, and some on 1 more node\n"},
		{slices.Repeat([]Cause{{What: "pairs: x", Scope: of(1)}}, 5), "\nFAIL     and 5 more causes\n" + strings.Repeat("  1 pair: g0 -> n, on a\n", 4) + "  and 1 more cause of pairs\n"},
		{slices.Repeat([]Cause{{What: "pairs: x", Scope: of(1)}}, 6), "\nFAIL     and 6 more causes\n" + strings.Repeat("  1 pair: g0 -> n, on a\n", 4) + "  and 2 more causes of pairs\n"},
	} {
		var r Report
		for i := range shownCauses {
			r.Causes = append(r.Causes, Cause{Result: "fail", What: fmt.Sprintf("NET-%d: x", i), Nodes: []string{"a", "d"}})
		}
		for _, x := range c.rest {
			x.Result = "fail"
			if x.Nodes == nil {
				x.Nodes = []string{"a"}
			}
			r.Causes = append(r.Causes, x)
		}
		var b strings.Builder
		causesText(&b, render.Style{}, r.together(), "fail", map[result.Remedy]bool{})
		if !strings.HasSuffix(b.String(), c.want) {
			t.Errorf("want %q: %s", c.want, b.String())
		}
	}
}

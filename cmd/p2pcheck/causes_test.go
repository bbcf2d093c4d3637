// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// The text names a fault once that several checks and pairs report; the JSON has each of them.
func TestCausesAreToldTogether(t *testing.T) {
	dir := t.TempDir()
	saved(t, dir, "node0", testenv.Machines["small-hgx"]())
	saved(t, dir, "node1", testenv.Machines["small-hgx"]())
	broken := bad()
	broken.Files["sys/class/net/eth0/operstate"] = "down\n" // beside it, and of another cause
	saved(t, dir, "bad", broken)
	r := command("report", dir)
	if n := strings.Count(r.out, "open modules"); n != 1 {
		t.Errorf("the remedy is told %d times: %s", n, r.out)
	}
	for _, id := range []string{"NV-MODTYPE", "NV-PEERMEM", "GPU-DRIVER", "pairs"} {
		if !strings.Contains(r.out, id) {
			t.Errorf("%s is not told of: %s", id, r.out)
		}
	}
	// What else is wrong keeps its own lines.
	if !strings.Contains(r.out, "\nFAIL     NET-LINK: ") {
		t.Error(r.out)
	}
	var d struct{ Result reportResult }
	if err := json.Unmarshal([]byte(command("report", "--json", dir).out), &d); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, c := range d.Result.Causes {
		ids = append(ids, c.id())
	}
	if all := strings.Join(ids, " ") + " "; !strings.Contains(all, "NV-MODTYPE ") || !strings.Contains(all, "NV-PEERMEM ") || !strings.Contains(all, "GPU-DRIVER ") || !strings.Contains(all, "pairs ") {
		t.Errorf("%q", ids)
	}
}

func TestMendedWith(t *testing.T) {
	of := func(what, change, command string, nodes ...string) cause {
		return cause{What: what, Nodes: nodes, Remedy: &result.Fix{Change: change, Command: command}}
	}
	a := of("NV-MODTYPE: x", "install the open modules, or rely on nvidia-peermem", "", "n1", "n2")
	for _, c := range []struct {
		with cause
		want bool
	}{
		{of("GPU-DRIVER: x", "install the open modules, or take MLNX_OFED", "", "n1", "n2"), true},
		{of("pairs: x", "another change: see NV-MODTYPE", "", "n1", "n2"), true},
		{of("GPU-DRIVER: x", "install the open modules", "", "n1"), false},
		{of("GPU-DRIVER: x", "install the open modules", "apt install", "n1", "n2"), false},
		{of("KRN-KMSG: x", "see what the line says", "", "n1", "n2"), false},
		{cause{What: "not all could be looked at", Nodes: []string{"n1", "n2"}}, false},
	} {
		if a.mendedWith(c.with) != c.want || c.with.mendedWith(a) != c.want {
			t.Errorf("%+v: not %v", c.with, c.want)
		}
	}
	// A command that looks at a device is the same for others; one that changes it is not.
	look := func(device string) cause {
		return of("P2P-NV-GATE: x", "prove it", "p2pcheck --live --gpu "+device, "n1")
	}
	set := func(device string) cause { return of("ISO-RO: x", "turn it on", "setpci -s "+device, "n1") }
	if !look("a").mendedWith(look("b")) || set("a").mendedWith(set("b")) {
		t.Error("commands of devices")
	}
}

// Pairs have no ID: a cause that groups pairs with checks names the first few pairs, and so does the
// list of those left out.
func TestCausesNamePairs(t *testing.T) {
	dir := t.TempDir()
	saved(t, dir, "bad", bad())
	text := command("report", dir).out
	for _, want := range []string{
		"\nFAIL     pairs: the registration fails (REFUSED by export)\n  on 1 node: bad\n  0000:13:00.0 -> mlx5_0, 0000:13:00.0 -> mlx5_1, 0000:15:00.0 -> mlx5_0, 0000:15:00.0 -> mlx5_1\n",
		"  the same for: NV-MODTYPE (fail), NV-PEERMEM (fail), GPU-DRIVER (unknown)\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q: %s", want, text)
		}
	}
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
		{[]string{"a"}, []int{1}, "  the same for 1 pair (fail): g0 -> n\n"},
		{[]string{"a"}, []int{4}, "  the same for 4 pairs (fail): g0 -> n, g1 -> n, g2 -> n, g3 -> n\n"},
		{[]string{"a", "b"}, []int{3, 4}, "  the same for 7 pairs (fail), on a: g0 -> n, g1 -> n, g2 -> n, g0 -> n and 3 more\n"},
	} {
		r := reportResult{Causes: []cause{{Result: "fail", What: "ISO-X: x", Nodes: c.nodes, Remedy: mend}}}
		for _, n := range c.pairs {
			r.Causes = append(r.Causes, cause{Result: "fail", What: "pairs: x", Nodes: c.nodes, Scope: of(n), Remedy: mend})
		}
		var b strings.Builder
		causesText(&b, render.Style{}, r.together(), "fail", map[result.Remedy]bool{})
		if !strings.HasSuffix(b.String(), "  change: mend it\n"+c.want) {
			t.Errorf("%v: %s", c.pairs, b.String())
		}
	}
	// Ten are told, and what is left out is counted and named.
	for _, c := range []struct {
		rest []cause
		want string
	}{
		{[]cause{{What: "ISO-X: x"}}, "\nFAIL     and 1 more cause: ISO-X\n"},
		{[]cause{{What: "ISO-X: x"}, {What: "pairs: x", Scope: of(5)}, {What: "NV-Y: y"}, {What: "ISO-X: z"}}, "\nFAIL     and 4 more causes: ISO-X, NV-Y\n  5 pairs: g0 -> n, g1 -> n, g2 -> n, g3 -> n and 1 more, on a\n"},
		{[]cause{{What: "pairs: x", Scope: of(1)}}, "\nFAIL     and 1 more cause\n  1 pair: g0 -> n, on a\n"},
		{[]cause{{What: "pairs: x", Scope: of(1), Nodes: []string{"b", "c"}}}, "\nFAIL     and 1 more cause\n  1 pair: g0 -> n, on b, and some on 1 more node\n"},
		{slices.Repeat([]cause{{What: "pairs: x", Scope: of(1)}}, 5), "\nFAIL     and 5 more causes\n" + strings.Repeat("  1 pair: g0 -> n, on a\n", 4) + "  and 1 more cause of pairs\n"},
		{slices.Repeat([]cause{{What: "pairs: x", Scope: of(1)}}, 6), "\nFAIL     and 6 more causes\n" + strings.Repeat("  1 pair: g0 -> n, on a\n", 4) + "  and 2 more causes of pairs\n"},
	} {
		var r reportResult
		for i := range shownCauses {
			r.Causes = append(r.Causes, cause{Result: "fail", What: fmt.Sprintf("NET-%d: x", i), Nodes: []string{"a"}})
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

// No heading says the same twice.
func TestHeadingsOfPairs(t *testing.T) {
	dir := t.TempDir()
	guest := saved(t, dir, "guest", testenv.FlatVM())
	r := command("report", saved(t, dir, "server", machineTree(server+others, "0x1d")), guest)
	for _, want := range []string{
		"\nFAIL     pairs: the NIC gets system memory (STAGED)\n", "\nFAIL     pairs: the registration fails (REFUSED with EOPNOTSUPP by uverbs)\n",
		"\nFAIL     pairs: the NIC does not reach the GPU's memory (BROKEN)\n", "\nUNKNOWN  pairs: what becomes of them is not known\n",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q: %s", want, r.out)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// One thing that is wrong, and that several checks and the pairs complain of, is told
// once; the document has each for itself.
func TestCausesAreToldTogether(t *testing.T) {
	dir := t.TempDir()
	saved(t, dir, "node0", testenv.Machines["small-hgx"]())
	saved(t, dir, "node1", testenv.Machines["small-hgx"]())
	saved(t, dir, "bad", bad())
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
	if !strings.Contains(r.out, "\nFAIL     ISO-ATS: ") {
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
		return cause{What: what, Nodes: nodes, Remedy: &fix{Change: change, Command: command}}
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

// No heading says the same twice.
func TestHeadingsOfPairs(t *testing.T) {
	for outcome, want := range map[string]string{"unknown": "what becomes of them is not known", "staged": "the NIC gets system memory (STAGED)"} {
		if got := (pair{Outcome: outcome}).became(); got != want {
			t.Errorf("%s: %s", outcome, got)
		}
	}
	dir := t.TempDir()
	r := command("report", saved(t, dir, "server", machineTree(server+others, "0x1d")))
	for _, want := range []string{"\nFAIL     pairs: the NIC gets system memory (STAGED)\n", "\nFAIL     pairs: the registration fails (REFUSED with EOPNOTSUPP by uverbs)\n", "\nUNKNOWN  pairs: what becomes of them is not known\n"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q: %s", want, r.out)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
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
	if !strings.Contains(r.out, "\nFAIL     NET-LINK\n") || !strings.Contains(r.out, "\n  expected: Network devices are up, and take large packets\n") {
		t.Error(r.out)
	}
	var d struct{ Result reportResult }
	if err := json.Unmarshal([]byte(command("report", "--json", dir).out), &d); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, c := range d.Result.Causes {
		id, _, _ := strings.Cut(c.What, ":")
		ids = append(ids, id)
	}
	if all := strings.Join(ids, " ") + " "; !strings.Contains(all, "NV-MODTYPE ") || !strings.Contains(all, "NV-PEERMEM ") || !strings.Contains(all, "GPU-DRIVER ") || !strings.Contains(all, "pairs ") {
		t.Errorf("%q", ids)
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
		"  these checks say the same of the pairs: GPU-EXPORTER-OPS\n  by this change, too: what fails in NV-MODTYPE, NV-PEERMEM\n  by this change, too: what is unknown in GPU-DRIVER\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q: %s", want, text)
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

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p/checks"
)

func TestExplain(t *testing.T) {
	for _, id := range checkNames() {
		r := command("explain", id)
		if r.status != 0 || !strings.HasPrefix(r.out, id+": ") || !strings.Contains(r.out, "see: ") {
			t.Errorf("%s: %+v", id, r)
		}
	}
	if r := command("explain", "net"); r.status != 0 || strings.Count(r.out, "at worst:") != 8 {
		t.Errorf("%+v", r)
	}
	if r := command("explain"); strings.Count(r.out, "at worst:") != len(checks.All()) {
		t.Errorf("%+v", r)
	}
	if r := command("explain", "NO-SUCH"); r.status != cli.ExitUsage || !strings.Contains(r.err, "PCIE, ") {
		t.Errorf("%+v", r)
	}
	var d struct{ Result explainResult }
	if err := json.Unmarshal([]byte(command("explain", "--json", "P2P-ACS-LIST").out), &d); err != nil || len(d.Result.Checks) != 1 || d.Result.Checks[0].Worst != "fail" {
		t.Error(d, err)
	}
}

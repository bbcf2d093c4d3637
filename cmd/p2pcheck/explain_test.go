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
	// The page is in the project's repository, and not on the machine: its address is printed.
	for built, at := range map[[2]string]string{
		{"0.1.0", "abcdef0123456789"}:   "v0.1.0",
		{"1.2.0~rc1", "unknown"}:        "v1.2.0-rc1",
		{"0.1.0+git5.abc", "abcdef012"}: "abcdef012",
		{"0.1.0+dirty", "unknown"}:      "HEAD",
		{"unknown", "unknown"}:          "HEAD",
	} {
		if got, want := remedyURL("P2P-ACS-LIST", built[0], built[1]), "https://github.com/gpurdma/gpurdma/blob/"+at+"/docs/how-to/remedies/P2P-ACS-LIST.md"; got != want {
			t.Errorf("%q: %s, want %s", built, got, want)
		}
	}
	if x := d.Result.Checks[0]; x.Page != "docs/how-to/remedies/P2P-ACS-LIST.md" || x.URL != remedyURL(x.ID, version, revision) {
		t.Error(x.Page, x.URL)
	}
	if r := command("explain", "P2P-ACS-LIST"); !strings.Contains(r.out, "\n  page: "+d.Result.Checks[0].URL+"\n") {
		t.Error(r.out)
	}
}

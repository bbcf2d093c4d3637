// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
)

// lacking are results without a case, and why the check cannot have such a case.
var lacking = map[string]string{
	"AMD-PEER-LEGACY": "bad: either answer is good",
	"AMD-XGMI":        "bad: either answer is good",
	"ISO-ACS-PORT":    "bad: it tells registers; what they do to a pair others say",
	"ISO-GROUP":       "bad: what groups mean for a pair others say",
	"K8S-PCIEROOT":    "bad: it tells names",
	"VF-PATH":         "bad: it tells names",
	"NIC-BNXT-FLAG":   "bad: no file says what the plugin does",
	"NIC-MODE":        "bad: each mode is good; a driver that has none skips",
	"INTEL-I915":      "pass: i915 never gives its memory to a NIC",
	"NOUVEAU":         "pass: unknown: that it is bound is all",
	"QAIC-IVPU-XDNA":  "pass: unknown: that it is bound is all",
	"VIRTIO-GPU":      "pass: unknown: that it is bound is all",
	"VM-ACS":          "pass: no guest sees the host's ports",
	"PCIE-VMD":        "unknown: an address is always there",
	"PCIE-LINK-IDLE":  "bad: errors count while a proof runs, and proof_test.go has that",
	"LIM-DEVICE-CG":   "unknown: any error but EPERM is another check's",
}

// Every check has cases where it passes, where it warns or fails, and where it does
// not know, in check_cases_test.go; those of proofs are in proof_test.go.
func TestEachResultHasACase(t *testing.T) {
	cases := checkCases()
	for _, c := range All() {
		if check.OfProof(c.ID) {
			continue
		}
		has := map[p2p.Result]bool{}
		for _, one := range cases[c.ID] {
			has[one.want] = true
		}
		var missing []string
		for what, there := range map[string]bool{"pass": has[pass], "bad": has[warn] || has[fail], "unknown": has[unknown]} {
			if !there {
				missing = append(missing, what)
			}
		}
		for _, what := range missing {
			if !strings.Contains(lacking[c.ID], what+": ") {
				t.Errorf("%s has no case of %s", c.ID, what)
			}
		}
		for what, there := range map[string]bool{"pass": has[pass], "bad": has[warn] || has[fail], "unknown": has[unknown]} {
			if there && strings.Contains(lacking[c.ID], what+": ") {
				t.Errorf("%s has a case of %s after all", c.ID, what)
			}
		}
		// Without all of the configuration space the kernel itself sees no ACS: a warning.
		if c.Worst == fail && has[warn] && !has[fail] && c.ID != "ENV-CFGSPACE" {
			t.Errorf("%s can fail, and has no case of it", c.ID)
		}
	}
}

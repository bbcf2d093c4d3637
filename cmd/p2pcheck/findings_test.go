// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// What is read alike of many GPUs is told once, though the command to prove it names
// one of them.
func TestFindingsOfManyGPUs(t *testing.T) {
	dkms := testenv.MI300()
	dkms.Files["sys/module/amdgpu/taint"], dkms.Files["sys/module/amdgpu/version"] = "OE\n", "6.10.5\n"
	r := run(dkms, t, "--root", "ROOT")
	const said = "\n  0000:13:00.0, 0000:15:00.0, 0000:43:00.0, 0000:45:00.0 and 4 more: amdgpu may be another than the kernel's own"
	if n := strings.Count(r.out, "\nUNKNOWN  GPU-DRIVER: "); n != 1 || !strings.Contains(r.out, said) {
		t.Errorf("told %d times: %s", n, r.out)
	}
	if all := run(dkms, t, "-v", "--root", "ROOT").out; strings.Count(all, "\nUNKNOWN  GPU-DRIVER: ") != 8 {
		t.Error(all)
	}
	gated := testenv.HGX()
	gated.Files["proc/driver/nvidia/params"] = "GrdmaPciTopoCheckOverride: ?\n"
	if r := run(gated, t, "--root", "ROOT"); strings.Count(r.out, "\nUNKNOWN  P2P-NV-GATE: ") != 1 {
		t.Error(r.out)
	}
	// What has to be done to each of them is not told of one alone.
	a, b := finding{ID: "ISO-RO", Remedy: &fix{Command: "setpci -s a"}}, finding{ID: "ISO-RO", Remedy: &fix{Command: "setpci -s b"}}
	if a.like(b) || !a.like(a) || a.like(finding{ID: "ISO-RO"}) {
		t.Error("findings whose commands change a device")
	}
}

// One is, and two are.
func TestTallyOfTheUnlisted(t *testing.T) {
	open := func(ids ...string) checkResult {
		var r checkResult
		for _, id := range ids {
			r.Checks = append(r.Checks, finding{ID: id, Result: "unknown"})
		}
		return r
	}
	for want, r := range map[string]checkResult{"; 1 of the unknown can only warn, and is not listed;": open("A"), "; 2 of the unknown can only warn, and are not listed;": open("A", "B")} {
		if got := r.tallyText(&app{}); !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
}

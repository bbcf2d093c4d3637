// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// One line of the text reports a finding that is the same for many GPUs, though the command to prove
// it names one of them.
func TestFindingsOfManyGPUs(t *testing.T) {
	dkms := testenv.MI300()
	dkms.Files["sys/module/amdgpu/taint"], dkms.Files["sys/module/amdgpu/version"] = "OE\n", "6.10.5\n"
	r := run(dkms, t, "--root", "ROOT")
	const said = " 0000:13:00.0, 0000:15:00.0, 0000:43:00.0, 0000:45:00.0 and 4 more: amdgpu may not be the kernel's own"
	if n := strings.Count(r.out, "\nUNKNOWN  GPU-DRIVER: "); n != 1 || !strings.Contains(flat(r.out), said) {
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
}

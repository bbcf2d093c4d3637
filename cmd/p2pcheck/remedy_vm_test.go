// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// remedied is what the second of the machines is booted with.
const remedied = "pci=disable_acs_redir=0000:11:01.0;0000:11:02.0"

// What p2pcheck says to do about a pair is done, and then holds: on the first
// machine its remedy is the parameter that the second one is booted with, and
// there the kernel decides as was promised, and the registration is direct.
//
//testbed:machine nested+Nehalem nested+Nehalem+remedy
//testbed:kernel 7.2
func TestVMRemedy(t *testing.T) {
	gpus := testenv.SoftGPUs(t, "personality=amdgpu")
	gpu := gpus[slices.IndexFunc(gpus, func(g testenv.SoftGPU) bool { return g.Name == "gpu3" })]
	gpu.Set(t, "behaviour", "amdgpu")
	text, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	done := slices.Contains(strings.Fields(string(text)), remedied)
	if want := strings.HasSuffix(os.Getenv("GPURDMA_MACHINE"), "+remedy"); done != want {
		t.Fatalf("%s was booted with %s", os.Getenv("GPURDMA_MACHINE"), text)
	}
	d, status := checked(t, nil, "--json", "--gpu", gpu.PCI, "--nic", "rxe3")
	if len(d.Pairs) != 1 {
		t.Fatalf("%d pairs", len(d.Pairs))
	}
	p := d.Pairs[0]
	what, err := register(t, gpu, p.NIC)
	if err != nil {
		t.Fatal(err)
	}
	var acs []finding
	for _, f := range d.Checks {
		if f.ID == "P2P-ACS-LIST" {
			acs = append(acs, f)
		}
	}
	if len(acs) != 1 {
		t.Fatalf("P2P-ACS-LIST: %+v", acs)
	}
	t.Logf("%s -> %s: %s (%v), registered %s; %s: %s", p.GPU, p.NIC, p.Outcome, p.Why, what, acs[0].Result, acs[0].Read)
	if done {
		if p.Outcome != "direct" || p.Decision.Type != "bus address" || p.Remedy != nil || what != "direct" || acs[0].Result != "unknown" || !strings.HasPrefix(acs[0].Read, "none;") {
			t.Errorf("with the remedy: %+v; registered %s; %+v", p, what, acs[0])
		}
		return
	}
	if p.Outcome != "staged" || what != "staged" || p.Remedy == nil || !p.Remedy.Direct || p.Remedy.Command != remedied || status != cli.ExitFailed {
		t.Errorf("status %d, %+v, remedy %+v; registered %s", status, p, p.Remedy, what)
	}
	if f := acs[0]; f.Result != "fail" || f.Remedy == nil || f.Remedy.Command != remedied {
		t.Errorf("%+v, remedy %+v", f, f.Remedy)
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/check/hostcheck"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// remedied is the parameter that the kernel of TestVMRemedy's second machine gets in addition to those
// of the first one.
const remedied = "pci=disable_acs_redir=0000:11:01.0;0000:11:02.0"

// The remedy that p2pcheck names for a pair makes the pair direct. On the first machine the kernel
// itself makes ports redirect, since there is an IOMMU. The remedy is the parameter that the second
// machine has on its command line, behind those of the first one. There the kernel decides for the pair
// as the remedy promises, and its registration is direct; nothing changes for the other pairs.
//
//testbed:machine nested+Nehalem+iommu nested+Nehalem+iommu+remedy
//testbed:kernel 7.2
func TestVMRemedy(t *testing.T) {
	gpus := testenv.SoftGPUs(t, "personality=amdgpu")
	for _, g := range gpus {
		g.Set(t, "behaviour", "amdgpu")
	}
	done := onSecond(t, "+remedy", []string{"intel_iommu=on", "iommu=nopt"}, []string{"intel_iommu=on", "iommu=nopt", remedied})

	d, status := checked(t, nil, "--json", "--gpu", "softgpu")
	if len(d.Pairs) != len(gpus)*len(d.NICs) || len(d.NICs) < 5 || status != cli.ExitFailed {
		t.Errorf("%d pairs of %d NICs, status %d", len(d.Pairs), len(d.NICs), status)
	}
	for _, p := range d.Pairs {
		gpu := gpus[slices.IndexFunc(gpus, func(g testenv.SoftGPU) bool { return g.PCI == p.GPU })]
		name := gpu.Name + " " + p.NIC
		want := "staged"
		switch name {
		case "gpu0 rxe0", "gpu0 rxe1", "gpu1 rxe0", "gpu1 rxe1": // ports without ACS
			want = "direct"
		case "gpu3 rxe3":
			if done {
				want = "direct"
			}
		}
		if p.Outcome != want || (p.Decision.Type == "bus address") != (want == "direct") {
			t.Errorf("%s: %s by %s, want %s: %v", name, p.Outcome, p.Decision.Type, want, p.Why)
		}
		if what, err := register(t, gpu, p.NIC); err != nil || what != want {
			t.Errorf("%s registers: %s, %v; want %s", name, what, err, want)
		}
	}

	d, status = checked(t, nil, "--json", "--gpu", gpus[3].PCI, "--nic", "rxe3")
	if len(d.Pairs) != 1 {
		t.Fatalf("%d pairs", len(d.Pairs))
	}
	p := d.Pairs[0]
	acs := findingsWith(d, "P2P-ACS-LIST", "")
	if len(acs) != 1 {
		t.Fatalf("P2P-ACS-LIST: %+v", acs)
	}
	sources := findingsWith(d, "ISO-ACS-SOURCE", "0000:11:01.0")
	if len(sources) != 1 {
		t.Fatalf("ISO-ACS-SOURCE: %+v", sources)
	}
	t.Logf("%s -> %s: %s (%v); %s: %s; %s", p.GPU, p.NIC, p.Outcome, p.Why, acs[0].Result, acs[0].Read, sources[0].Read)
	if done {
		if p.Outcome != "direct" || p.Remedy != nil || acs[0].Result != "unknown" || !strings.HasPrefix(acs[0].Read, "none;") || !strings.HasPrefix(sources[0].Read, "it does not redirect") {
			t.Errorf("with the remedy: %+v; %+v; %+v", p, acs[0], sources[0])
		}
		return
	}
	if p.Outcome != "staged" || p.Remedy == nil || !p.Remedy.Direct || p.Remedy.Command != remedied || status != cli.ExitFailed {
		t.Errorf("status %d, %+v, remedy %+v", status, p, p.Remedy)
	}
	if f := acs[0]; f.Result != "fail" || f.Remedy == nil || f.Remedy.Command != remedied {
		t.Errorf("%+v, remedy %+v", f, f.Remedy)
	}
	if f := sources[0]; f.Result != "warn" || !strings.Contains(f.Read, "as the kernel sets it where there is an IOMMU") || f.Remedy == nil || f.Remedy.Command != remedied {
		t.Errorf("%+v, remedy %+v", f, f.Remedy)
	}
}

// The remedy for an IOMMU that translates is the parameter that the second machine
// is booted with, in the place of its opposite. There the IOMMU lets DMA pass, and
// every pair is what it was, by addresses of another kind.
//
//testbed:machine fabric+EPYC+iommu fabric+EPYC+pt
//testbed:kernel 7.2
func TestVMPassThrough(t *testing.T) {
	const remedied = "iommu=pt"
	gpus := testenv.SoftGPUs(t, "personality=amdgpu")
	for _, g := range gpus {
		g.Set(t, "behaviour", "amdgpu")
	}
	done := onSecond(t, "+pt", []string{"intel_iommu=on", "iommu=nopt"}, []string{"intel_iommu=on", remedied})
	d, _ := checked(t, nil, "--json", "--gpu", "softgpu")
	for _, id := range []string{"ISO-IOMMU-MODE", "VM-IOMMU"} {
		of := 0
		for _, f := range findingsWith(d, id, "") {
			of += max(len(f.Scope), 1)
			switch {
			case done && f.Result != "pass":
				t.Errorf("with the remedy: %+v", f)
			case !done && (f.Result != "warn" || f.Remedy == nil || f.Remedy.Command != remedied):
				t.Errorf("%+v, remedy %+v", f, f.Remedy)
			}
		}
		if of < len(gpus) {
			t.Errorf("%s: %d findings", id, of)
		}
	}
	for _, p := range d.Pairs {
		want, address := "direct", "IOVA"
		if p.NIC == "rxe-soft" {
			want, address = "staged", "physical address"
		} else if done {
			address = "physical address"
		}
		if p.Outcome != want || p.Address != address {
			t.Errorf("%s -> %s: %s by %s, want %s by %s: %v", p.GPU, p.NIC, p.Outcome, p.Address, want, address, p.Why)
		}
	}
}

// onSecond says whether this is the machine with the remedy, whose name ends in suffix. It fails the
// test if the kernel's command line does not have the parameters that the test expects.
func onSecond(t *testing.T, suffix string, first, second []string) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	told := slices.DeleteFunc(strings.Fields(string(text)), func(word string) bool { return !hostcheck.Parameter(word) })
	is, want := strings.HasSuffix(os.Getenv("GPURDMA_MACHINE"), suffix), first
	if is {
		want = second
	}
	if !slices.Equal(told, want) {
		t.Fatalf("%s was booted with %q, want %q", os.Getenv("GPURDMA_MACHINE"), told, want)
	}
	return is
}

// findingsWith are a check's findings, of one scope if that is not "".
func findingsWith(d result.Run, id, scope string) []result.Finding {
	var out []result.Finding
	for _, f := range d.Checks {
		if f.ID == id && (scope == "" || slices.Contains(f.Scope, scope)) {
			out = append(out, f)
		}
	}
	return out
}

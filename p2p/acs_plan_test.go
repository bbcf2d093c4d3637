// SPDX-License-Identifier: Apache-2.0

package p2p_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/directnic"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

func corpusMachine(t *testing.T, name string) *machine.Machine {
	t.Helper()
	all := testenv.Corpus(t)
	i := slices.IndexFunc(all, func(c testenv.CorpusMachine) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no machine %q in the corpus", name)
	}
	return machine.Open(all[i].Tree.Write(t))
}

// On a GB300 the ports beside the DMA function need a certain ACS. No remedy opens them: it leaves ports
// with the right ACS alone, and sets that of others.
func TestPortsOfAPlanAreNotOpened(t *testing.T) {
	for name, c := range map[string]struct {
		ok      directnic.Tri
		change  string
		command string
	}{
		"case-07-gb300-data-direct": {directnic.Yes, "leave the ports' ACS as it is", ""},
		"case-07-bad-acs":           {directnic.No, "have the kernel set the ACS", "rdma_topo write-grub-acs"},
	} {
		m := corpusMachine(t, name)
		plan := p2p.ACSPlan(m)
		if plan.Shape != directnic.DataDirect || plan.OK() != c.ok {
			t.Errorf("%s: shape %v, OK %v: %s", name, plan.Shape, plan.OK(), plan.Why)
		}
		for _, port := range []string{"0008:00:00.0", "0008:02:00.0", "0008:02:03.0"} {
			r := p2p.OpenPorts(m, []string{port})
			if !strings.HasPrefix(r.Change, c.change) || r.Command != c.command || strings.Contains(r.Change, p2p.OpenParameter) || r.Direct {
				t.Errorf("%s, port %s: %+v", name, port, r)
			}
		}
	}
	// A machine without such NICs has no plan.
	m := machine.Open(testenv.HGX().Write(t))
	if plan := p2p.ACSPlan(m); plan.Shape != directnic.None || p2p.PlannedRemedy(m, []string{"0000:12:00.0"}) != nil {
		t.Errorf("shape %v: %s", plan.Shape, plan.Why)
	}
}

// The host of a guest with an H100 and a ConnectX-7: the switch does not send translated requests
// straight to the GPU, and the NIC does not ask for translations.
func TestGivenAway(t *testing.T) {
	found := p2p.GivenAway(corpusMachine(t, "case-13-vfio-host"))
	if len(found) != 1 || found[0].OK != directnic.No {
		t.Fatalf("%+v", found)
	}
	off := strings.Join(found[0].Off, "\n")
	for _, want := range []string{"direct translated must be on", "ATS"} {
		if !strings.Contains(off, want) {
			t.Errorf("no %q: %s", want, off)
		}
	}
}

// The kernel uses only one config_acs=. The parameter that mends one pair of a guest therefore also has the entries for
// the other pairs, and those of the present command line.
func TestOneParameterForAllPairsOfGuests(t *testing.T) {
	all := testenv.Corpus(t)
	i := slices.IndexFunc(all, func(c testenv.CorpusMachine) bool { return c.Name == "case-13-vfio-host" })
	tree := all[i].Tree
	// Another switch port, with a GPU that is given away.
	const port = "pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:02.0"
	tree.Functions += "\n" + port + " class=0x060400 vendor=0x1000 device=0xc030 numa_node=0 type=6 acs=0x1d group=7:DMA-FQ\n" +
		port + "/0000:15:00.0 class=0x030200 vendor=0x10de device=0x2330 driver:vfio-pci numa_node=0 type=0 ats=0 group=8:DMA-FQ"
	tree.Files = maps.Clone(tree.Files)
	tree.Files["proc/cmdline"] = "intel_iommu=on pci=config_acs=xx000x0@0000:12:01.0;xx000x0@0000:70:00.0\n"
	found := p2p.GivenAway(machine.Open(tree.Write(t)))
	if len(found) != 2 {
		t.Fatalf("%d pairs: %+v", len(found), found)
	}
	for _, f := range found {
		_, entries, _ := strings.Cut(f.Remedy.Parameter, "pci=config_acs=")
		var ports []string
		for entry := range strings.SplitSeq(entries, ";") {
			_, port, _ := strings.Cut(entry, "@")
			ports = append(ports, port)
		}
		// Both pairs need the NIC's port, and each its GPU's port; the last entry was there before.
		slices.Sort(ports)
		if want := []string{"0000:12:01.0", "0000:70:00.0"}; !slices.Equal(slices.Compact(slices.Clone(ports)), ports) || !slices.Contains(ports, want[0]) || !slices.Contains(ports, want[1]) {
			t.Errorf("%v -> %v: %s", f.GPU, f.NIC, f.Remedy.Parameter)
		}
		if f.Remedy.Parameter != found[0].Remedy.Parameter {
			t.Errorf("two parameters: %s, %s", f.Remedy.Parameter, found[0].Remedy.Parameter)
		}
		if !strings.Contains(f.Remedy.Change, "reads only the first entry") {
			t.Errorf("the change does not name the kernels that read one entry: %s", f.Remedy.Change)
		}
	}
}

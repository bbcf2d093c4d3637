// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

func TestRemedy(t *testing.T) {
	const gpu = "03:00.0"
	zen := machinetest.Fixture{Tree: machinetest.Planted()}.Open(t)
	redirect := machinetest.Fixture{Cpu: machinetest.Xeon, Tree: machinetest.Planted("ACS2", "acs=0x1d", "ACS3", "acs=0x1d")}.Open(t)
	other := machinetest.Fixture{Cpu: machinetest.Xeon, Tree: machinetest.Planted()}.Open(t)
	listed := machinetest.Fixture{Release: "6.12.1", Cpu: machinetest.Xeon, Tree: machinetest.Planted("HOST", "0x0b25")}.Open(t)
	debian612 := machinetest.Fixture{Release: "6.12.117+deb12-amd64", Config: machinetest.WithoutP2P, Tree: machinetest.Planted()}.Open(t)
	withoutMoves := machinetest.Fixture{Release: "6.12.1", Config: machinetest.WithP2P + "# CONFIG_DMABUF_MOVE_NOTIFY is not set\n", Tree: machinetest.Planted()}.Open(t)
	built72 := machinetest.Fixture{Config: strings.ReplaceAll(machinetest.WithoutP2P, "# CONFIG_DMABUF_MOVE_NOTIFY is not set\n", ""), Tree: machinetest.Planted()}.Open(t)
	truncated := machinetest.Fixture{Cpu: machinetest.Xeon, Tree: machinetest.Planted("ACS2", "config=64")}.Open(t)
	noConfig := machinetest.Fixture{Config: "-", Tree: machinetest.Planted()}.Open(t)
	noRelease := machinetest.Fixture{Config: "-", Tree: machinetest.Planted(), Files: map[string]string{"proc/sys/kernel/osrelease": ""}}.Open(t)

	for _, c := range []struct {
		name    string
		m       *machine.Machine
		e       drivers.Exporter
		nic     string
		kind    drivers.Kind
		words   string
		command string
		direct  bool
	}{
		{"nothing to do", zen, drivers.Exporter{Given: true, Class: drivers.ClassXe}, machinetest.InSwitch, drivers.Dynamic, "", "", true},
		{"ACS", redirect, drivers.Exporter{Given: true, Class: drivers.ClassAMDGPU}, machinetest.InSwitch, drivers.Pinned, "ports on the way", "pci=disable_acs_redir=0000:02:00.0;0000:02:01.0", true},
		{"ACS, vfio", redirect, drivers.Exporter{Given: true, Class: drivers.ClassVFIO}, machinetest.InSwitch, drivers.Dynamic, "ports on the way", "pci=disable_acs_redir=0000:02:00.0;0000:02:01.0", true},
		{"untrusted root", other, drivers.Exporter{Given: true, Class: drivers.ClassAMDGPU}, machinetest.AtRoot, drivers.Pinned, "below one PCI switch with 0000:03:00.0", "", true},
		{"NVIDIA's gate", other, drivers.Exporter{Given: true, Class: drivers.ClassNVIDIA, Gate: drivers.GateBridge}, machinetest.AtRoot, drivers.Dynamic, "below one PCI switch", "", true},
		{"a newer list", listed, drivers.Exporter{Given: true, Class: drivers.ClassNVIDIA, Gate: drivers.GateBridge}, machinetest.InSwitch, drivers.Dynamic, "", "", true},
		{"a newer list", listed, drivers.Exporter{Given: true, Class: drivers.ClassXe}, machinetest.AtRoot, drivers.Pinned, "Linux 7.2", "CONFIG_PCI_P2PDMA=y", true},
		{"Debian, pinned", debian612, drivers.Exporter{Given: true, Class: drivers.ClassAMDGPU}, machinetest.InSwitch, drivers.Pinned, "Linux 7.2", "CONFIG_PCI_P2PDMA=y", true},
		{"Debian, dynamic", debian612, drivers.Exporter{Given: true, Class: drivers.ClassAMDGPU}, machinetest.InSwitch, drivers.Dynamic, "built for it", "CONFIG_PCI_P2PDMA=y CONFIG_DMABUF_MOVE_NOTIFY=y", true},
		{"without move notify", withoutMoves, drivers.Exporter{Given: true, Class: drivers.ClassXe}, machinetest.InSwitch, drivers.Dynamic, "built for it", "CONFIG_DMABUF_MOVE_NOTIFY=y", true},
		{"7.2 without", built72, drivers.Exporter{Given: true, Class: drivers.ClassXe}, machinetest.InSwitch, drivers.Pinned, "built for it", "CONFIG_PCI_P2PDMA=y", true},
		{"software NIC", zen, drivers.Exporter{Given: true, Class: drivers.ClassXe}, machinetest.Nowhere, drivers.Pinned, "that is a PCI function", "", false},
		{"software NIC, Debian", debian612, drivers.Exporter{Given: true, Class: drivers.ClassXe}, machinetest.Nowhere, drivers.Pinned, "that is a PCI function", "", false},
		{"i915", zen, drivers.Exporter{Given: true, Class: drivers.ClassI915, Driver: "i915"}, machinetest.InSwitch, drivers.Dynamic, "driver xe", "i915.force_probe=!1110 xe.force_probe=1110", false},
		{"system memory", zen, drivers.Exporter{Given: true, Class: drivers.ClassSystem}, machinetest.InSwitch, drivers.Dynamic, "no memory of its own", "", false},
		{"does not import", zen, drivers.Exporter{Given: true, Class: drivers.ClassXe}, machinetest.InSwitch, drivers.NoImporter, "imports dma-bufs", "", false},
		{"vfio, pinned", zen, drivers.Exporter{Given: true, Class: drivers.ClassVFIO}, machinetest.InSwitch, drivers.Pinned, "revoke a registration", "", false},
		{"suspended", zen, drivers.Exporter{Given: true, Class: drivers.ClassAMDGPU, Power: machine.PowerSuspended}, machinetest.InSwitch, drivers.Dynamic, "awake", "echo on > /sys/bus/pci/devices/0000:03:00.0/power/control", true},
		{"truncated", truncated, drivers.Exporter{Given: true, Class: drivers.ClassXe}, machinetest.InSwitch, drivers.Dynamic, "take the copy again, as root", "", false},
		{"no configuration", noConfig, drivers.Exporter{Given: true, Class: drivers.ClassXe}, machinetest.InSwitch, drivers.Dynamic, "configuration", "p2pcheck --config FILE", false},
		{"no release", noRelease, drivers.Exporter{Given: true, Class: drivers.ClassXe}, machinetest.InSwitch, drivers.Dynamic, "which kernel", "p2pcheck --kernel RELEASE", false},
		{"out of tree", zen, drivers.Exporter{Given: true, Class: drivers.ClassAMDGPU, OutOfTree: true, Driver: "amdgpu"}, machinetest.InSwitch, drivers.Dynamic, "prove it", "p2pcheck --live --gpu 0000:03:00.0 --nic NIC", false},
		{"no driver", zen, drivers.Exporter{}, machinetest.InSwitch, drivers.Dynamic, "bind a driver", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := machinetest.Addr(t, gpu)
			c.e.PCI = &a
			i := drivers.Importer{PCI: machinetest.Client(t, c.nic), Kind: c.kind, PeerToPeer: true}
			r := p2p.RemedyOf(c.m, c.e, i)
			if c.words == "" {
				if r != nil {
					t.Errorf("%+v for a pair that is direct", *r)
				}
				return
			}
			if r == nil || !strings.Contains(r.Change, c.words) || r.Command != c.command || r.Direct != c.direct {
				t.Fatalf("%+v; want %q, %q, direct %v: %v", r, c.words, c.command, c.direct, drivers.Predict(c.m, c.e, i))
			}
			if strings.HasPrefix(r.Command, "pci=") && r.Weakens == "" {
				t.Error("what this weakens is not said")
			}
			if several := strings.Contains(r.Command, ";"); several != strings.Contains(r.Change, "'pci=…'") {
				t.Errorf("GRUB's quotes: %q for %q", r.Change, r.Command)
			}
		})
	}
}

// A driver that imports on a later kernel makes that kernel the remedy.
func TestRemedyForAnOldImporter(t *testing.T) {
	m := machinetest.Fixture{Release: "6.1.0", Tree: machinetest.Planted()}.Open(t)
	gpu := machinetest.Addr(t, "03:00.0")
	r := p2p.RemedyOf(m, drivers.Exporter{Given: true, Class: drivers.ClassXe, PCI: &gpu}, drivers.Importer{PCI: machinetest.Client(t, machinetest.InSwitch), Kind: drivers.NoImporter, PeerToPeer: true, Driver: "ice"})
	if r == nil || !strings.Contains(r.Change, "Linux 7.2") || !r.Direct {
		t.Errorf("%+v", r)
	}
	// The remedy is about the importer, which is the reason, and not about the exporter.
	if r == nil || !strings.Contains(r.Change, "where ice imports dma-bufs") || !strings.Contains(r.Change, "a NIC whose driver imports them") || strings.Contains(r.Change, "pin") || r.Command != "" {
		t.Errorf("%+v", r)
	}
}

// The test bed's NIC moves data by the CPU: it needs an exporter that lets the kernel map the buffer,
// and some do not.
func TestByCPU(t *testing.T) {
	m := machinetest.Fixture{Tree: machinetest.Planted()}.Open(t)
	gpu := machinetest.Addr(t, "03:00.0")
	for class := drivers.ClassAMDGPU; class <= drivers.ClassSystem; class++ {
		e, i := drivers.Exporter{Given: true, Class: class, PCI: &gpu, Gate: drivers.GateOpen}, drivers.Importer{PCI: machinetest.Client(t, machinetest.InSwitch), Kind: drivers.Dynamic, PeerToPeer: true}
		hardware := drivers.Predict(m, e, i)
		i.ByCPU = true
		p := drivers.Predict(m, e, i)
		refused := p.Outcome == chain.Refused && p.Errno == unix.EOPNOTSUPP && p.Stage == chain.StageDriver
		if want := class == drivers.ClassNVIDIA || class == drivers.ClassNVIDIACoherent || class == drivers.ClassVFIO; refused != want || !want && p.Outcome != hardware.Outcome {
			t.Errorf("%v: %v; by hardware %v", class, p, hardware)
		}
		if r := p2p.RemedyOf(m, e, i); refused && (r == nil || !strings.Contains(r.Change, "hardware")) {
			t.Errorf("%v: %+v", class, r)
		}
	}
}

// With what disable_acs_redir clears, the prediction is what the remedy says.
func TestRemedyApplied(t *testing.T) {
	before := machinetest.Fixture{Cpu: machinetest.Xeon, Tree: machinetest.Planted("ACS2", "acs=0x1d")}.Open(t)
	after := machinetest.Fixture{Cpu: machinetest.Xeon, Tree: machinetest.Planted("ACS2", "acs=0x11")}.Open(t)
	gpu := machinetest.Addr(t, "03:00.0")
	e, i := drivers.Exporter{Given: true, Class: drivers.ClassXe, PCI: &gpu}, drivers.Importer{PCI: machinetest.Client(t, machinetest.InSwitch), Kind: drivers.Pinned, PeerToPeer: true}
	if r := p2p.RemedyOf(before, e, i); r == nil || r.Command != "pci=disable_acs_redir=0000:02:00.0" {
		t.Fatalf("%+v", r)
	}
	if p := drivers.Predict(after, e, i); p.Outcome != chain.Direct {
		t.Error(p)
	}
}

// The command for a pair names both of it, by names that the command knows.
func TestRemedyNamesThePair(t *testing.T) {
	m := machinetest.Fixture{Cpu: machinetest.Grace, Tree: machinetest.Planted()}.Open(t)
	gpu := machinetest.Addr(t, "03:00.0")
	g := drivers.GPU{Name: gpu.String(), Exporter: drivers.Exporter{Given: true, Class: drivers.ClassNVIDIA, PCI: &gpu, Gate: drivers.GateUnread, Driver: "nvidia"}}
	p := p2p.Judge(m, g, drivers.NIC{Name: "mlx5_0", Importer: drivers.Importer{PCI: machinetest.Client(t, machinetest.InSwitch), Kind: drivers.Dynamic, PeerToPeer: true}})
	if p.Remedy == nil || p.Remedy.Command != "p2pcheck --live --gpu 0000:03:00.0 --nic mlx5_0" {
		t.Errorf("%+v", p.Remedy)
	}
}

// mlx5 that imports nothing for the kernel's build is made to by another build,
// not by another NIC.
func TestRemedyForODP(t *testing.T) {
	m := machinetest.Fixture{Config: strings.Replace(machinetest.WithP2P, "CONFIG_INFINIBAND_ON_DEMAND_PAGING=y\n", "", 1), Tree: machinetest.Planted("04:00.0", "04:00.0 rdma:mlx5_0 driver:mlx5_core"), Files: map[string]string{"sys/module/mlx5_ib/taint": "\n"}}.Open(t)
	i, err := drivers.ImporterOf(m, "mlx5_0")
	gpu := machinetest.Addr(t, "03:00.0")
	e := drivers.Exporter{Given: true, Class: drivers.ClassXe, PCI: &gpu}
	p, r := drivers.Predict(m, e, i), p2p.RemedyOf(m, e, i)
	if err != nil || p.Outcome != chain.Refused || p.Errno != unix.EOPNOTSUPP || !strings.Contains(p.String(), "CONFIG_INFINIBAND_ON_DEMAND_PAGING") {
		t.Errorf("%v, %v", p, err)
	}
	if r == nil || r.Command != "CONFIG_INFINIBAND_ON_DEMAND_PAGING=y" || !r.Direct {
		t.Errorf("%+v", r)
	}
}

// Without ib_uverbs no pair is direct.
func TestRemedyForUverbs(t *testing.T) {
	tree := testenv.Machines["small-mi300"]()
	drop("sys/class/infiniband_verbs")(&tree)
	for _, p := range subject(machine.Open(tree.Write(t))).Pairs {
		if p.Verdict.Outcome() != chain.Broken || !strings.Contains(p.Verdict.String(), "ib_uverbs") || p.Remedy == nil || p.Remedy.Command != "modprobe ib_uverbs" {
			t.Errorf("%v, %+v", p.Verdict, p.Remedy)
		}
	}
}

// The kernel keeps one list of ports: all pairs and checks name the whole.
func TestOneParameterForAll(t *testing.T) {
	tree := testenv.Machines["small-mi300"]()
	for _, e := range []edit{cpu(machinetest.Xeon), swap("vendor=0x1022 device=0x14a4", "vendor=0x8086 device=0x1"), swap("acs=0x00", "acs=0x1d")} {
		e(&tree)
	}
	m := machine.Open(tree.Write(t))
	s := subject(m)
	p2p.Combine(m, s.Pairs)
	const want = "pci=disable_acs_redir=0000:12:00.0;0000:12:01.0;0000:12:02.0;0000:12:03.0"
	for _, p := range s.Pairs {
		if p.Remedy == nil || p.Remedy.Command != want || !p.Remedy.Direct {
			t.Errorf("%s: %+v", p.Name(), p.Remedy)
		}
	}
	seen := 0
	for _, f := range Run(m, s) {
		if f.Check.ID == "P2P-ACS-LIST" || (f.Check.ID == "ISO-ACS-SOURCE" || f.Check.ID == "ISO-ATS") && f.Remedy != nil {
			seen++
			if f.Remedy == nil || f.Remedy.Command != want {
				t.Errorf("%s: %+v", f.Check.ID, f.Remedy)
			}
		}
	}
	if seen < 2 {
		t.Error(seen)
	}
}

// A port is opened only for a pair that gains by it: i915 gives no NIC its memory.
func TestNoPortIsOpenedInVain(t *testing.T) {
	tree := testenv.Machines["small-mi300"]()
	for _, e := range []edit{cpu(machinetest.Xeon), swap("vendor=0x1022 device=0x14a4", "vendor=0x8086 device=0x1"), swap("acs=0x00", "acs=0x1d"), put("sys/module/i915/taint", "")} {
		e(&tree)
	}
	gpu := strings.LastIndex(tree.Functions, "driver:amdgpu")
	tree.Functions = tree.Functions[:gpu] + strings.Replace(tree.Functions[gpu:], "driver:amdgpu", "driver:i915", 1)
	m := machine.Open(tree.Write(t))
	s := subject(m)
	p2p.Combine(m, s.Pairs)
	const want = "pci=disable_acs_redir=0000:12:00.0;0000:12:01.0;0000:12:03.0" // 12:02.0 is i915's
	byGPU := map[string]int{}
	for _, f := range Run(m, s) {
		if f.Check.ID != "P2P-ACS-LIST" && f.Check.ID != "P2P-VERDICT" && f.Check.ID != "ISO-ACS-SOURCE" || f.Remedy == nil {
			continue
		}
		for _, scope := range f.Scope {
			gpu, _, _ := strings.Cut(scope, " ")
			byGPU[gpu]++
			if opens := gpu != "0000:15:00.0"; opens != (f.Remedy.Command == want) || !opens && strings.Contains(f.Remedy.Command, p2p.OpenParameter) {
				t.Errorf("%s of %s: %+v", f.Check.ID, scope, f.Remedy)
			}
		}
	}
	if byGPU["0000:13:00.0"] != 4 || byGPU["0000:15:00.0"] != 4 || byGPU["0000:12:00.0"] != 1 || byGPU["0000:12:02.0"] != 0 {
		t.Error(byGPU)
	}
}

// With a kernel that pins in system memory ports are a part of what is in the way.
func TestPortsBesideAnotherReason(t *testing.T) {
	m := machinetest.Fixture{Release: "6.12.1", Cpu: machinetest.Xeon, Tree: machinetest.Planted("ACS2", "acs=0x1d")}.Open(t)
	gpu := machinetest.Addr(t, "03:00.0")
	for class, want := range map[drivers.Class]bool{drivers.ClassXe: true, drivers.ClassI915: false} {
		g, n := drivers.GPU{Name: "gpu", Exporter: drivers.Exporter{Given: true, Class: class, PCI: &gpu}}, drivers.NIC{Name: "nic", Importer: drivers.Importer{PCI: machinetest.Client(t, machinetest.InSwitch), Kind: drivers.Pinned, PeerToPeer: true}}
		p := p2p.Judge(m, g, n)
		if p.Opens() || p2p.Gains(m, p) != want {
			t.Errorf("%v: %+v, %v", class, p.Remedy, p.Prediction)
		}
	}
}

// The kernel uses only the last list of ports: the remedy keeps the ports that are on the command
// line already. config_acs= overrules the list.
func TestRemedyKeepsOpenedPorts(t *testing.T) {
	const one, grub = "pci=disable_acs_redir=0000:02:00.0", "'pci=…'"
	for _, c := range []struct {
		line, want, words, not string
	}{
		{"quiet", one, "", grub},
		{"pci=noats,disable_acs_redir=0000:07:00.0", one + ";0000:07:00.0", "it replaces", ""},
		{"pci=disable_acs_redir=02:00.1;pci:10b5:8747;0000:00:01.0/00.0", one + ";02:00.1;pci:10b5:8747;0000:00:01.0/00.0", grub, ""},
		{"pci=disable_acs_redir=0000:05:00.0 pci=disable_acs_redir=0000:06:00.0 pci=realloc", one + ";0000:06:00.0", "", "0000:05:00.0"},
		{"quiet -- pci=disable_acs_redir=0000:06:00.0", one, "", "it replaces"},
		{`"pci=disable_acs_redir=0000:06:00.0"`, one + ";0000:06:00.0", "", ""},
		{"pci=disable_acs_redir=02:00.0;0000:06:00.0", "", "opens them already", "config_acs"},
		{"pci=disable_acs_redir=02:00.0 pci=config_acs=1111111@02:00.0", "", "config_acs", ""},
		{"pci=config_acs=x1@0000:09:00.0;1x@0000:02:00.0", one, "config_acs", ""},
		{"pci=config_acs=x1@pci:0:0", one, "config_acs", ""},
		{"pci=config_acs=x1@0000:09:00.0", one, "", "config_acs"},
	} {
		m := machinetest.Fixture{Cpu: machinetest.Xeon, Tree: machinetest.Planted("ACS2", "acs=0x1d"), Files: map[string]string{"proc/cmdline": c.line + "\n"}}.Open(t)
		gpu := machinetest.Addr(t, "03:00.0")
		r := p2p.RemedyOf(m, drivers.Exporter{Given: true, Class: drivers.ClassXe, PCI: &gpu}, drivers.Importer{PCI: machinetest.Client(t, machinetest.InSwitch), Kind: drivers.Pinned, PeerToPeer: true})
		if r == nil || r.Command != c.want || !strings.Contains(r.Change, c.words) || c.not != "" && strings.Contains(r.Change+r.Command, c.not) || !r.Direct {
			t.Errorf("%s: %+v", c.line, r)
		}
	}
	unknown := machinetest.Fixture{Cpu: machinetest.Xeon, Tree: machinetest.Planted("ACS2", "acs=0x1d")}.Open(t)
	if r := p2p.OpenPorts(unknown, []string{"0000:02:00.0"}); r.Command != one || !strings.Contains(r.Change, "could not be read") {
		t.Errorf("%+v", r)
	}
}

// The drivers of Intel's GPUs keep one list each, too.
func TestForcedDevices(t *testing.T) {
	for line, want := range map[string]string{
		"":                    "xe.force_probe=56c0",
		"xe.force_probe=4680": "xe.force_probe=4680,56c0",
		"xe.force_probe=56c0": "xe.force_probe=56c0",
		"xe.force_probe=*":    "xe.force_probe=*",
		// A driver leaves alone what is in its list both ways.
		"xe.force_probe=!56c0":        "xe.force_probe=56c0",
		"xe.force_probe=4680,!0x56C0": "xe.force_probe=4680,56c0",
		"xe.force_probe=0x56c0,4680":  "xe.force_probe=0x56c0,4680",
		"xe.force_probe=!*":           "xe.force_probe=56c0",
		"xe.force_probe=*,4680":       "xe.force_probe=*,4680,56c0", // "*" beside others means nothing
	} {
		m := machinetest.Fixture{Tree: machinetest.Planted(), Files: map[string]string{"proc/cmdline": line}}.Open(t)
		if got := m.Forced("xe.force_probe", "56c0"); got != want {
			t.Errorf("%q: %q", line, got)
		}
	}
	for line, want := range map[string]string{
		"i915.force_probe=*":         "i915.force_probe=!56c0",
		"i915.force_probe=!*":        "i915.force_probe=!*",
		"i915.force_probe=4680,56c0": "i915.force_probe=4680,!56c0",
		"i915.force_probe=!56c0":     "i915.force_probe=!56c0",
	} {
		m := machinetest.Fixture{Tree: machinetest.Planted(), Files: map[string]string{"proc/cmdline": line}}.Open(t)
		if got := m.Forced("i915.force_probe", "!56c0"); got != want {
			t.Errorf("%q: %q", line, got)
		}
	}
}

// The remedy names no setting that is already on.
func TestRouteRemedy(t *testing.T) {
	const rr, cr, dt = pci.ACSRequestRedirect, pci.ACSCompletionRedirect, pci.ACSDirectTranslated
	for _, c := range []struct {
		bits         pci.ACSBits
		ats, relaxed bool
		want         string
	}{
		{rr, true, false, "turn the port's redirection off"},
		{rr | dt, false, false, "turn ATS on in the NIC's firmware, or turn the port's redirection off"},
		{cr, false, false, "turn relaxed ordering on, or turn the port's redirection off"},
		{rr | cr | dt, true, false, "turn relaxed ordering on, or turn the port's redirection off"},
		{rr | cr | dt, false, true, "turn ATS on in the NIC's firmware, or turn the port's redirection off"},
		{rr | cr, true, true, "turn the port's redirection off"},
	} {
		if r := p2p.RouteRemedy(c.bits, c.ats, c.relaxed); r.Change != c.want {
			t.Errorf("%v %v %v: %q", c.bits, c.ats, c.relaxed, r.Change)
		}
	}
}

// iommu=pt is x86's.
func TestPassThroughOnArm(t *testing.T) {
	const arm = "processor\t: 0\nCPU implementer\t: 0x41\n"
	for processor, want := range map[string]string{arm: "iommu.passthrough=1", "": "iommu=pt"} {
		edits := []edit{swap(":identity", ":DMA-FQ")}
		if processor != "" {
			edits = append(edits, cpu(processor))
		}
		found := checked(t, machineNamed(t, "small-mi300"), check.Live{}, "ISO-IOMMU-MODE", edits...)
		if found[0].Result != p2p.ResultWarn || found[0].Remedy.Command != want {
			t.Errorf("%q: %+v", processor, found[0].Remedy)
		}
	}
}

// An IOMMU that translates does no harm where the driver maps the GPU's memory in it.
func TestTranslatedCoherentMemory(t *testing.T) {
	for _, id := range []string{"ISO-IOMMU-MODE", "NV-PARAMS"} {
		for _, f := range checked(t, machineNamed(t, "grace"), check.Live{}, id, swap(":identity", ":DMA-FQ")) {
			if f.Result != p2p.ResultPass {
				t.Errorf("%s: %v: %s", id, f.Result, f.Read)
			}
		}
	}
}

// A finding names the GPU or memory that a blocked address belongs to.
func TestFaultedIn(t *testing.T) {
	found := checked(t, testenv.Machines["small-mi300"](), check.Live{}, "ISO-FAULTS", log("AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:14:00.0 domain=0x1 address=0x200000001000 flags=0x0]"))
	if worst(found) != p2p.ResultFail || !strings.Contains(found[0].Read, "; the address is in BAR 0 of 0000:13:00.0") {
		t.Error(said(found))
	}
}

// A NIC that is below the GPU's switch already needs no other place: the ports' ACS is in
// the way, for drivers that do not ask the kernel, too.
func TestVerdictOfRedirectedPair(t *testing.T) {
	edits := []edit{cpu(machinetest.Xeon), release("6.1.1"), swap("acs=0x00", "acs=0x1d"), swap("vendor=0x8086 device=0x09a2", "vendor=0x8086 device=0x1")}
	below := func(id string) *chain.Remedy {
		found := checked(t, testenv.Machines["small-hgx"](), check.Live{}, id, edits...)
		for _, f := range found {
			if f.Result == warn && strings.Contains(f.Read, "ACS redirect at") {
				return f.Remedy
			}
		}
		t.Errorf("%s: %v", id, said(found))
		return &chain.Remedy{}
	}
	if verdict, list := below("P2P-VERDICT"), below("P2P-ACS-LIST"); *verdict != *list || !strings.HasPrefix(verdict.Command, p2p.OpenParameter) {
		t.Errorf("%+v, and of the ports %+v", verdict, list)
	}
}

// The configuration is copied from where it was read.
func TestCopiedConfiguration(t *testing.T) {
	const to = "/boot/config-7.2.12+deb13-amd64"
	for source, want := range map[string]string{
		"proc/config.gz":                            "zcat /proc/config.gz > " + to,
		"lib/modules/7.2.12+deb13-amd64/config":     "cp /lib/modules/7.2.12+deb13-amd64/config " + to,
		"usr/lib/modules/7.2.12+deb13-amd64/config": "cp /usr/lib/modules/7.2.12+deb13-amd64/config " + to,
	} {
		text := machinetest.WithP2P
		if strings.HasSuffix(source, ".gz") {
			text = machinetest.Zipped(t, machinetest.WithP2P)
		}
		found := checked(t, testenv.Machines["small-mi300"](), check.Live{}, "KRN-CONFIG-SRC", config("-"), exactly(source, text), put("boot/vmlinuz", ""))
		if len(found) != 1 || found[0].Result != warn || found[0].Remedy.Command != want {
			t.Errorf("%s: %v, want %q", source, said(found), want)
		}
	}
}

// The mapping for PCIe is asked for where the driver lets it through and it is the shorter way.
// Elsewhere C2C is the right one, and no remedy turns that off.
func TestCoherentWay(t *testing.T) {
	beside := func(group string) edit {
		return func(f *testenv.Tree) func(*testing.T, string) {
			f.Functions += "pci0008:00/0008:00:00.0/0008:01:00.1 class=0x020000 vendor=0x15b3 device=0x1021 driver:mlx5_core dma_mask_bits=64 rdma:mlx5_9 " + group + "\n"
			return nil
		}
	}
	for name, c := range map[string]struct {
		edits []edit
		want  p2p.Result
	}{
		"on the CPU's ports":              {nil, pass},
		"beside the GPU, in one group":    {[]edit{beside("group=1:DMA-FQ")}, warn},
		"beside the GPU, in another":      {[]edit{beside("group=7:DMA-FQ")}, pass},
		"beside the GPU, without IOMMU":   {[]edit{beside(""), swap("group=", "none=")}, warn},
		"on the CPU's ports, in no group": {[]edit{swap("group=", "none=")}, pass},
		"beside the GPU, not known":       {[]edit{beside("group=7:DMA-FQ"), unreadable("sys/devices/pci0008:00/*/0008:01:00.1/iommu_group")}, unknown},
		"without NIC":                     {[]edit{swap(" rdma:", " none:")}, pass},
	} {
		found := checked(t, testenv.Machines["grace"](), check.Live{}, "NV-COHERENT", c.edits...)
		if len(found) != 1 || found[0].Result != c.want {
			t.Errorf("%s: %v", name, said(found))
			continue
		}
		r := found[0].Remedy
		if c.want == warn && (!strings.Contains(r.Change, "CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE") || !strings.Contains(found[0].Read, "mlx5_9") || r.Command != "") {
			t.Errorf("%s: %s: %+v", name, found[0].Read, r)
		}
	}
}

// Each way past the comparison of IOMMU groups, of the drivers that have it.
func TestWaysPastTheComparison(t *testing.T) {
	series := func(v string) edit { return swap("580.95.05", v) }
	override := func(v string) edit {
		return swap("GrdmaPciTopoCheckOverride: 0", "GrdmaPciTopoCheckOverride: "+v)
	}
	const parameter = "options nvidia NVreg_GrdmaPciTopoCheckOverride=1"
	for name, c := range map[string]struct {
		edits         []edit
		want          p2p.Result
		read, command string
	}{
		"580":               {nil, warn, "refused with ENOTSUPP (524)", parameter},
		"590":               {[]edit{series("590.48.01")}, warn, "refused with ENOTSUPP (524)", parameter},
		"570":               {[]edit{series("570.124.06")}, warn, "maps nothing", parameter},
		"595":               {[]edit{series("595.45.04")}, warn, "does not change that from 595 on", ""},
		"595 with override": {[]edit{series("595.45.04"), override("1")}, warn, "does not change that from 595 on", ""},
		"580 with override": {[]edit{override("1")}, pass, "lets the PCIe mapping through", ""},
		"580, closed":       {[]edit{override("2")}, warn, "refused with ENOTSUPP (524)", parameter},
		"570 with override": {[]edit{series("570.124.06"), override("2")}, pass, "lets the PCIe mapping through", ""},
		"565":               {[]edit{series("565.57.01")}, pass, "has no PCIe mapping", ""},
	} {
		found := checked(t, testenv.Machines["grace"](), check.Live{}, "P2P-NV-FORCEPCIE", c.edits...)
		if len(found) != 1 || found[0].Result != c.want || !strings.Contains(found[0].Read, c.read) {
			t.Errorf("%s: %v", name, said(found))
			continue
		}
		if r := found[0].Remedy; c.want == warn && (r == nil || r.Command != c.command || !strings.HasPrefix(r.Change, "for these NICs export without that flag")) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

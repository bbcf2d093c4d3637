// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/check/gpucheck"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// subject has all devices of a machine.
func subject(m *machine.Machine) check.Subject {
	s, _ := inventory(m)
	return s
}

// inventory also returns the error for devices that could not be read: a run with such an error is not
// good, whatever its checks find.
func inventory(m *machine.Machine) (check.Subject, error) {
	var s check.Subject
	var err1, err2 error
	s.GPUs, err1 = drivers.GPUs(m)
	s.NICs, err2 = drivers.NICs(m)
	for _, g := range s.GPUs {
		for _, n := range s.NICs {
			s.Pairs = append(s.Pairs, p2p.Judge(m, g, n))
		}
	}
	return s, errors.Join(err1, err2)
}

// checked are a check's findings on an edited machine.
func checked(t *testing.T, tree testenv.Tree, live check.Live, id string, edits ...edit) []check.Finding {
	t.Helper()
	m, s, _ := only(written(t, tree, edits), id, live)
	return Run(m, s)
}

// worst is the worst result of some findings.
func worst(all []check.Finding) p2p.Result {
	r := p2p.ResultSkip
	rank := []p2p.Result{p2p.ResultSkip, p2p.ResultPass, p2p.ResultWarn, p2p.ResultUnknown, p2p.ResultFail}
	for _, f := range all {
		if slices.Index(rank, f.Result) > slices.Index(rank, r) {
			r = f.Result
		}
	}
	return r
}

const (
	amdGPU  = "sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0/0000:13:00.0"
	amdNIC  = "sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:01.0/0000:14:00.0"
	wrongG  = "sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0"
	aPort   = amdNIC + "/infiniband/bnxt_re0/ports/1"
	aPorts  = amdNIC + "/infiniband/bnxt_re0/ports"
	hgxPort = amdNIC + "/infiniband/mlx5_0/ports/1"
	truncat = "class=0x060400 type=6 config=64 "
)

func TestChecks(t *testing.T) {
	testenv.Exhaustive(t)
	all := map[string]bool{}
	cases := checkCases()
	for _, c := range All() {
		if all[c.ID] {
			t.Errorf("%s is there twice", c.ID)
		}
		all[c.ID] = true
		if c.Title == "" || c.Why == "" || c.Ref == "" || c.Worst != p2p.ResultFail && c.Worst != p2p.ResultWarn || c.Run == nil {
			t.Errorf("%s is not described", c.ID)
		}
		if len(cases[c.ID]) == 0 {
			t.Errorf("%s is not tested", c.ID)
		}
	}
	for id, list := range cases {
		if !all[id] {
			t.Errorf("no check is called %s", id)
		}
		for i, c := range list {
			t.Run(fmt.Sprintf("%s/%d_%v", id, i, c.want), func(t *testing.T) {
				found := checked(t, machineNamed(t, c.on), c.live, id, c.edits...)
				if got := worst(found); got != c.want {
					t.Errorf("%s: %v, want %v: %v", c.on, got, c.want, said(found))
				}
				for _, f := range found {
					sane(t, f)
				}
			})
		}
	}
}

// said are the findings as text, for messages of tests.
func said(all []check.Finding) []string {
	var out []string
	for _, f := range all {
		out = append(out, fmt.Sprintf("%v %v: %s", f.Result, f.Scope, f.Read))
	}
	return out
}

// sane tests rules that hold for every finding.
func sane(t *testing.T, f check.Finding) {
	t.Helper()
	if f.Result == p2p.ResultFail && f.Check.Worst != p2p.ResultFail {
		t.Errorf("%s fails, and says that it only warns", f.Check.ID)
	}
	if f.Read == "" || strings.Contains(f.Read, "%!") || strings.Contains(f.Read, testenv.TreeName) {
		t.Errorf("%s read %q", f.Check.ID, f.Read)
	}
	for _, where := range f.Where {
		if strings.Contains(where, testenv.TreeName) {
			t.Errorf("%s read %q", f.Check.ID, where)
		}
	}
	if f.Result == p2p.ResultFail && f.Remedy == nil {
		t.Errorf("%s fails without a remedy", f.Check.ID)
	}
	if f.Result == p2p.ResultPass && f.Remedy != nil {
		t.Errorf("%s passes, and has a remedy", f.Check.ID)
	}
}

// A value that only a library knows is unknown in a copy of a machine, and decides nothing. If the
// library is there and fails, the finding decides.
func TestUnasked(t *testing.T) {
	broken := errors.New("broken")
	none := fmt.Errorf("%w: no libcuda.so.1", check.ErrNotAsked)
	for _, c := range []struct {
		live  check.Live
		hides bool
	}{
		{check.Live{}, false},
		{check.Live{DMABuf: func() (map[pciaddr.Addr]check.Export, error) { return nil, none }}, false},
		{check.Live{DMABuf: func() (map[pciaddr.Addr]check.Export, error) { return nil, broken }}, true},
		{check.Live{DMABuf: func() (map[pciaddr.Addr]check.Export, error) { return nil, nil }}, true},
	} {
		found := checked(t, testenv.Machines["small-hgx"](), c.live, "NV-DMABUF-ATTR")
		if len(found) == 0 || worst(found) != p2p.ResultUnknown || found[0].Hides() != c.hides {
			t.Errorf("%v: %+v", c.hides, found)
		}
	}
}

// No NIC reaches a GPU that is gone, or whose BAR has no address.
func TestNoGPUBehindTheDriver(t *testing.T) {
	for name, c := range map[string]struct {
		change edit
		words  string
		remedy bool
	}{
		"dead GPU":        {dead(amdGPU), "0000:13:00.0 does not answer", true},
		"dead NIC":        {dead(amdNIC), "0000:14:00.0 does not answer", true},
		"no address":      {put(amdGPU+"/resource", "0x0 0x3fffffffff 0x14220c"), "no address", false},
		"unset":           {put(amdGPU+"/resource", "0x80000000 0x80ffffff 0x40200\n0x1000 0x3fffffffff 0x2014220c"), "no address", false},
		"no BAR is there": {put(amdGPU+"/resource", "0x0 0x0 0x0"), "no address", false},
	} {
		for _, server := range []string{"small-hgx", "small-mi300"} {
			tree := testenv.Machines[server]()
			later := c.change(&tree)
			root := tree.Write(t)
			if later != nil {
				later(t, root)
			}
			tried := 0
			for _, p := range subject(machine.Open(root)).Pairs {
				concerned := p.GPU.Name == "0000:13:00.0" && name != "dead NIC" || name == "dead NIC" && *p.NIC.Importer.PCI == machinetest.Addr(t, "14:00.0")
				if !concerned {
					if p.Prediction.Outcome != chain.Direct {
						t.Errorf("%s, %s: %s: %v", name, server, p.Name(), p.Prediction)
					}
					continue
				}
				tried++
				if p.Prediction.Outcome != chain.Broken || p.Verdict.Outcome() != chain.Broken || !strings.Contains(p.Prediction.String(), c.words) {
					t.Errorf("%s, %s: %v", name, server, p.Prediction)
				}
				if c.remedy && (p.Remedy == nil || !strings.Contains(p.Remedy.Change, "reboot") || p.Remedy.Command != "") {
					t.Errorf("%s, %s: %+v", name, server, p.Remedy)
				}
			}
			if tried == 0 {
				t.Errorf("%s, %s: no pair", name, server)
			}
		}
	}
}

// On a machine without files only checks pass that need none.
func TestNothingPassesOfNothing(t *testing.T) {
	for name, root := range map[string]string{"empty": t.TempDir(), "missing": filepath.Join(t.TempDir(), "none")} {
		m := machine.Open(root)
		for _, f := range Run(m, subject(m)) {
			if f.Result == p2p.ResultPass {
				t.Errorf("%s: %s passes: %s", name, f.Check.ID, f.Read)
			}
		}
	}
}

// On healthy machines the only failures are those of the machine's shape.
func TestMachinesAsTheyAre(t *testing.T) {
	for name, want := range map[string][]string{
		"hgx":          nil,
		"wrong-socket": nil,
		"mi300":        nil,
		"grace":        nil,
		"xe":           {"P2P-VERDICT"},
		"flat-vm":      nil,
	} {
		m := machine.Open(testenv.Machines[name]().Write(t))
		var failed []string
		for _, f := range Run(m, subject(m)) {
			sane(t, f)
			if f.Result == p2p.ResultFail && !slices.Contains(failed, f.Check.ID) {
				failed = append(failed, f.Check.ID)
			}
		}
		if !slices.Equal(failed, want) {
			t.Errorf("%s: %v fail, want %v", name, failed, want)
		}
	}
}

func TestSkip(t *testing.T) {
	m := machine.Open(testenv.MI300().Write(t))
	s := subject(m)
	for skip, left := range map[string]func(*check.Check) bool{
		"NET":         func(c *check.Check) bool { return c.Family() != "NET" },
		"KRN-VERSION": func(c *check.Check) bool { return c.ID != "KRN-VERSION" },
		"all":         func(*check.Check) bool { return false },
	} {
		s.Skip = []string{skip}
		for _, f := range Run(m, s) {
			if !left(f.Check) {
				t.Errorf("without %s there is %s", skip, f.Check.ID)
			}
		}
	}
}

// mlx5's table, as its source has it.
func TestRoutes(t *testing.T) {
	const x = 2
	for _, c := range []struct {
		cr, rr, dt, ats, ro int
		want                p2p.Route
	}{
		{0, 0, x, x, x, p2p.RouteGood},
		{0, 1, 0, x, x, p2p.RouteLost},
		{0, 1, 1, 0, x, p2p.RouteLost},
		{0, 1, 1, 1, x, p2p.RouteTranslated},
		{1, 0, x, x, 1, p2p.RouteOpen},
		{1, 0, 1, x, 0, p2p.RouteLost},
		{1, 1, 0, x, 0, p2p.RouteSlow},
		{1, 1, 1, 0, 0, p2p.RouteSlow},
		{1, 1, 1, 1, 0, p2p.RouteLost},
		{1, 1, 1, 1, 1, p2p.RouteOpen},
	} {
		values := func(n int) []bool { return [][]bool{{false}, {true}, {false, true}}[n] }
		for _, dt := range values(c.dt) {
			for _, ats := range values(c.ats) {
				for _, ro := range values(c.ro) {
					if got := p2p.RouteOf(c.cr == 1, c.rr == 1, dt, ats, ro); got != c.want {
						t.Errorf("%+v (%v %v %v): %v", c, dt, ats, ro, got)
					}
				}
			}
		}
	}
}

// A kernel that is locked down refuses commands that change a device's registers.
func TestRemediesUnderLockdown(t *testing.T) {
	locked := put("sys/kernel/security/lockdown", "none [integrity] confidentiality")
	slow := swap("dma_mask_bits=64", "devctl=0x0040")
	for _, c := range []struct {
		on, id, command string
		live            check.Live
		edits           []edit
	}{
		{"small-mi300", "ISO-RO", "setpci -s 0000:14:00.0 CAP_EXP+8.w=10:10", check.Live{}, []edit{swap("acs=0x00", "acs=0x1d"), slow}},
		{"small-mi300", "PCIE-MRRS", "setpci -s 0000:14:00.0 CAP_EXP+8.w=5000:7000", check.Live{}, []edit{slow}},
		{"small-hgx", "NV-CC", "nvidia_gpu_tools.py --set-cc-mode=off --reset-after-cc-mode-switch", confidential(true, nil), nil},
	} {
		of := func(edits ...edit) *check.Finding {
			for _, f := range checked(t, testenv.Machines[c.on](), c.live, c.id, edits...) {
				if f.Result == p2p.ResultWarn || f.Result == p2p.ResultFail {
					return &f
				}
			}
			return nil
		}
		open, shut := of(c.edits...), of(append(c.edits, locked)...)
		if open == nil || open.Remedy.Command != c.command {
			t.Errorf("%s: %+v", c.id, open)
		}
		if shut == nil || shut.Remedy.Command != "" || !strings.Contains(shut.Remedy.Change, "locked down") || shut.Remedy.Weakens != open.Remedy.Weakens {
			t.Errorf("%s: %+v", c.id, shut)
		}
	}
}

// One of the driver's settings is about peers; the others are kept out of snapshots.
func TestPeerMappingOverride(t *testing.T) {
	set := swap("EnableResizableBar: 0", "EnableResizableBar: 0\nRegistryDwords: \"RMOther=0x2;PeerMappingOverride=0x1;\"")
	found := checked(t, testenv.Machines["small-hgx"](), check.Live{}, "NV-PARAMS", set)
	if len(found) != 1 || found[0].Result != p2p.ResultPass || !strings.HasSuffix(found[0].Read, ", PeerMappingOverride=0x1") {
		t.Error(said(found))
	}
	for line, want := range map[string]bool{
		`RegistryDwords: "PeerMappingOverride=1;"`: true, `RegistryDwords: "PeerMappingOverride=1"`: true,
		`RegistryDwords: "PeerMappingOverride=1;RMOther=2"`: false, `RegistryDwords: "RMOther=2"`: false, "RegistryDwordsPerDevice: PeerMappingOverride=1": false,
		"DmaRemapPeerMmio: 1": true, "ExcludedGpus: x": false,
	} {
		if gpucheck.NVIDIAParameter(line) != want {
			t.Errorf("%s: %v", line, !want)
		}
	}
}

// Without the kernel's file only the firmware can choose a BAR's size.
func TestResizeRemedy(t *testing.T) {
	more := swap("device=0x2330", "device=0x2330 rebar=0x60000")
	for _, c := range []struct {
		edits   []edit
		command string
	}{
		{[]edit{put(amdGPU+"/resource0_resize", "0000000000060000")}, "echo 18 > /sys/bus/pci/devices/0000:13:00.0/resource0_resize"},
		{[]edit{drop(amdGPU + "/resource0_resize"), more, release("5.15.1")}, ""},
	} {
		for _, f := range checked(t, testenv.Machines["small-hgx"](), check.Live{}, "PCIE-REBAR", c.edits...) {
			if f.Result != p2p.ResultWarn {
				continue
			}
			if f.Read != "128 GiB, and it could have 256 GiB" || f.Remedy == nil || f.Remedy.Command != c.command {
				t.Errorf("%+v %+v", f, f.Remedy)
			}
		}
	}
}

// Some GPUs have a switch inside, whose link slows down with them. Others' does
// not.
func TestSwitchInsideAGPU(t *testing.T) {
	speed := put(wrongG+"/current_link_speed", "2.5 GT/s PCIe")
	inside := swap("vendor=0x1000", "vendor=0x1002")
	if found := checked(t, testenv.Machines["small-mi300"](), check.Live{}, "PCIE-LINK", speed, inside); worst(found) != p2p.ResultUnknown {
		t.Error(said(found))
	}
	if found := checked(t, testenv.Machines["small-mi300"](), check.Live{}, "PCIE-LINK", speed); worst(found) != p2p.ResultFail {
		t.Error(said(found))
	}
}

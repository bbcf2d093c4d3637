// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

func TestLinkRate(t *testing.T) {
	for s, want := range map[machine.LinkState]string{
		{Speed: 2.5, Width: 1}: "0.25", {Speed: 8, Width: 8}: "7.88", {Speed: 16, Width: 16}: "31.51", {Speed: 32, Width: 16}: "63.02", {Speed: 64, Width: 16}: "118.00",
	} {
		if got := fmt.Sprintf("%.2f", float64(s.Rate())/1e9); got != want {
			t.Errorf("%v: %s GB/s, want %s", s, got, want)
		}
	}
}

// The slowest link counts of those that the traffic takes, which are fewer where it
// turns below the root.
func TestWay(t *testing.T) {
	const uplink, gpu, nic = "0000:11:00.0", "0000:13:00.0", "0000:14:00.0"
	slow := func(dir, speed, most string) edit {
		return func(f *testenv.Tree) func(*testing.T, string) {
			put(dir+"/current_link_speed", speed+" GT/s PCIe")(f)
			put(dir+"/max_link_speed", most+" GT/s PCIe")(f)
			return nil
		}
	}
	all := func(edits ...edit) []edit { return edits }
	redirects := swap("acs=0x00", "acs=0x1d")
	hidden := swap("type=6 ", "type=6 config=1024 ")
	noRoot := swap(" type=", " config=64 type=")
	for name, c := range map[string]struct {
		on      string
		edits   []edit
		rate    float64 // GB/s
		slowest string
		narrow  bool
	}{
		"all alike":                       {"small-mi300", nil, 63.0, gpu, false},
		"turns below the uplink":          {"small-mi300", all(slow(wrongG, "16.0", "16.0")), 63.0, gpu, false},
		"goes over it":                    {"small-mi300", all(slow(wrongG, "16.0", "16.0"), redirects), 31.5, uplink, true},
		"translated at the root":          {"small-hgx", all(slow(wrongG, "16.0", "16.0"), swap(":identity", ":DMA-FQ"), release("6.8.0-60-generic")), 31.5, uplink, true},
		"whether it is is not known":      {"small-hgx", all(slow(wrongG, "16.0", "16.0"), swap(":identity", ":?")), 0, "", false},
		"and no matter":                   {"small-hgx", all(swap(":identity", ":?")), 63.0, gpu, false},
		"the uplink trained badly":        {"small-mi300", all(slow(wrongG, "16.0", "32.0"), redirects), 31.5, uplink, false},
		"the NIC is slow":                 {"small-mi300", all(slow(amdNIC, "16.0", "16.0")), 31.5, nic, false},
		"the NIC is no faster either":     {"small-mi300", all(slow(amdNIC, "16.0", "16.0"), slow(wrongG, "16.0", "16.0"), redirects), 31.5, uplink, false},
		"the GPU is idle":                 {"small-mi300", all(slow(amdGPU, "2.5", "32.0")), 63.0, gpu, false},
		"ACS is not known, and no matter": {"small-mi300", all(hidden), 63.0, gpu, false},
		"ACS is not known":                {"small-mi300", all(hidden, slow(wrongG, "16.0", "16.0")), 0, "", false},
		"the ports' kinds are not known":  {"small-mi300", all(noRoot), 0, "", false},
		"nor that of one that is slow":    {"small-mi300", all(swap("type=5 ", "type=5 config=64 "), slow(wrongG, "16.0", "16.0")), 0, "", false},
		"no link is known":                {"small-mi300", all(swap("current_link_width=16", "")), 0, "", false},
		"over the root":                   {"wrong-socket", nil, 63.0, "0000:11:00.0", false},
		"a guest":                         {"flat-vm", nil, 0, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			tree := testenv.Machines[c.on]()
			for _, e := range c.edits {
				e(&tree)
			}
			m := machine.Open(tree.Write(t))
			p := subject(m).Pairs[0]
			w, ok := p2p.WayOf(m, p, m.Function)
			if !ok {
				w = p2p.Way{} // WayOf's first result means nothing without the second
			}
			if ok != (c.rate > 0) || fmt.Sprintf("%.1f", float64(w.Rate)/1e9) != fmt.Sprintf("%.1f", c.rate) || w.Narrow != c.narrow || ok && w.Slowest != machinetest.Addr(t, c.slowest) {
				t.Errorf("%s: %+v, %v", p.Name(), w, ok)
			}
		})
	}
}

// One finding names a link that is too slow for many pairs, with some of the pairs.
func TestNarrowLinkIsToldOnce(t *testing.T) {
	found := checked(t, testenv.Machines["mi300"](), check.Live{}, "PCIE-LINK", put(wrongG+"/current_link_width", "8"), put(wrongG+"/max_link_width", "8"))
	found = slices.DeleteFunc(found, func(f check.Finding) bool { return f.Result == p2p.ResultPass })
	if len(found) != 1 || len(found[0].Scope) != 1 || !strings.Contains(found[0].Read, "31.5 GB/s at most, where the links of GPU and NIC have up to 63.0, on the way of 0000:13:00.0 -> bnxt_re2") || !strings.Contains(found[0].Read, " more") {
		t.Error(said(found))
	}
}

// Of many pairs the IOMMU's groups make one finding a GPU at most.
func TestGroups(t *testing.T) {
	found := checked(t, testenv.Machines["mi300"](), check.Live{}, "ISO-GROUP")
	if len(found) > 8 || worst(found) != p2p.ResultPass {
		t.Errorf("%d findings: %v", len(found), said(found))
	}
	for _, c := range []struct {
		edits []edit
		want  string
	}{
		{nil, "other groups than bnxt_re0, bnxt_re1 below a common bridge, where a port can redirect"},
		{[]edit{swap(":identity", ":DMA")}, "and most likely does, because the IOMMU translates"},
		{[]edit{swap("group=4:", "group=6:")}, "one group with bnxt_re0; other groups than bnxt_re1 below a common bridge, where a port can redirect"},
		{[]edit{swap("group=", "none=")}, "no IOMMU"},
		{[]edit{swap("pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:03.0/0000:16:00.0", "pci0000:10/0000:10:05.0/0000:16:00.0")}, "other groups than bnxt_re1 over the root"},
	} {
		found := checked(t, testenv.Machines["small-mi300"](), check.Live{}, "ISO-GROUP", c.edits...)
		if !slices.ContainsFunc(found, func(f check.Finding) bool { return strings.Contains(f.Read, c.want) && f.Result == p2p.ResultPass }) {
			t.Errorf("%q is not there: %v", c.want, said(found))
		}
	}
}

// The registers of a virtual function's link read as zero: it has its physical one's.
func TestLinkOfAVirtualFunction(t *testing.T) {
	for width, want := range map[string]p2p.Result{"16": p2p.ResultPass, "4": p2p.ResultFail} {
		tree := testenv.Machines["small-mi300"]()
		pf := strings.TrimSuffix(amdNIC, "14:00.0") + "14:00.7"
		tree.Functions += "\n" + strings.TrimPrefix(pf, "sys/devices/") + " class=0x020000 current_link_speed=32.0_GT/s_PCIe current_link_width=" + width + " max_link_speed=32.0_GT/s_PCIe max_link_width=16\n"
		tree.Texts[amdNIC+"/physfn"] = "../0000:14:00.7"
		found := checked(t, tree, check.Live{}, "PCIE-LINK", put(amdNIC+"/current_link_speed", "Unknown"), put(amdNIC+"/current_link_width", "0"))
		if worst(found) != want {
			t.Errorf("width %s: %v", width, said(found))
		}
	}
}

// A proof's rates are compared with the slowest link on the way of the bytes, at the best rate that
// both of its ends have: a link that trained slowly may be fast by now.
func TestNarrowestLink(t *testing.T) {
	slow := func(dir, speed, most string) edit {
		return func(f *testenv.Tree) func(*testing.T, string) {
			put(dir+"/current_link_speed", speed+" GT/s PCIe")(f)
			put(dir+"/max_link_speed", most+" GT/s PCIe")(f)
			return nil
		}
	}
	for want, edits := range map[string][]edit{
		"the narrowest link (0000:13:00.0) passes 63.0 GB/s": {slow(wrongG, "16.0", "16.0")},
		"the narrowest link (0000:11:00.0) passes 31.5 GB/s": {slow(wrongG, "8.0", "16.0"), swap("acs=0x00", "acs=0x1d")},
		"the narrowest link (0000:14:00.0) passes 31.5 GB/s": {slow(amdNIC, "8.0", "16.0")},
	} {
		if found := proven(t, "ACT-BW", climb(chain.Direct, p2p.RungRelease), edits...); !strings.Contains(found[0].Read, want) {
			t.Errorf("%s: %v", want, said(found))
		}
	}
	flits := swap("32.0_GT/s", "64.0_GT/s")
	if found := proven(t, "ACT-BW", climb(chain.Direct, p2p.RungRelease), flits); !strings.Contains(found[0].Read, "passes 118.0 GB/s") {
		t.Errorf("flits: %v", said(found))
	}
}

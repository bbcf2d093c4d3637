// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
)

// The check names a NIC without its RDMA device, with a remedy. It says nothing about other
// functions without one: a card of a bond, a virtual function that is not in use, a card of another
// kind.
func TestLostNICs(t *testing.T) {
	const nic = "0000:16:00.0"
	without := swap("rdma:bnxt_re1", "none:")
	for _, c := range []struct {
		name    string
		on      string
		edits   []edit
		read    string // "" where nothing is to be said
		command string
	}{
		{"as it should be", "small-mi300", nil, "", ""},
		{"no RDMA device", "small-mi300", []edit{without}, "bnxt_en is bound to it, and it has no RDMA device; 0000:14:00.0 has an RDMA device", "modprobe bnxt_re"},
		{"no driver", "small-mi300", []edit{swap("driver:bnxt_en dma_mask_bits=64 "+gen5Attrs+" numa_node=0 ats=0 rdma:bnxt_re1", "none=0")}, "no driver is bound to it; 0000:14:00.0 has an RDMA device", "echo " + nic + " > /sys/bus/pci/drivers_probe"},
		{"another driver", "small-mi300", []edit{swap("driver:bnxt_en dma_mask_bits=64 "+gen5Attrs+" numa_node=0 ats=0 rdma:bnxt_re1", "driver:tg3")}, "", ""},
		{"a bond", "small-mi300", []edit{swap("0000:16:00.0 ", "0000:14:00.1 "), without, put(strings.Replace(amdNIC, "12:01.0/0000:14:00.0", "12:03.0/0000:14:00.1", 1)+"/net/eth1/bonding_slave/state", "active")}, "", ""},
	} {
		found := checked(t, testenv.Machines[c.on](), check.Live{}, "NIC-PRESENT", c.edits...)
		i := slices.IndexFunc(found, func(f check.Finding) bool {
			return slices.ContainsFunc(f.Scope, func(s string) bool { return strings.HasPrefix(s, "0000:") })
		})
		if c.read == "" {
			if worst(found) != p2p.ResultPass {
				t.Errorf("%s: %v", c.name, said(found))
			}
			continue
		}
		if i < 0 || found[i].Result != p2p.ResultWarn || found[i].Read != c.read || found[i].Remedy.Command != c.command {
			t.Errorf("%s: %v", c.name, said(found))
			continue
		}
		if c.on == "small-mi300" && !slices.Equal(found[i].Scope, []string{nic}) {
			t.Errorf("%s: %v", c.name, found[i].Scope)
		}
	}
	tree := testenv.Machines["small-mi300"]()
	if found := checked(t, tree, check.Live{}, "NIC-PRESENT", swap("driver:bnxt_en dma_mask_bits=64 "+gen5Attrs+" numa_node=0 ats=0 rdma:bnxt_re1", "none=0"), text("sys/bus/pci/devices/"+nic+"/physfn", "../0000:14:00.0")); worst(found) != p2p.ResultPass {
		t.Errorf("a virtual function: %v", said(found))
	}
}

const gen5Attrs = "current_link_speed=32.0_GT/s_PCIe current_link_width=16 max_link_speed=32.0_GT/s_PCIe max_link_width=16"

// A NIC whose ports cannot be read hides no other, and is there.
func TestOneUnreadableNIC(t *testing.T) {
	for name, bad := range map[string]edit{"its ports": unreadable(aPorts), "its link": unreadable("sys/class/infiniband/bnxt_re0")} {
		found := checked(t, testenv.Machines["small-mi300"](), check.Live{}, "NIC-PRESENT", bad)
		others, itself := false, false
		for _, f := range found {
			others = others || f.Result == p2p.ResultPass && len(f.Scope) == 0
			itself = itself || f.Result == p2p.ResultUnknown && slices.Equal(f.Scope, []string{"bnxt_re0"})
		}
		if !others || !itself || worst(found) != p2p.ResultUnknown {
			t.Errorf("%s: %v", name, said(found))
		}
	}
	// The only ones there are.
	if found := checked(t, testenv.Machines["small-mi300"](), check.Live{}, "NIC-PRESENT", unreadable("sys/class/infiniband/*")); worst(found) != p2p.ResultUnknown {
		t.Error(said(found))
	}
}

// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// inGuest gives a machine's processor the hypervisor's flag.
var inGuest = swap("flags\t\t: ", "flags\t\t: hypervisor ")

// A check that passes on the hardware is unknown in a guest that sees the same tree. A check that
// does not pass on the hardware does not pass in the guest.
func TestGuestsTree(t *testing.T) {
	for _, id := range check.Physical {
		if found := checked(t, testenv.Machines["small-mi300"](), check.Live{}, id); worst(found) != p2p.ResultPass {
			t.Errorf("%s on the hardware: %v", id, said(found))
		}
		found := checked(t, testenv.Machines["small-mi300"](), check.Live{}, id, inGuest)
		for _, f := range found {
			sane(t, f)
			if f.Result != p2p.ResultUnknown || !strings.Contains(f.Read, machine.InventedTree) || f.Remedy == nil {
				t.Errorf("%s in a guest: %v", id, said(found))
			}
		}
	}
	if found := checked(t, testenv.Machines["small-mi300"](), check.Live{}, "P2P-ACS-LIST", inGuest, swap("acs=0x00", "acs=0x1d")); worst(found) != p2p.ResultWarn {
		t.Error(said(found))
	}
}

// A guest whose pairs are direct is not known to be good: with a bridge above
// both, and without one that it could see.
func TestGuestIsNotKnownToBeGood(t *testing.T) {
	for name, edits := range map[string][]edit{
		"small-mi300":  {inGuest},
		"flat-vm":      {put("proc/driver/nvidia/params", "GrdmaPciTopoCheckOverride: 1\nDmaRemapPeerMmio: 1")},
		"wrong-socket": {inGuest, put("proc/driver/nvidia/params", "GrdmaPciTopoCheckOverride: 1\nDmaRemapPeerMmio: 1")},
	} {
		tree := testenv.Machines[name]()
		for _, e := range edits {
			e(&tree)
		}
		m := machine.Open(tree.Write(t))
		s := subject(m)
		for _, p := range s.Pairs {
			if p.Prediction.Outcome != chain.Direct || p.Verdict.Outcome() != chain.OutcomeUnknown || !strings.Contains(p.Verdict.String(), machine.InventedTree) && name == "small-mi300" {
				t.Errorf("%s: %v; %v", name, p.Prediction, p.Verdict)
			}
		}
		if found := Run(m, s); !slices.ContainsFunc(found, func(f check.Finding) bool { return f.Hides() && f.Check.ID == "P2P-ACS-LIST" }) {
			t.Errorf("%s: nothing is unknown: %v", name, said(found))
		}
	}
}

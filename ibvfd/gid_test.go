// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/gid"
)

// A context chooses from its port's table, with network devices if they matter.
func TestContextChooseGID(t *testing.T) {
	pd := scripted(t, newScript(), &kernel{reg: always(0)})
	c := pd.Context()
	if g, why, err := c.ChooseGID(1, gid.Wish{NetDev: "eth7", Peer: netip.MustParseAddr("10.9.0.2")}); err != nil || g.Index != 1 || g.NetDev != "eth7" {
		t.Errorf("%v, %q, %v", g, why, err)
	}
	if _, _, err := c.ChooseGID(1, gid.Wish{VLAN: 5}); !errors.Is(err, gid.ErrNone) || !strings.Contains(err.Error(), "choose a GID on roce0: port 1") {
		t.Errorf("VLAN 5: %v", err)
	}
	if _, _, err := c.ChooseGID(0, gid.Wish{}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("port 0: %v", err)
	}
	if _, _, err := c.ChooseGID(2, gid.Wish{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no table: %v", err)
	}
}

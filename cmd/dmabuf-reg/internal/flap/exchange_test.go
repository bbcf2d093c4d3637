// SPDX-License-Identifier: Apache-2.0

package flap

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// A network device through which TCP to the server goes is not cut: neither itself, nor what a bond or a
// VLAN lies on.
func TestSpareExchange(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"eth0", "eth1/upper_bond0", "eth2", "bond0/upper_bond0.5", "bond0/lower_eth1", "bond0.5", "lo"} {
		if err := os.MkdirAll(filepath.Join(root, "class/net", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	list := []Cable{{NIC: "mlx5_0", NetDev: "eth0"}, {NIC: "mlx5_1", NetDev: "eth1"}}
	noWay := errors.New("no way")
	for _, c := range []struct {
		addr    net.Addr
		through string
		nic     string // that must not be cut
	}{
		{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, "lo", ""},
		{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, "eth2", ""},
		{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, "eth0", "mlx5_0"},
		{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, "bond0", "mlx5_1"},
		{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, "bond0.5", "mlx5_1"},
		{&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"}, "", "mlx5_0"},
		{&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth2"}, "", ""},
		{&net.UnixAddr{}, "", ""},
	} {
		way := func(netip.Addr) (string, error) {
			if c.through == "" {
				return "", noWay
			}
			return c.through, nil
		}
		err := spareExchange(list, c.addr, way, sysfs.New(root))
		if c.nic == "" && err != nil || c.nic != "" && (!errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), c.nic) || !strings.Contains(err.Error(), "nothing was cut")) {
			t.Errorf("%v through %q: %v", c.addr, c.through, err)
		}
	}
	if err := spareExchange(list, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, func(netip.Addr) (string, error) { return "", noWay }, sysfs.New(root)); !errors.Is(err, noWay) {
		t.Error(err)
	}
}

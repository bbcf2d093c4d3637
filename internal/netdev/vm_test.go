// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func ip(t *testing.T, line string) string {
	t.Helper()
	out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v: %s", line, err, out)
	}
	return string(out)
}

// A device that was down has the addresses, neighbours and routes again that it had, and another device
// is left alone.
//
//testbed:kernel 7.2 6.12
func TestVMDownAndUp(t *testing.T) {
	testenv.VM(t)
	for _, dev := range []string{"nd0", "nd1"} {
		ip(t, "link add "+dev+" type dummy")
		t.Cleanup(func() { ip(t, "link delete "+dev) })
		ip(t, "link set "+dev+" up")
	}
	ip(t, "address add 10.97.0.1/24 dev nd0")
	ip(t, "route add 10.97.1.0/24 dev nd0")
	ip(t, "route add 10.97.2.0/24 via 10.97.0.9 dev nd0 metric 7")
	ip(t, "route add 10.97.3.0/24 via 10.97.0.9 dev nd0 table 77")
	ip(t, "neighbour add 10.97.0.9 lladdr 02:00:00:00:00:09 dev nd0")
	ip(t, "address add 10.96.0.1/24 dev nd1")
	ip(t, "route add 10.96.1.0/24 dev nd1")
	ip(t, "link add link nd0 name nd0.5 type vlan id 5") // it goes down and comes up with nd0
	ip(t, "address add 10.95.0.1/24 dev nd0.5")
	ip(t, "link set nd0.5 up")
	ip(t, "route add 10.95.1.0/24 via 10.95.0.9 dev nd0.5")
	_, none := exec.Command("ip", "-6", "address", "add", "fd97::1/64", "dev", "nd0", "nodad").CombinedOutput()
	if none == nil {
		ip(t, "-6 route add fd98::/64 via fd97::9 dev nd0")
	} else {
		t.Log("without IPv6: ", none)
	}
	looks := []string{"-4 -o address show dev nd0", "-4 route show dev nd0 table all", "neighbour show dev nd0", "-6 -o address show dev nd0 scope global", "-6 route show dev nd0 table main", "-4 route show dev nd1", "-4 route show dev nd0.5"}
	look := func() (list []string) {
		for _, l := range looks {
			list = append(list, ip(t, l))
		}
		return list
	}
	before := look()

	c, err := Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	d, err := c.Find("nd0")
	if err != nil || !d.Up || d.Name != "nd0" {
		t.Fatalf("%+v, %v", d, err)
	}
	if err := c.MaySet(d); err != nil {
		t.Error(err)
	}
	for _, to := range []string{"10.97.2.5", "10.97.0.77"} {
		if index, err := c.Way(netip.MustParseAddr(to)); err != nil || index != d.Index {
			t.Errorf("%s: device %d, %v; want %d", to, index, err, d.Index)
		}
	}
	kept, err := c.Keep(d)
	if err != nil {
		t.Fatal(err)
	}
	vlan, err := c.Find("nd0.5")
	if err != nil || !vlan.Up {
		t.Fatalf("%+v, %v", vlan, err)
	}
	above, err := c.Keep(vlan)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(kept, "; ", above)
	if err := c.SetUp(d, false); err != nil {
		t.Fatal(err)
	}
	if d, err := c.Find("nd0"); err != nil || d.Up {
		t.Errorf("taken down: %+v, %v", d, err)
	}
	if _, err := c.Way(netip.MustParseAddr("10.97.1.5")); err == nil && strings.Contains(ip(t, "route get 10.97.1.5"), "nd0") {
		t.Error("there is still a route")
	}
	if gone := ip(t, looks[1]); strings.Contains(gone, "10.97.2.0") {
		t.Errorf("the kernel keeps routes:\n%s", gone)
	}
	for range 2 { // the second time nothing changes
		if err := c.SetUp(d, true); err != nil {
			t.Fatal(err)
		}
		for _, k := range []Kept{kept, above} {
			if err := c.Restore(k); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, now := range look() {
		if now != before[i] {
			t.Errorf("ip %s: before\n%snow\n%s", looks[i], before[i], now)
		}
	}
	if _, err := c.Find("nd9"); !errors.Is(err, unix.ENODEV) {
		t.Errorf("a device that is not there: %v", err)
	}
}

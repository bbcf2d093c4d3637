// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Cables are veth pairs, with an RDMA device at both ends: NICs of two machines, which one machine
// plays.
type Cables []string

// commands runs commands, and stops the test if one fails.
func commands(t testing.TB, lines ...string) {
	t.Helper()
	for _, line := range lines {
		words := strings.Fields(line)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
}

// NewCables makes n cables. The test's end removes them.
func NewCables(t testing.TB, n int) (list Cables) {
	for i := range n {
		name := fmt.Sprint("rail", i)
		a, b := name+"a", name+"b"
		macA, macB := fmt.Sprintf("02:00:0a:09:%02x:01", 20+i), fmt.Sprintf("02:00:0a:09:%02x:02", 20+i)
		commands(t, "ip link add "+a+" mtu 4200 address "+macA+" type veth peer name "+b+" mtu 4200 address "+macB)
		t.Cleanup(func() { commands(t, "ip link delete "+a) })
		for _, dev := range []string{a, b} { // packets over the cable come from this machine
			for key, value := range map[string]string{"accept_local": "1", "rp_filter": "0"} {
				if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+dev+"/"+key, []byte(value), 0); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+dev+"/disable_ipv6", []byte("1"), 0); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
		for _, nic := range []string{a, b} {
			commands(t, "rdma link add "+nic+" type rxe netdev "+nic)
			t.Cleanup(func() {
				if _, err := os.Stat("/sys/class/infiniband/" + nic); err == nil {
					commands(t, "rdma link delete "+nic)
				}
			})
		}
		list = append(list, name)
		list.Up(t, i)
	}
	return list
}

// Up mends a cable.
func (c Cables) Up(t testing.TB, i int) {
	t.Helper()
	a, b := c[i]+"a", c[i]+"b"
	commands(t, "ip link set "+a+" up", "ip link set "+b+" up",
		fmt.Sprintf("ip address replace 10.9.%d.1/24 dev %s", 20+i, a), fmt.Sprintf("ip address replace 10.9.%d.2/24 dev %s", 20+i, b),
		fmt.Sprintf("ip neighbour replace 10.9.%d.1 lladdr 02:00:0a:09:%02x:01 dev %s", 20+i, 20+i, b),
		fmt.Sprintf("ip neighbour replace 10.9.%d.2 lladdr 02:00:0a:09:%02x:02 dev %s", 20+i, 20+i, a))
}

// Down cuts a cable.
func (c Cables) Down(t testing.TB, i int) { c.DownEnd(t, i, "a") }

// DownEnd takes the port at one end of a cable down, "a" or "b". Its address is none of this host's then.
func (c Cables) DownEnd(t testing.TB, i int, end string) {
	commands(t, "ip link set "+c[i]+end+" down")
}

// Remove removes the NIC at one end of a cable, "a" or "b".
func (c Cables) Remove(t testing.TB, i int, end string) { commands(t, "rdma link delete "+c[i]+end) }

// Addrs returns the addresses of the NICs at both ends of a cable.
func (c Cables) Addrs(i int) (a, b string) {
	return fmt.Sprintf("10.9.%d.1", 20+i), fmt.Sprintf("10.9.%d.2", 20+i)
}

// NICs returns the NICs at one end, "a" or "b", of all cables. A NIC's network device has its name.
func (c Cables) NICs(end string) (list []string) {
	for _, name := range c {
		list = append(list, name+end)
	}
	return list
}

// Shape bounds the rate of what goes over a cable, in bytes a second. The queue holds all that the NIC
// has under way.
func (c Cables) Shape(t testing.TB, i, rate int) {
	commands(t, fmt.Sprintf("tc qdisc add dev %sa root tbf rate %dbit burst 16kb limit 64mb", c[i], 8*rate))
}

// Hold keeps what goes over a cable in the network for a time, and drops the answers. packets returns how
// many packets the network has delivered since then, and how many it keeps.
func (c Cables) Hold(t testing.TB, i int, d time.Duration) (packets func() (delivered, kept int), release func()) {
	commands(t, fmt.Sprintf("tc qdisc add dev %sa root netem delay %dms limit 100000", c[i], d.Milliseconds()), fmt.Sprintf("tc qdisc add dev %sb root netem loss 100%%", c[i]))
	packets = func() (delivered, kept int) {
		out, err := exec.Command("tc", "-s", "qdisc", "show", "dev", c[i]+"a").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, sent, _ := strings.Cut(string(out), "Sent ")
		_, backlog, _ := strings.Cut(string(out), "backlog ")
		_, err = fmt.Sscanf(sent, "%d bytes %d pkt", new(int), &delivered)
		if err == nil {
			_, err = fmt.Sscanf(backlog, "%s %dp", new(string), &kept)
		}
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return delivered, kept
	}
	return packets, func() {
		commands(t, fmt.Sprintf("tc qdisc delete dev %sa root", c[i]), fmt.Sprintf("tc qdisc delete dev %sb root", c[i]))
	}
}

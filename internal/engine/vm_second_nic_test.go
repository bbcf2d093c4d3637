// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package engine

import (
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// oneSubnet makes a veth pair with an RDMA device at both ends, in one subnet: two NICs, of
// which the routing table chooses the wrong one. The kernel's rdma_cm misses an answer to ARP
// that comes at once, and waits until its timeout.
func oneSubnet(t testing.TB) {
	const near, far = "02:00:0a:09:07:01", "02:00:0a:09:07:02"
	for _, step := range []struct{ do, undo string }{
		{"ip link add near mtu 4200 address " + near + " type veth peer name far mtu 4200 address " + far, "ip link delete near"},
		{"ip address add 10.9.7.3/24 dev near", ""},
		{"ip address add 10.9.7.9/24 dev near", ""},
		{"ip address add 10.9.7.2/24 dev far", ""},
		{"ip link set near up", ""},
		{"ip link set far up", ""},
		{"ip neighbour add 10.9.7.3 lladdr " + near + " dev far", ""},
		{"ip neighbour add 10.9.7.9 lladdr " + near + " dev far", ""},
		{"ip neighbour add 10.9.7.2 lladdr " + far + " dev near", ""},
		{"rdma link add " + nearNIC + " type rxe netdev near", "rdma link delete " + nearNIC},
		{"rdma link add " + farNIC + " type rxe netdev far", "rdma link delete " + farNIC},
	} {
		command(t, step.do)
		if step.undo != "" {
			t.Cleanup(func() { command(t, step.undo) })
		}
	}
	for _, dev := range []string{"near", "far"} { // packets over the cable come from this machine
		for name, value := range map[string]string{"accept_local": "1", "rp_filter": "0"} {
			if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+dev+"/"+name, []byte(value), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	for nic, addrs := range map[string][]string{nearNIC: {"10.9.7.3", "10.9.7.9"}, farNIC: {"10.9.7.2"}} {
		c := must(ibvfd.Open(nic))(t)
		for _, a := range addrs {
			wish := gid.Wish{Subnet: netip.PrefixFrom(netip.MustParseAddr(a), 32)}
			for end := time.Now().Add(testenv.Limit(20 * time.Second)); ; time.Sleep(10 * time.Millisecond) {
				_, _, err := c.ChooseGID(1, wish)
				if err == nil {
					break
				}
				if time.Now().After(end) {
					t.Fatal(err)
				}
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// An endpoint connects over rdma_cm by its own NIC, from the address in its options, even if
// the routing table prefers another NIC's address.
//
//testbed:kernel 7.2 6.12 6.1
func TestVMSecondNICOverRDMACM(t *testing.T) {
	const child = "GPURDMA_TEST_SECOND_NIC"
	testenv.VM(t)
	if os.Getenv(child) != "" {
		testSecondNIC(t)
		return
	}
	oneSubnet(t)
	// librdmacm keeps devices open, and devices are deleted only when they are closed: use a
	// process.
	cmd := exec.Command(must(os.Executable())(t), "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

func testSecondNIC(t *testing.T) {
	near, far := hostOnly(nearNIC), hostOnly(farNIC)
	r := testenv.Seeded(t)
	for name, c := range map[string]struct {
		wish gid.Wish
		want string
	}{
		"nearest": {want: "10.9.7.3"},
		"wished":  {gid.Wish{Subnet: netip.MustParsePrefix("10.9.7.9/32")}, "10.9.7.9"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{
				t: t, listen: "rdma_cm://10.9.7.2:0",
				a: near.endpoint(t, EndpointOptions{AllowPlaintext: true, GID: c.wish}), b: far.endpoint(t, EndpointOptions{AllowPlaintext: true}),
			}
			w.connect()
			a, b := must(w.a.ConnPath(w.ab))(t), must(w.b.ConnPath(w.ba))(t)
			if a.NIC != nearNIC || a.GID.String() != c.want || a.Peer.String() != "10.9.7.2" || b.NIC != farNIC || b.Peer != a.GID {
				t.Errorf("over %v, and %v", a, b)
			}
			mine, theirs := hostKind.make(t, w.a.nic, 10000), hostKind.make(t, w.b.nic, 10000)
			want := random(t, r, mine, 10000)
			w.ok(w.a.Write(mine.All(), w.ab, w.share(theirs.All(), allAccess).All(), name))
			w.done(w.a, operation.Write, name)
			same(t, "over "+c.want, theirs, want)
		})
	}
	// If no address of the NIC fits, the routing table's belongs to another NIC.
	a := near.endpoint(t, EndpointOptions{AllowPlaintext: true, GID: gid.Wish{Family: gid.IPv6}})
	b := far.endpoint(t, EndpointOptions{AllowPlaintext: true})
	addr := must(b.Listen("rdma_cm://10.9.7.2:0"))(t).String()
	if _, err := a.Connect(limited(t), addr); err == nil || !strings.Contains(err.Error(), nearNIC+" is to be used") {
		t.Errorf("from IPv6 to IPv4: %v", err)
	}
}

// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package engine

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Both ends of a veth pair have an RDMA device. The second one is in a network namespace of
// its own, in which the other process runs: neither process sees the other's network
// interface, and the GID of one is not an address of the other.
const (
	namespace = "gpurdma"
	nearNIC   = "rxe-near"
	farNIC    = "rxe-far"
)

// command runs a program that must succeed.
func command(t testing.TB, line string) {
	t.Helper()
	words := strings.Fields(line)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
}

// twoNamespaces makes the devices, and removes them when the test is over.
func twoNamespaces(t testing.TB) site {
	inside := "ip netns exec " + namespace
	for _, step := range []struct{ do, undo string }{
		{"ip netns add " + namespace, "ip netns delete " + namespace},
		{"ip link add near mtu 4200 type veth peer name far mtu 4200 netns " + namespace, "ip link delete near"},
		{"ip address add 10.9.7.1/24 dev near", ""},
		{inside + " ip address add 10.9.7.2/24 dev far", ""},
		{"ip link set near up", ""},
		{inside + " ip link set far up", ""},
		{"rdma link add " + nearNIC + " type rxe netdev near", "rdma link delete " + nearNIC},
		{inside + " rdma link add " + farNIC + " type rxe netdev far", inside + " rdma link delete " + farNIC},
	} {
		command(t, step.do)
		if step.undo != "" {
			t.Cleanup(func() { command(t, step.undo) })
		}
	}
	// The kernel fills the GID tables with a delay.
	for _, nic := range []string{nearNIC, farNIC} {
		for end := time.Now().Add(testenv.Limit(20 * time.Second)); !hasIPv4(t, nic); {
			if time.Now().After(end) {
				t.Fatalf("%s has no GID that is an IPv4 address", nic)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return site{listen: "10.9.7.1:0", nic: farNIC, run: strings.Fields(inside)}
}

func hasIPv4(t testing.TB, nic string) bool {
	c := must(ibvfd.Open(nic))(t)
	defer c.Close()
	_, _, err := c.ChooseGID(1, gid.Wish{Family: gid.IPv4})
	return err == nil
}

// The cases of TestVMTwoProcesses between two network namespaces. rxe supports namespaces
// other than the first since Linux 7.1.
//
//testbed:kernel 7.2
func TestVMTwoNamespaces(t *testing.T) {
	testenv.VM(t)
	at := twoNamespaces(t)
	noGrowth(t, nearNIC)
	s := allKinds(t, nearNIC).few()
	s.kinds = s.kinds[:2]
	testTwoProcesses(t, s, at, testenv.Count(40))
}

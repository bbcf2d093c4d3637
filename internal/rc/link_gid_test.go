// SPDX-License-Identifier: Apache-2.0

package rc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// ports is the ports of a device, with the addresses of the GIDs of each.
type ports struct {
	link ibdev.LinkLayer
	gids [][]string // by port
	down int        // a port that is down
	err  error
}

func (p *ports) QueryPort(port int) (ibdev.PortAttr, error) {
	if port > len(p.gids) {
		return ibdev.PortAttr{}, unix.EINVAL
	}
	a := ibdev.PortAttr{State: ibdev.PortActive, LinkLayer: p.link}
	if port == p.down {
		a.State = ibdev.PortDown
	}
	return a, p.err
}

func (p *ports) ChooseGID(port int, w gid.Wish) (ibdev.GID, string, error) {
	if port > len(p.gids) {
		return ibdev.GID{}, "", unix.EINVAL
	}
	var table []ibdev.GID
	kind := ibdev.GIDRoCEv2
	if p.link == ibdev.LinkInfiniBand {
		kind = ibdev.GIDInfiniBand
	}
	for i, a := range p.gids[port-1] {
		table = append(table, ibdev.GID{Index: i, GID: netip.MustParseAddr(a).As16(), Type: kind})
	}
	return w.Choose(table, p.link)
}

func onEthernet(gids ...[]string) *ports { return &ports{link: ibdev.LinkEthernet, gids: gids} }

// tcpEnds returns a gidSelector for a TCP connection with these ends.
func tcpEnds(own, theirs string) (t GIDSelector) {
	t.Ends(&ended{own, theirs})
	return t
}

type ended struct{ own, theirs string }

func (e *ended) LocalAddr() net.Addr  { return tcpAddr(e.own) }
func (e *ended) RemoteAddr() net.Addr { return tcpAddr(e.theirs) }

func tcpAddr(a string) net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(a), 1))
}

// The addresses of the other side determine the GID, and the program's wish takes precedence.
func TestChosenGID(t *testing.T) {
	const (
		llOwn, llTheirs = "fe80::1", "fe80::2"
		two             = "10.1.0.1 10.2.0.1"
	)
	subnet := func(p string) gid.Wish { return gid.Wish{Subnet: netip.MustParsePrefix(p)} }
	for _, c := range []struct {
		name        string
		gids        string // addresses; a slash between ports
		own, theirs string // TCP's ends
		gid         string // that the peer has sent
		wish        gid.Wish
		port        int
		want        string // "port address why"; "" is ErrNoGID
	}{
		{name: "loopback", gids: two, own: "127.0.0.1", theirs: "127.0.0.1", want: "1 10.1.0.1 how TCP goes says nothing of the NIC's networks: RoCE v2, IPv4"},
		{name: "the second subnet", gids: two, own: "10.2.0.1", theirs: "10.2.0.9", want: "1 10.2.0.1 TCP comes through it: "},
		{name: "not the nearest by its bits", gids: "10.2.0.8 10.2.0.1", own: "10.2.0.1", theirs: "10.2.0.9", want: "1 10.2.0.1 TCP comes through it: "},
		{name: "of TCP over IPv6, mapped", gids: two, own: "::ffff:10.2.0.1", theirs: "::ffff:10.2.0.9", want: "1 10.2.0.1 TCP comes through it: "},
		{name: "IPv6 only", gids: "10.1.0.1 fd00::1", own: "fd00::1", theirs: "fd00::9", want: "1 fd00::1 TCP comes through it: "},
		{name: "link-local", gids: "10.1.0.1 " + llOwn, own: llOwn + "%eth0", theirs: llTheirs + "%eth0", want: "1 fe80::1 TCP comes through it: "},
		{name: "link-local, elsewhere", gids: "10.1.0.1 " + llOwn, own: "fe80::77%mgmt0", theirs: "fe80::78%mgmt0", want: "1 10.1.0.1 none reaches TCP's other end fe80::78: RoCE v2, IPv4"},
		{name: "the second port", gids: "10.1.0.1/10.2.0.1", own: "10.2.0.1", theirs: "10.2.0.9", want: "2 10.2.0.1 TCP comes through it: "},
		{name: "the nearest port", gids: "10.1.0.1/10.2.0.1", own: "10.2.7.7", theirs: "10.2.0.9", want: "2 10.2.0.1 TCP's other end is 10.2.0.9: "},
		{name: "management", gids: two, own: "192.168.0.1", theirs: "192.168.0.2", want: "1 10.1.0.1 TCP's other end is 192.168.0.2: "},
		{name: "management, the peer has spoken", gids: two, own: "192.168.0.1", theirs: "192.168.0.2", gid: "10.2.0.9", want: "1 10.2.0.1 the peer's GID is 10.2.0.9: "},
		{name: "as TCP goes, the peer's does not", gids: two, own: "10.1.0.1", theirs: "10.1.0.2", gid: "10.2.0.9", want: "1 10.2.0.1 the peer's GID is 10.2.0.9: "},
		{name: "as TCP goes, the peer's too", gids: "10.2.0.8 10.2.0.1", own: "10.2.0.1", theirs: "10.2.0.9", gid: "10.2.0.9", want: "1 10.2.0.1 TCP comes through it: "},
		{name: "loopback, the peer has spoken", gids: two, own: "127.0.0.1", theirs: "127.0.0.1", gid: "10.2.0.1", want: "1 10.2.0.1 the peer's GID is 10.2.0.1: "},
		{name: "no way to the peer", gids: two, own: "192.168.0.1", theirs: "192.168.0.2", gid: "fd00::9", want: "1 10.1.0.1 none reaches the peer's GID fd00::9: "},
		{name: "no way to TCP's", gids: two, own: "fd00::1", theirs: "fd00::2", want: "1 10.1.0.1 none reaches TCP's other end fd00::2: "},
		{name: "a wish", gids: two, own: "127.0.0.1", theirs: "127.0.0.1", wish: subnet("10.2.0.0/16"), want: "1 10.2.0.1 how TCP goes says nothing of the NIC's networks: "},
		{name: "a wish against TCP's way", gids: two, own: "10.1.0.1", theirs: "10.1.0.2", wish: subnet("10.2.0.0/16"), want: "1 10.2.0.1 TCP's other end is 10.1.0.2: "},
		{name: "a wish against the peer's", gids: two, own: "10.1.0.1", theirs: "10.1.0.2", gid: "10.1.0.2", wish: subnet("10.2.0.0/16"), want: "1 10.2.0.1 the peer's GID is 10.1.0.2: "},
		{name: "a wish with a peer", gids: two, own: "10.1.0.1", theirs: "10.1.0.2", wish: gid.Wish{Peer: netip.MustParseAddr("10.2.0.3")}, want: "1 10.2.0.1 RoCE v2, IPv4, "},
		{name: "a wish that cannot be", gids: two, own: "10.1.0.1", theirs: "10.1.0.2", wish: gid.Wish{Family: gid.IPv6}},
		{name: "a port", gids: "10.1.0.1/10.2.0.1", own: "10.1.0.1", theirs: "10.1.0.2", port: 2, want: "2 10.2.0.1 TCP's other end is 10.1.0.2: "},
		{name: "no GIDs", gids: "", own: "10.1.0.1", theirs: "10.1.0.2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := onEthernet()
			for p := range strings.SplitSeq(c.gids, "/") {
				dev.gids = append(dev.gids, strings.Fields(p))
			}
			know := tcpEnds(c.own, c.theirs)
			know.Wish, know.Port = c.wish, c.port
			if c.gid != "" {
				know.Peer = netip.MustParseAddr(c.gid)
			}
			got, err := know.choose(dev, len(dev.gids))
			if c.want == "" {
				if !errors.Is(err, gid.ErrNone) || got.gid != nil {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if text := fmt.Sprintf("%d %v %s", got.port, got.gid.Addr(), got.why); !strings.HasPrefix(text, c.want) {
				t.Errorf("%s\nwant %s", text, c.want)
			}
		})
	}
}

// Over rdma_cm a NIC connects from its own address, if one reaches the peer's.
func TestSourceForRDMACM(t *testing.T) {
	const two = "10.1.0.1 10.2.0.1"
	for _, c := range []struct {
		name        string
		gids        string // addresses; a slash between ports
		own, theirs string // by the routing table
		wish        gid.Wish
		port        int
		infiniBand  bool
		want        string // "" leaves it to the routing table
	}{
		{name: "as the routing table says", gids: two, own: "10.2.0.1", theirs: "10.2.0.9", want: "10.2.0.1"},
		{name: "by a gateway, not the nearest by its bits", gids: two, own: "10.1.0.1", theirs: "10.3.0.9", want: "10.1.0.1"},
		{name: "another NIC's", gids: "10.1.0.1 10.2.0.5", own: "10.2.0.1", theirs: "10.2.0.9", want: "10.2.0.5"},
		{name: "another NIC's, at the second port", gids: "10.1.0.1/10.2.0.5", own: "10.2.0.1", theirs: "10.2.0.9", want: "10.2.0.5"},
		{name: "another NIC's, IPv6", gids: "fe80::5 10.2.0.5 fd00::5", own: "fd00::1", theirs: "fd00::9", want: "fd00::5"},
		{name: "a wish", gids: two, own: "10.2.0.1", theirs: "10.2.0.9", wish: gid.Wish{Subnet: netip.MustParsePrefix("10.1.0.0/16")}, want: "10.1.0.1"},
		{name: "a wish with a peer", gids: two, own: "10.1.0.1", theirs: "10.1.0.2", wish: gid.Wish{Peer: netip.MustParseAddr("10.2.0.3")}, want: "10.2.0.1"},
		{name: "a port", gids: "10.1.0.1/10.2.0.1", own: "10.1.0.1", theirs: "10.1.0.2", port: 2, want: "10.2.0.1"},
		{name: "a wish of another family", gids: two + " fd00::5", own: "10.2.0.1", theirs: "10.2.0.9", wish: gid.Wish{Family: gid.IPv6}},
		{name: "a wish that cannot be", gids: two, own: "10.2.0.1", theirs: "10.2.0.9", wish: gid.Wish{Family: gid.IPv6}},
		{name: "no address of that family", gids: "fe80::5 fd00::5", own: "10.2.0.1", theirs: "10.2.0.9"},
		{name: "none but a link-local one", gids: "fe80::5", own: "fd00::1", theirs: "fd00::9"},
		{name: "link-local", gids: "fe80::1 fe80::5", own: "fe80::1", theirs: "fe80::9"},
		{name: "loopback", gids: two, own: "127.0.0.1", theirs: "127.0.0.1"},
		{name: "InfiniBand", gids: "fd00::2:c903:1:1", own: "fd00::1", theirs: "fd00::9", infiniBand: true},
		{name: "no GIDs", gids: "", own: "10.1.0.1", theirs: "10.1.0.2"},
	} {
		dev := onEthernet()
		for p := range strings.SplitSeq(c.gids, "/") {
			dev.gids = append(dev.gids, strings.Fields(p))
		}
		if c.infiniBand {
			dev.link = ibdev.LinkInfiniBand
		}
		know := tcpEnds(c.own, c.theirs)
		know.Wish, know.Port = c.wish, c.port
		var want netip.Addr
		if c.want != "" {
			want = netip.MustParseAddr(c.want)
		}
		if got, err := know.Source(dev, len(dev.gids)); got != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, want)
		}
	}
	know := tcpEnds("10.1.0.1", "10.1.0.2")
	dev := onEthernet([]string{"10.1.0.1"})
	dev.down = 1
	if got, err := know.Source(dev, 1); got.IsValid() || err != nil {
		t.Errorf("from a port that is down: %v, %v", got, err)
	}
	dev.err = unix.EIO
	if got, err := know.Source(dev, 1); got.IsValid() || !errors.Is(err, unix.EIO) {
		t.Errorf("of a device that cannot be asked: %v, %v", got, err)
	}
}

// Without a port to choose from the GID is left to ibvfd, which reports the reason; a query
// that fails ends the choice.
func TestChosenGIDOfNoPort(t *testing.T) {
	know := tcpEnds("10.1.0.1", "10.1.0.2")
	dev := onEthernet([]string{"10.1.0.1"})
	dev.down = 1
	if c, err := know.choose(dev, 1); c != (chosen{}) || err != nil {
		t.Errorf("%+v, %v", c, err)
	}
	dev.err = unix.EIO
	if _, err := know.choose(dev, 1); !errors.Is(err, unix.EIO) {
		t.Error(err)
	}
	know.Port = 3
	if _, err := know.choose(dev, 1); !errors.Is(err, unix.EINVAL) {
		t.Error(err)
	}
	// GIDs of InfiniBand are not TCP addresses.
	dev = &ports{link: ibdev.LinkInfiniBand, gids: [][]string{{"fe80::2:c903:1:1"}}}
	know = tcpEnds("10.1.0.1", "10.1.0.2")
	if c, err := know.choose(dev, 1); err != nil || c.why != "none reaches TCP's other end 10.1.0.2: the port's own GID" {
		t.Errorf("%+v, %v", c, err)
	}
	know.Peer = netip.MustParseAddr("fe80::2:c903:1:9")
	if c, err := know.choose(dev, 1); err != nil || c.why != "the peer's GID is fe80::2:c903:1:9: the port's GID in the peer's subnet" {
		t.Errorf("%+v, %v", c, err)
	}
}

func chosenBy(t *testing.T, s *GIDSelector, d *ports) chosen {
	t.Helper()
	c, err := s.choose(d, 1)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Two hosts have some networks in common, and other networks on one of them only, in any order
// on any ports: RDMA uses the common network that TCP uses.
func TestChosenGIDsReachEachOther(t *testing.T) {
	r := testenv.Seeded(t)
	networks := []string{"10.1.0.%d", "10.2.0.%d", "10.2.1.%d", "172.16.0.%d", "fd00::%d", "fd00:1::%d", "fe80::%d"}
	for range 5000 {
		common := networks[r.IntN(len(networks))]
		host := func(n int) *ports {
			dev := onEthernet(make([][]string, 1+r.IntN(2))...)
			for _, i := range r.Perm(len(networks)) {
				if networks[i] == common || r.IntN(2) == 0 {
					p := r.IntN(len(dev.gids))
					dev.gids[p] = append(dev.gids[p], fmt.Sprintf(networks[i], n))
				}
			}
			return dev
		}
		a, b := host(1), host(2)
		at, bt := fmt.Sprintf(common, 1), fmt.Sprintf(common, 2)
		check := func(know GIDSelector, dev *ports, want string) chosen {
			t.Helper()
			c, err := know.choose(dev, len(dev.gids))
			if err != nil || c.gid.Addr().String() != want {
				t.Fatalf("%+v of %v, %v; want %s", c, dev.gids, err, want)
			}
			return c
		}
		client := check(tcpEnds(at, bt), a, at)
		know := tcpEnds(bt, at)
		know.Peer = client.gid.Addr()
		check(know, b, bt)
	}
	// If TCP uses a management network, the acceptor follows the GID that the initiator has
	// sent.
	for range 2000 {
		a := onEthernet([]string{"10.1.0.1", "10.2.0.1", "10.3.0.1"})
		rand.Shuffle(3, func(i, j int) { a.gids[0][i], a.gids[0][j] = a.gids[0][j], a.gids[0][i] })
		b := onEthernet([]string{"10.3.0.2", "10.1.0.2", "10.2.0.2"})
		know := tcpEnds("192.168.0.1", "192.168.0.2")
		client := chosenBy(t, &know, a)
		know = tcpEnds("192.168.0.2", "192.168.0.1")
		know.Peer = client.gid.Addr()
		if server := chosenBy(t, &know, b); strings.TrimSuffix(server.gid.Addr().String(), "2")+"1" != client.gid.Addr().String() {
			t.Fatalf("%v and %v", client.gid, server.gid)
		}
	}
}

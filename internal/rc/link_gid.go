// SPDX-License-Identifier: Apache-2.0

package rc

import (
	"errors"
	"math/bits"
	"net"
	"net/netip"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
)

// GIDSelector holds the program's wish, and the facts about the other side that are known
// before there are queue pairs. Each side chooses its own GID; the two must reach each other.
type GIDSelector struct {
	Wish        gid.Wish
	Port        int        // 0: any
	own, theirs netip.Addr // the ends of the TCP connection; zero for loopback addresses
	Peer        netip.Addr // the peer's GID, once the peer has sent it
}

// Ends takes the addresses of a TCP or UDP connection. A NIC has no loopback addresses.
func (t *GIDSelector) Ends(c interface {
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
}) {
	addr := func(a net.Addr) netip.Addr {
		at, ok := a.(interface{ AddrPort() netip.AddrPort })
		if !ok {
			return netip.Addr{}
		}
		ip := at.AddrPort().Addr().Unmap().WithZone("")
		if ip.IsLoopback() {
			return netip.Addr{}
		}
		return ip
	}
	t.own, t.theirs = addr(c.LocalAddr()), addr(c.RemoteAddr())
}

// wish is a wish to try, and the reason.
type wish struct {
	gid.Wish
	why   string
	exact bool // one address only
}

// candidates returns the wishes to try, in order. Each of them includes the program's wish.
func (t *GIDSelector) candidates() (list []wish) {
	if t.Wish.Peer.IsValid() {
		return []wish{{Wish: t.Wish}}
	}
	add := func(peer, own netip.Addr, why string) {
		w := t.Wish
		w.Peer = peer
		if own.IsValid() {
			if w.Subnet.IsValid() && !w.Subnet.Masked().Contains(own) {
				return
			}
			w.Subnet = netip.PrefixFrom(own, own.BitLen())
		}
		list = append(list, wish{w, why, own.IsValid()})
	}
	// The peer's GID is not its TCP address: then TCP's path does not decide.
	otherNetwork := t.Peer.IsValid() && t.Peer != t.theirs
	if t.own.IsValid() && !otherNetwork {
		add(t.theirs, t.own, "TCP comes through it")
	}
	switch {
	case t.Peer.IsValid():
		add(t.Peer, netip.Addr{}, "the peer's GID is "+t.Peer.String())
	case t.theirs.IsValid() && !t.theirs.IsLinkLocalUnicast(): // which belongs to another link
		add(t.theirs, netip.Addr{}, "TCP's other end is "+t.theirs.String())
	}
	// The TCP connection has loopback addresses: the order of the GID table decides.
	last := "how TCP goes says nothing of the NIC's networks"
	switch {
	case t.Peer.IsValid():
		last = "none reaches the peer's GID " + t.Peer.String()
	case t.theirs.IsValid():
		last = "none reaches TCP's other end " + t.theirs.String()
	}
	add(netip.Addr{}, netip.Addr{}, last)
	return list
}

// chosen is a port and its GID, and the reason for the choice.
type chosen struct {
	port int
	gid  *ibdev.GID // nil: ibvfd chooses it, or reports why there is none
	why  string
}

// chooser is the part of a device that the choice needs.
type chooser interface {
	QueryPort(port int) (ibdev.PortAttr, error)
	ChooseGID(port int, w gid.Wish) (ibdev.GID, string, error)
}

// choose chooses the port and its GID: it takes the first wish that any port can grant, and of
// those ports the one nearest to the peer.
func (t *GIDSelector) choose(d chooser, ports int) (c chosen, err error) {
	var try []int
	if t.Port != 0 {
		try = []int{t.Port}
	}
	for port := 1; t.Port == 0 && port <= ports; port++ {
		a, err := d.QueryPort(port)
		if err != nil {
			return c, err
		}
		if a.State == ibdev.PortActive {
			try = append(try, port)
		}
	}
	for _, w := range t.candidates() {
		err = nil
		for _, port := range try {
			g, why, e := d.ChooseGID(port, w.Wish)
			switch {
			case errors.Is(e, gid.ErrNone):
				err = errors.Join(err, e)
			case e != nil:
				return c, e
			case w.exact:
				c = chosen{port, &g, g.Type.String()}
			case c.gid == nil || common(g.Addr(), w.Peer) > common(c.gid.Addr(), w.Peer):
				c = chosen{port, &g, why}
			}
		}
		if c.gid != nil {
			if w.why != "" {
				c.why = w.why + ": " + c.why
			}
			return c, nil
		}
	}
	return c, err
}

// Source returns the address from which rdma_cm connects. It returns the zero Addr to leave
// the choice to the routing table: if the device has no address that reaches the peer's; on
// InfiniBand, whose GIDs are no addresses; and toward a link-local address, which names its
// network device.
func (t *GIDSelector) Source(d chooser, ports int) (netip.Addr, error) {
	if !t.theirs.IsValid() || t.theirs.IsLinkLocalUnicast() {
		return netip.Addr{}, nil
	}
	c, err := t.choose(d, ports)
	if errors.Is(err, gid.ErrNone) {
		return netip.Addr{}, nil
	}
	if err != nil || c.gid == nil || c.gid.Type == ibdev.GIDInfiniBand {
		return netip.Addr{}, err
	}
	own := c.gid.Addr()
	if own.Is4() != t.theirs.Is4() || own.IsLinkLocalUnicast() {
		return netip.Addr{}, nil
	}
	return own, nil
}

// common returns the number of leading bits that two addresses have in common.
func common(a, b netip.Addr) (n int) {
	x, y := a.AsSlice(), b.Unmap().AsSlice()
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return n + bits.LeadingZeros8(x[i]^y[i])
		}
		n += 8
	}
	return n
}

// AddrOf returns an Endpoint's GID as an address; the zero Addr if it has none.
func AddrOf(e ibvfd.Endpoint) netip.Addr {
	if e.GID == [16]byte{} {
		return netip.Addr{}
	}
	return netip.AddrFrom16(e.GID).Unmap()
}

// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"errors"
	"math/bits"
	"net"
	"net/netip"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
)

// gidSelector is what is known of a connection's other side before there are queue
// pairs, and what the program wishes. Each side chooses its own GID; the two must
// reach each other.
type gidSelector struct {
	wish        gid.Wish
	port        int        // 0: any
	own, theirs netip.Addr // the ends of the TCP connection, where they say something
	gid         netip.Addr // the peer's GID, once it has said it
}

// ends takes what a connection of TCP or UDP tells. Loopback addresses are no NIC's.
func (t *gidSelector) ends(c interface {
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

// wish is one that is tried, and why.
type wish struct {
	gid.Wish
	why   string
	exact bool // one address only
}

// candidates are what is tried, one after the other. What the program wishes is in all
// of them.
func (t *gidSelector) candidates() (list []wish) {
	if t.wish.Peer.IsValid() {
		return []wish{{Wish: t.wish}}
	}
	add := func(peer, own netip.Addr, why string) {
		w := t.wish
		w.Peer = peer
		if own.IsValid() {
			if w.Subnet.IsValid() && !w.Subnet.Masked().Contains(own) {
				return
			}
			w.Subnet = netip.PrefixFrom(own, own.BitLen())
		}
		list = append(list, wish{w, why, own.IsValid()})
	}
	// The peer has a GID that is no address of TCP's: it does not matter then how
	// TCP goes.
	otherNetwork := t.gid.IsValid() && t.gid != t.theirs
	if t.own.IsValid() && !otherNetwork {
		add(t.theirs, t.own, "TCP comes through it")
	}
	switch {
	case t.gid.IsValid():
		add(t.gid, netip.Addr{}, "the peer's GID is "+t.gid.String())
	case t.theirs.IsValid() && !t.theirs.IsLinkLocalUnicast(): // which is of another link
		add(t.theirs, netip.Addr{}, "TCP's other end is "+t.theirs.String())
	}
	// TCP on a loopback address: the table's own order decides.
	last := "how TCP goes says nothing of the NIC's networks"
	switch {
	case t.gid.IsValid():
		last = "none reaches the peer's GID " + t.gid.String()
	case t.theirs.IsValid():
		last = "none reaches TCP's other end " + t.theirs.String()
	}
	add(netip.Addr{}, netip.Addr{}, last)
	return list
}

// chosen is a port's GID, and why it is.
type chosen struct {
	port int
	gid  *ibdev.GID // nil: ibvfd is to choose, or to say why there is none
	why  string
}

// chooser is what of a device the choice needs.
type chooser interface {
	QueryPort(port int) (ibdev.PortAttr, error)
	ChooseGID(port int, w gid.Wish) (ibdev.GID, string, error)
}

// choose settles the port and its GID: of the first wish that any port can grant,
// the port nearest to the peer.
func (t *gidSelector) choose(d chooser, ports int) (c chosen, err error) {
	var try []int
	if t.port != 0 {
		try = []int{t.port}
	}
	for port := 1; t.port == 0 && port <= ports; port++ {
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
				err = joined(err, e)
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

// source is the address from which rdma_cm is to connect, the zero Addr if that is left
// to the routing table: where the device has none that reaches the peer's; on
// InfiniBand, whose GIDs are no addresses; and toward a link-local address, which
// names its network device.
func (t *gidSelector) source(d chooser, ports int) (netip.Addr, error) {
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

// common is how many leading bits two addresses have in common.
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

// addrOf is an Endpoint's GID as an address; the zero Addr of one that has none.
func addrOf(e ibvfd.Endpoint) netip.Addr {
	if e.GID == [16]byte{} {
		return netip.Addr{}
	}
	return netip.AddrFrom16(e.GID).Unmap()
}

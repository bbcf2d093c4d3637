// SPDX-License-Identifier: Apache-2.0

package gid

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/ibvfd/internal/enum"
)

// ErrNone means that the port's GID table has no entry that a connection could use, or
// none that fits the Wish. errors.Is also finds EADDRNOTAVAIL in the error of Choose.
var ErrNone = errors.New("no usable GID")

// Wish narrows the choice of a GID. The zero Wish takes any that a
// connection can use.
type Wish struct {
	// RoCE is the version wanted, 1 or 2; 0 is any. Both sides of a connection
	// use the same.
	RoCE int
	// Family is that of the GID's address.
	Family Family
	// Subnet is where the GID's address lies; the zero Prefix is anywhere.
	Subnet netip.Prefix
	// Peer is the address, or GID, of the other side. A GID of another family
	// cannot reach it. Nor can a GID if only one of the two is link-local. Of the
	// others, the GID with the longest prefix in common is nearest.
	Peer netip.Addr
	// NetDev is the network device that the GID belongs to, a VLAN's or a
	// bond's included: "eth0.100". "" is any.
	NetDev string
	// VLAN is the VLAN's number; 0 is any, Untagged none.
	VLAN int
}

// Untagged is Wish.VLAN of a GID on no VLAN.
const Untagged = -1

// Family is the family of an address.
type Family int

// The families.
const (
	AnyFamily Family = iota
	IPv4
	IPv6
)

var familyNames = [...]string{"any", "IPv4", "IPv6"}

// String returns "IPv4" or "IPv6".
func (f Family) String() string { return enum.Name(familyNames[:], int(f), "Family") }

func familyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Choose is [Wish.Choose] of the zero Wish.
func Choose(table []ibdev.GID, link ibdev.LinkLayer) (ibdev.GID, string, error) {
	return Wish{}.Choose(table, link)
}

// Choose picks an entry of a port's GID table, and returns the reason in words. Its only
// error is [ErrNone], with the reason for each entry. On Ethernet it prefers
// RoCE v2 over v1, then the longest prefix in common with the peer, then a
// routable IPv4 address over a routable IPv6 one over a link-local one, then
// the first entry. On InfiniBand it takes the first entry, or that of the
// peer's subnet.
func (w Wish) Choose(table []ibdev.GID, link ibdev.LinkLayer) (ibdev.GID, string, error) {
	best := -1
	var rank [3]int
	var wrong reasons
	for i, g := range table {
		if why := w.unfit(g, link); why != "" {
			wrong.add(why)
			continue
		}
		if r := w.rank(g, link); best < 0 || slices.Compare(r[:], rank[:]) > 0 {
			best, rank = i, r
		}
	}
	if best < 0 {
		return ibdev.GID{}, "", fmt.Errorf("%w: %w: %v", ErrNone, unix.EADDRNOTAVAIL, wrong)
	}
	return table[best], w.praise(table[best], link), nil
}

// unfit says why a GID cannot be used; "" if it can.
func (w *Wish) unfit(g ibdev.GID, link ibdev.LinkLayer) string {
	addr := g.Addr()
	switch {
	case g.GID == ([16]byte{}):
		return "zero"
	case link == ibdev.LinkInfiniBand:
		if w.RoCE != 0 {
			return "InfiniBand, where RoCE is wanted"
		}
	case g.Type == ibdev.GIDUnknown:
		return "of an unknown type"
	case w.RoCE == 1 && g.Type != ibdev.GIDRoCEv1, w.RoCE == 2 && g.Type != ibdev.GIDRoCEv2, w.RoCE < 0, w.RoCE > 2:
		return fmt.Sprintf("%v, where RoCE v%d is wanted", g.Type, w.RoCE)
	}
	switch {
	case w.NetDev != "" && g.NetDev != w.NetDev:
		return fmt.Sprintf("on %s, where %s is wanted", orNothing(g.NetDev), w.NetDev)
	case w.VLAN > 0 && g.VLAN != w.VLAN:
		return fmt.Sprintf("on %s, where VLAN %d is wanted", vlanName(g.VLAN), w.VLAN)
	case w.VLAN == Untagged && g.VLAN != 0:
		return fmt.Sprintf("on %s, where none is wanted", vlanName(g.VLAN))
	case w.Family != AnyFamily && familyOf(addr) != w.Family:
		return fmt.Sprintf("%v, where %v is wanted", familyOf(addr), w.Family)
	case w.Subnet.IsValid() && !w.Subnet.Masked().Contains(addr):
		return fmt.Sprintf("outside %v", w.Subnet.Masked())
	}
	return w.unreachable(addr)
}

// unreachable says why the peer cannot be reached from addr; "" if it may be.
func (w *Wish) unreachable(addr netip.Addr) string {
	if !w.Peer.IsValid() {
		return ""
	}
	peer := w.Peer.Unmap()
	switch {
	case familyOf(addr) != familyOf(peer):
		return fmt.Sprintf("%v, and the peer %v is %v", familyOf(addr), peer, familyOf(peer))
	case addr.IsLinkLocalUnicast() && !peer.IsLinkLocalUnicast():
		return fmt.Sprintf("link-local, and the peer %v is not", peer)
	case !addr.IsLinkLocalUnicast() && peer.IsLinkLocalUnicast():
		return fmt.Sprintf("not link-local, and the peer %v is", peer)
	}
	return ""
}

// rank is greater for a better GID.
func (w *Wish) rank(g ibdev.GID, link ibdev.LinkLayer) [3]int {
	addr := g.Addr()
	r := [3]int{0, w.common(addr), 0}
	if link == ibdev.LinkInfiniBand {
		r[1] = min(r[1], 64) // the subnet; behind it lies the port's GUID
		return r
	}
	switch g.Type {
	case ibdev.GIDRoCEv2:
		r[0] = 2
	case ibdev.GIDRoCEv1:
		r[0] = 1
	} // other types: iWARP and software devices
	switch {
	case addr.IsLinkLocalUnicast():
	case addr.Is4():
		r[2] = 2
	default:
		r[2] = 1
	}
	return r
}

// common is how many leading bits addr has in common with the peer.
func (w *Wish) common(addr netip.Addr) int {
	if !w.Peer.IsValid() {
		return 0
	}
	a, b := addr.AsSlice(), w.Peer.Unmap().AsSlice()
	n := 0
	for i := range min(len(a), len(b)) {
		zeros := bits.LeadingZeros8(a[i] ^ b[i])
		n += zeros
		if zeros < 8 {
			break
		}
	}
	return n
}

// praise says why a GID was chosen.
func (w *Wish) praise(g ibdev.GID, link ibdev.LinkLayer) string {
	addr := g.Addr()
	if link == ibdev.LinkInfiniBand {
		switch {
		case !w.Peer.IsValid():
			return "the port's own GID"
		case w.common(addr) >= 64:
			return "the port's GID in the peer's subnet"
		}
		return "the port's GID; the peer is in another subnet, behind a router"
	}
	kind := "routable IPv6"
	switch {
	case addr.Is4() && addr.IsLinkLocalUnicast():
		kind = "link-local IPv4"
	case addr.Is4():
		kind = "IPv4"
	case addr.IsLinkLocalUnicast():
		kind = "link-local IPv6"
	}
	if addr.IsLinkLocalUnicast() && !w.Peer.IsValid() {
		kind += ", as there is no other"
	}
	why := fmt.Sprintf("%v, %s", g.Type, kind)
	if w.Peer.IsValid() {
		why += fmt.Sprintf(", %d bits in common with the peer %v", w.common(addr), w.Peer.Unmap())
	}
	if w.Subnet.IsValid() {
		why += fmt.Sprintf(", in %v", w.Subnet.Masked())
	}
	if g.NetDev != "" {
		why += ", on " + g.NetDev
	}
	if g.VLAN != 0 {
		why += ", " + vlanName(g.VLAN)
	}
	return why
}

func vlanName(id int) string {
	if id == 0 {
		return "no VLAN"
	}
	return fmt.Sprintf("VLAN %d", id)
}

func orNothing(netdev string) string {
	if netdev == "" {
		return "no network device"
	}
	return netdev
}

// reasons counts why entries were not chosen, in the order of the table.
type reasons struct {
	words []string
	count map[string]int
}

func (r *reasons) add(why string) {
	if r.count == nil {
		r.count = map[string]int{}
	}
	if r.count[why]++; r.count[why] == 1 {
		r.words = append(r.words, why)
	}
}

func (r reasons) String() string {
	if r.words == nil {
		return "the table is empty"
	}
	parts := make([]string, len(r.words))
	for i, why := range r.words {
		parts[i] = fmt.Sprintf("%d %s", r.count[why], why)
	}
	return strings.Join(parts, "; ")
}

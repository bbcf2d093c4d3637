// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Kept is what a device loses when it goes down, as messages that put it back: addresses and
// permanent neighbours, and routes that neither the kernel nor a router's advertisement has made.
// A route of several next hops is left to the kernel, and is not among these.
type Kept struct {
	device Device
	list   []netlink.Message // in the order in which they can be put back
}

const (
	addrHead      = 8  // sizeof(struct ifaddrmsg)
	neighbourHead = 12 // sizeof(struct ndmsg)
)

// Keep returns what a device would lose.
func (c *Client) Keep(d Device) (Kept, error) {
	k := Kept{device: d}
	for _, part := range []struct {
		what string
		kind netlink.HeaderType
		head int
		back func(m []byte, a map[uint16][]byte) ([]byte, error) // nil if it is not to be put back
		as   netlink.HeaderType
	}{
		{"RTM_GETADDR", unix.RTM_GETADDR, addrHead, d.address, unix.RTM_NEWADDR},
		{"RTM_GETNEIGH", unix.RTM_GETNEIGH, neighbourHead, d.neighbour, unix.RTM_NEWNEIGH},
		{"RTM_GETROUTE", unix.RTM_GETROUTE, routeHead, d.route, unix.RTM_NEWROUTE},
	} {
		list, err := c.ask(part.what, part.kind, netlink.Dump, make([]byte, part.head))
		if err != nil {
			return k, err
		}
		var back []netlink.Message
		for _, m := range list {
			a := attributes(m.Data, part.head)
			if a == nil {
				continue
			}
			data, err := part.back(m.Data[:part.head], a)
			if err != nil {
				return k, err
			}
			if data != nil {
				flags := netlink.Request | netlink.Acknowledge | netlink.Create | netlink.Excl
				back = append(back, netlink.Message{Header: netlink.Header{Type: part.as, Flags: flags}, Data: data})
			}
		}
		k.list = append(k.list, back...)
	}
	// A route by a gateway needs the route to the gateway: that is put back first.
	slices.SortStableFunc(k.list, func(a, b netlink.Message) int { return cmp.Compare(byGateway(a), byGateway(b)) })
	return k, nil
}

func byGateway(m netlink.Message) int {
	if m.Header.Type == unix.RTM_NEWROUTE && attributes(m.Data, routeHead)[unix.RTA_GATEWAY] != nil {
		return 1
	}
	return 0
}

// is reports whether an attribute is the device's number.
func (d Device) is(attr []byte) bool {
	return len(attr) == 4 && int(binary.NativeEndian.Uint32(attr)) == d.Index
}

// address puts back an address. IPv4 addresses stay with most kernels. An IPv6 address of the link may
// be one that the kernel makes itself: it is there already then.
func (d Device) address(head []byte, a map[uint16][]byte) ([]byte, error) {
	if head[0] != unix.AF_INET && (head[0] != unix.AF_INET6 || head[3] == unix.RT_SCOPE_HOST) || !d.is(head[4:8]) {
		return nil, nil
	}
	return encode(head, a, unix.IFA_ADDRESS, unix.IFA_LOCAL, unix.IFA_LABEL, unix.IFA_BROADCAST, unix.IFA_FLAGS, unix.IFA_CACHEINFO)
}

// neighbour puts back a permanent neighbour.
func (d Device) neighbour(head []byte, a map[uint16][]byte) ([]byte, error) {
	state := binary.NativeEndian.Uint16(head[8:])
	if head[0] != unix.AF_INET && head[0] != unix.AF_INET6 || !d.is(head[4:8]) || state&unix.NUD_PERMANENT == 0 {
		return nil, nil
	}
	return encode(head, a, unix.NDA_DST, unix.NDA_LLADDR)
}

// route puts back a route through the device only.
func (d Device) route(head []byte, a map[uint16][]byte) ([]byte, error) {
	const protocol, scope, kind, flags = 5, 6, 7, 8 // fields of struct rtmsg
	made := head[protocol]
	bits := binary.NativeEndian.Uint32(head[flags:])
	if !d.is(a[unix.RTA_OIF]) || made == unix.RTPROT_KERNEL || made == unix.RTPROT_RA || made == unix.RTPROT_REDIRECT ||
		head[kind] != unix.RTN_UNICAST || bits&unix.RTM_F_CLONED != 0 {
		return nil, nil
	}
	head = slices.Clone(head)
	binary.NativeEndian.PutUint32(head[flags:], bits&unix.RTNH_F_ONLINK)
	return encode(head, a, unix.RTA_DST, unix.RTA_SRC, unix.RTA_OIF, unix.RTA_GATEWAY, unix.RTA_VIA, unix.RTA_PRIORITY,
		unix.RTA_PREFSRC, unix.RTA_METRICS, unix.RTA_TABLE, unix.RTA_PREF, unix.RTA_ENCAP_TYPE, unix.RTA_ENCAP)
}

// encode encodes a head, and those of the attributes that there are.
func encode(head []byte, a map[uint16][]byte, types ...uint16) ([]byte, error) {
	e := netlink.NewAttributeEncoder()
	for _, t := range types {
		if v, ok := a[t]; ok {
			e.Bytes(t, v)
		}
	}
	attrs, err := e.Encode()
	if err != nil {
		return nil, err
	}
	return append(slices.Clone(head), attrs...), nil
}

// Restore puts back what was kept. The device must be up. It changes nothing that is there already.
func (c *Client) Restore(k Kept) (err error) {
	end := time.Now().Add(tentative)
	for _, m := range k.list {
		_, e := c.run(m)
		for ; errors.Is(e, unix.EINVAL) && time.Now().Before(end); _, e = c.run(m) { // its address may be tentative
			time.Sleep(lookAgain)
		}
		if e != nil && !errors.Is(e, unix.EEXIST) {
			err = errors.Join(err, fmt.Errorf("put back %s of %s: %w", names[m.Header.Type], k.device.Name, e))
		}
	}
	return err
}

// tentative bounds how long a route is tried: one from an IPv6 address cannot be added while the kernel
// asks whether another host has the address. A test changes it.
var tentative = 5 * time.Second

const lookAgain = 100 * time.Millisecond

var names = map[netlink.HeaderType]string{unix.RTM_NEWADDR: "an address", unix.RTM_NEWNEIGH: "a permanent neighbour", unix.RTM_NEWROUTE: "a route"}

// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// scripted is a Client of a kernel that answers as told, and remembers the requests.
func scripted(answer func(netlink.Message) ([]netlink.Message, error)) (c *Client, asked *[]netlink.Message) {
	asked = new([]netlink.Message)
	return &Client{run: func(m netlink.Message) ([]netlink.Message, error) {
		*asked = append(*asked, m)
		return answer(m)
	}, end: func() error { return nil }}, asked
}

// A device that is up and may not be switched gives the kernel's error, and nothing but its own state is
// asked for.
func TestMaySet(t *testing.T) {
	c, asked := scripted(func(netlink.Message) ([]netlink.Message, error) { return nil, unix.EPERM })
	if err := c.MaySet(Device{"eth7", 7, true}); !errors.Is(err, unix.EPERM) {
		t.Error(err)
	}
	m := (*asked)[0]
	if m.Header.Type != unix.RTM_NEWLINK || binary.NativeEndian.Uint32(m.Data[4:]) != 7 || binary.NativeEndian.Uint32(m.Data[8:]) != unix.IFF_UP || binary.NativeEndian.Uint32(m.Data[12:]) != unix.IFF_UP {
		t.Errorf("%+v", m)
	}
}

// Find asks for a device that there is.
func TestFindOne(t *testing.T) {
	lo, err := net.InterfaceByIndex(1)
	if err != nil {
		t.Fatal(err)
	}
	up := uint32(unix.IFF_UP | unix.IFF_LOOPBACK)
	c, _ := scripted(func(netlink.Message) ([]netlink.Message, error) {
		return []netlink.Message{{Header: netlink.Header{Type: unix.RTM_NEWLINK}, Data: linkMessage(1, up, 0)}}, nil
	})
	if d, err := c.Find(lo.Name); err != nil || d != (Device{lo.Name, 1, true}) {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := c.Find("no-such-device"); !errors.Is(err, unix.ENODEV) {
		t.Error(err)
	}
}

// message is a head with attributes.
func message(t *testing.T, kind netlink.HeaderType, head []byte, attrs map[uint16][]byte) netlink.Message {
	t.Helper()
	e := netlink.NewAttributeEncoder()
	for k, v := range attrs {
		e.Bytes(k, v)
	}
	b, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return netlink.Message{Header: netlink.Header{Type: kind}, Data: append(head, b...)}
}

func number(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// Only what goes with the device is kept: routes of an administrator, permanent neighbours, addresses; a
// route by a gateway comes last. To put back what is there already is no error; another refusal is one.
func TestKeepAndRestore(t *testing.T) {
	d := Device{"eth7", 7, true}
	neighbour := func(state uint16, index uint32) []byte {
		h := append([]byte{unix.AF_INET, 0, 0, 0}, number(index)...)
		return append(binary.NativeEndian.AppendUint16(h, state), 0, 0)
	}
	route := func(protocol, kind byte, flags uint32) []byte {
		return append([]byte{unix.AF_INET, 24, 0, 0, unix.RT_TABLE_MAIN, protocol, 0, kind}, number(flags)...)
	}
	ten := netip.MustParseAddr("10.0.0.1").AsSlice()
	answers := map[netlink.HeaderType][]netlink.Message{
		unix.RTM_GETADDR: {
			message(t, unix.RTM_NEWADDR, append([]byte{unix.AF_INET6, 64, 0, unix.RT_SCOPE_LINK}, number(7)...), nil),
			message(t, unix.RTM_NEWADDR, append([]byte{unix.AF_INET6, 128, 0, unix.RT_SCOPE_HOST}, number(7)...), nil),
			message(t, unix.RTM_NEWADDR, append([]byte{unix.AF_INET6, 64, 0, unix.RT_SCOPE_UNIVERSE}, number(8)...), nil),
			message(t, unix.RTM_NEWADDR, append([]byte{unix.AF_INET6, 64, 0, unix.RT_SCOPE_UNIVERSE}, number(7)...), map[uint16][]byte{unix.IFA_ADDRESS: make([]byte, 16)}),
		},
		unix.RTM_GETNEIGH: {
			message(t, unix.RTM_NEWNEIGH, neighbour(unix.NUD_REACHABLE, 7), nil),
			message(t, unix.RTM_NEWNEIGH, neighbour(unix.NUD_PERMANENT, 8), nil),
			message(t, unix.RTM_NEWNEIGH, neighbour(unix.NUD_PERMANENT, 7), map[uint16][]byte{unix.NDA_DST: ten}),
			{Data: []byte{1}}, // malformed
		},
		unix.RTM_GETROUTE: {
			message(t, unix.RTM_NEWROUTE, route(unix.RTPROT_STATIC, unix.RTN_UNICAST, 0), map[uint16][]byte{unix.RTA_OIF: number(7), unix.RTA_GATEWAY: ten}),
			message(t, unix.RTM_NEWROUTE, route(unix.RTPROT_BOOT, unix.RTN_UNICAST, unix.RTNH_F_LINKDOWN|unix.RTNH_F_ONLINK), map[uint16][]byte{unix.RTA_OIF: number(7), unix.RTA_CACHEINFO: number(0)}),
			message(t, unix.RTM_NEWROUTE, route(unix.RTPROT_KERNEL, unix.RTN_UNICAST, 0), map[uint16][]byte{unix.RTA_OIF: number(7)}),
			message(t, unix.RTM_NEWROUTE, route(unix.RTPROT_BOOT, unix.RTN_LOCAL, 0), map[uint16][]byte{unix.RTA_OIF: number(7)}),
			message(t, unix.RTM_NEWROUTE, route(unix.RTPROT_BOOT, unix.RTN_UNICAST, unix.RTM_F_CLONED), map[uint16][]byte{unix.RTA_OIF: number(7)}),
			message(t, unix.RTM_NEWROUTE, route(unix.RTPROT_BOOT, unix.RTN_UNICAST, 0), map[uint16][]byte{unix.RTA_OIF: number(8)}),
		},
	}
	refusal := error(unix.EEXIST)
	c, asked := scripted(func(m netlink.Message) ([]netlink.Message, error) {
		if list, ok := answers[m.Header.Type]; ok {
			return list, nil
		}
		return nil, refusal
	})
	kept, err := c.Keep(d)
	if n := len(kept.list); err != nil || n != 5 { // two addresses, a neighbour, two routes
		t.Fatalf("%d, %v", n, err)
	}
	*asked = nil
	if err := c.Restore(kept); err != nil || len(*asked) != 5 {
		t.Errorf("%v, %d messages", err, len(*asked))
	}
	first, last := (*asked)[3], (*asked)[4]
	a := attributes(first.Data, routeHead)
	if first.Header.Flags&(netlink.Create|netlink.Excl) != netlink.Create|netlink.Excl || binary.NativeEndian.Uint32(first.Data[8:]) != unix.RTNH_F_ONLINK || a[unix.RTA_CACHEINFO] != nil || a[unix.RTA_GATEWAY] != nil {
		t.Errorf("%+v", first)
	}
	if attributes(last.Data, routeHead)[unix.RTA_GATEWAY] == nil {
		t.Errorf("%+v", last)
	}
	defer func(was time.Duration) { tentative = was }(tentative)
	tentative = 0
	if refusal = unix.EINVAL; !errors.Is(c.Restore(kept), unix.EINVAL) {
		t.Error("EINVAL is no error")
	}
}

// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Client is a netlink socket. One goroutine at a time may use it.
type Client struct {
	run func(netlink.Message) ([]netlink.Message, error)
	end func() error
}

// Dial opens a socket.
func Dial() (*Client, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, fmt.Errorf("open a NETLINK_ROUTE socket: %w", err)
	}
	return &Client{run: conn.Execute, end: conn.Close}, nil
}

// Close closes the socket.
func (c *Client) Close() error { return c.end() }

// ask sends a request, and returns the answers.
func (c *Client) ask(what string, kind netlink.HeaderType, flags netlink.HeaderFlags, data []byte) ([]netlink.Message, error) {
	list, err := c.run(netlink.Message{Header: netlink.Header{Type: kind, Flags: netlink.Request | flags}, Data: data})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return list, nil
}

// Device is a network device.
type Device struct {
	Name  string
	Index int
	Up    bool // its administrator has switched it on; it may have no carrier
}

const (
	linkHead = 16 // sizeof(struct ifinfomsg)
	flagsAt  = 8  // ifi_flags; ifi_change follows
)

// linkMessage is a struct ifinfomsg.
func linkMessage(index int, flags, change uint32) []byte {
	b := make([]byte, linkHead)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[flagsAt:], flags)
	binary.NativeEndian.PutUint32(b[flagsAt+4:], change)
	return b
}

// Find returns the device of a name. The error is ENODEV if there is none in this network namespace.
func (c *Client) Find(name string) (Device, error) {
	found, err := net.InterfaceByName(name)
	if err != nil {
		return Device{}, fmt.Errorf("find %s: %w", name, unix.ENODEV)
	}
	list, err := c.ask("RTM_GETLINK of "+name, unix.RTM_GETLINK, 0, linkMessage(found.Index, 0, 0))
	if err != nil {
		return Device{}, err
	}
	for _, m := range list {
		if m.Header.Type == unix.RTM_NEWLINK && len(m.Data) >= linkHead {
			return Device{name, found.Index, binary.NativeEndian.Uint32(m.Data[flagsAt:])&unix.IFF_UP != 0}, nil
		}
	}
	return Device{}, fmt.Errorf("RTM_GETLINK of %s: no answer: %w", name, unix.ENODEV)
}

// SetUp switches a device on or off.
func (c *Client) SetUp(d Device, up bool) error {
	word := "down"
	if up {
		word = "up"
	}
	return c.set("take "+d.Name+" "+word, d, up)
}

func (c *Client) set(what string, d Device, up bool) error {
	flags := uint32(0)
	if up {
		flags = unix.IFF_UP
	}
	_, err := c.ask(what, unix.RTM_NEWLINK, netlink.Acknowledge, linkMessage(d.Index, flags, unix.IFF_UP))
	return err
}

// MaySet asks the kernel to switch a device to the state that it has. Nothing changes, and the error is
// EPERM if the process may not switch it.
func (c *Client) MaySet(d Device) error {
	return c.set("RTM_NEWLINK of "+d.Name+" as it is", d, d.Up)
}

// routeHead is sizeof(struct rtmsg).
const routeHead = 12

// Way returns the number of the device through which packets to an address leave this machine.
func (c *Client) Way(to netip.Addr) (index int, err error) {
	to = to.Unmap().WithZone("")
	head := make([]byte, routeHead)
	head[0], head[1] = family(to), byte(to.BitLen())
	e := netlink.NewAttributeEncoder()
	e.Bytes(unix.RTA_DST, to.AsSlice())
	attrs, err := e.Encode()
	if err != nil {
		return 0, err
	}
	list, err := c.ask(fmt.Sprintf("RTM_GETROUTE to %v", to), unix.RTM_GETROUTE, 0, append(head, attrs...))
	if err != nil {
		return 0, err
	}
	for _, m := range list {
		if a := attributes(m.Data, routeHead); a != nil && len(a[unix.RTA_OIF]) == 4 {
			return int(binary.NativeEndian.Uint32(a[unix.RTA_OIF])), nil
		}
	}
	return 0, fmt.Errorf("RTM_GETROUTE to %v: no device: %w", to, unix.ENETUNREACH)
}

func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// attributes returns the attributes after a message's head, nil if they are malformed.
func attributes(data []byte, head int) map[uint16][]byte {
	if len(data) < head {
		return nil
	}
	d, err := netlink.NewAttributeDecoder(data[head:])
	if err != nil {
		return nil
	}
	list := map[uint16][]byte{}
	for d.Next() {
		list[d.Type()] = d.Bytes()
	}
	if d.Err() != nil {
		return nil
	}
	return list
}

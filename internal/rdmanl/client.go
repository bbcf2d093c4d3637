// SPDX-License-Identifier: Apache-2.0

package rdmanl

import (
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ErrNoDevice: there is no RDMA device of that name, or not in this network
// namespace.
var ErrNoDevice = errors.New("no such RDMA device")

// Client is a netlink socket. One goroutine at a time may use it.
type Client struct {
	conn *netlink.Conn
}

// Dial opens a socket. It needs no privilege, but the kernel's answers depend on the
// caller's.
func Dial() (*Client, error) {
	conn, err := netlink.Dial(unix.NETLINK_RDMA, nil)
	if err != nil {
		return nil, fmt.Errorf("open a NETLINK_RDMA socket: %w", err)
	}
	return &Client{conn}, nil
}

// Close closes the socket.
func (c *Client) Close() error { return c.conn.Close() }

// dump sends a dump request and calls parse for each message's attributes.
func (c *Client) dump(cmd uint16, attrs []byte, parse func(*netlink.AttributeDecoder) error) error {
	return c.execute(cmd, netlink.Request|netlink.Dump, attrs, parse)
}

func (c *Client) execute(cmd uint16, flags netlink.HeaderFlags, attrs []byte, parse func(*netlink.AttributeDecoder) error) error {
	msgs, err := c.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(nlType(clientNLDev, cmd)), Flags: flags},
		Data:   attrs,
	})
	if err != nil {
		return fmt.Errorf("RDMA netlink command %d: %w", cmd, err)
	}
	for _, m := range msgs {
		ad, err := netlink.NewAttributeDecoder(m.Data)
		if err != nil {
			return fmt.Errorf("RDMA netlink command %d: %w", cmd, err)
		}
		if err := parse(ad); err != nil {
			return fmt.Errorf("RDMA netlink command %d: %w", cmd, err)
		}
	}
	return nil
}

// Device is an RDMA device.
type Device struct {
	Index    uint32
	Name     string
	Ports    uint32
	Firmware string
	NodeGUID uint64
}

// Devices lists the RDMA devices of this network namespace.
func (c *Client) Devices() ([]Device, error) {
	var list []Device
	err := c.dump(cmdGet, nil, func(ad *netlink.AttributeDecoder) error {
		var d Device
		for ad.Next() {
			switch ad.Type() {
			case attrDevIndex:
				d.Index = ad.Uint32()
			case attrDevName:
				d.Name = ad.String()
			case attrPortIndex: // in this command: how many ports
				d.Ports = ad.Uint32()
			case attrFWVersion:
				d.Firmware = ad.String()
			case attrNodeGUID:
				d.NodeGUID = ad.Uint64()
			}
		}
		list = append(list, d)
		return ad.Err()
	})
	return list, err
}

// request encodes the device's index, which every other command wants.
func (c *Client) request(device string) ([]byte, error) {
	devices, err := c.Devices()
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		if d.Name == device {
			return deviceAttr(d.Index)
		}
	}
	return nil, fmt.Errorf("%s: %w", device, ErrNoDevice)
}

func deviceAttr(index uint32) ([]byte, error) {
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(attrDevIndex, index)
	return ae.Encode()
}

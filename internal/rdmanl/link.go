// SPDX-License-Identifier: Apache-2.0

package rdmanl

import "github.com/mdlayher/netlink"

// Link is a port of an RDMA device.
type Link struct {
	Device string
	Port   uint32
	State  uint8  // enum ib_port_state: 4 is active
	NetDev string // the network device that the port is on, if any
}

// Links lists a device's ports.
func (c *Client) Links(device string) ([]Link, error) {
	req, err := c.request(device)
	if err != nil {
		return nil, err
	}
	var list []Link
	err = c.dump(cmdPortGet, req, func(ad *netlink.AttributeDecoder) error {
		var l Link
		for ad.Next() {
			switch ad.Type() {
			case attrDevName:
				l.Device = ad.String()
			case attrPortIndex:
				l.Port = ad.Uint32()
			case attrPortState:
				l.State = ad.Uint8()
			case attrNDevName:
				l.NetDev = ad.String()
			}
		}
		list = append(list, l)
		return ad.Err()
	})
	return list, err
}

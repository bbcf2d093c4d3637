// SPDX-License-Identifier: Apache-2.0

package dcb

import (
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	cmdIEEEGet  = 21 // DCB_CMD_IEEE_GET
	attrIfname  = 1  // DCB_ATTR_IFNAME
	attrIEEE    = 13 // DCB_ATTR_IEEE
	attrIEEEPFC = 2  // DCB_ATTR_IEEE_PFC
)

// Priorities are those for which priority flow control (PFC) is on: bit i is
// priority i.
type Priorities uint8

// List is in order.
func (p Priorities) List() []int {
	var out []int
	for i := range 8 {
		if p&(1<<i) != 0 {
			out = append(out, i)
		}
	}
	return out
}

// PFC asks a network device of this network namespace. It needs no privilege. The
// error is EOPNOTSUPP for one whose driver has no DCB, ENODEV for one that is not
// there.
func PFC(netdev string) (Priorities, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return 0, fmt.Errorf("open a NETLINK_ROUTE socket: %w", err)
	}
	defer conn.Close()
	return pfc(conn, netdev)
}

func pfc(conn *netlink.Conn, netdev string) (Priorities, error) {
	attrs := netlink.NewAttributeEncoder()
	attrs.String(attrIfname, netdev)
	data, err := attrs.Encode()
	if err != nil {
		return 0, err
	}
	failed := func(err error) error { return fmt.Errorf("DCB_CMD_IEEE_GET of %s: %w", netdev, err) }
	msgs, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETDCB, Flags: netlink.Request},
		Data:   append([]byte{unix.AF_UNSPEC, cmdIEEEGet, 0, 0}, data...), // struct dcbmsg
	})
	if err != nil {
		return 0, failed(err)
	}
	for _, m := range msgs {
		if len(m.Data) < 4 {
			return 0, failed(fmt.Errorf("an answer of %d bytes", len(m.Data)))
		}
		p, ok, err := parse(m.Data[4:])
		if err != nil {
			return 0, failed(err)
		}
		if ok {
			return p, nil
		}
	}
	return 0, failed(unix.EOPNOTSUPP) // other parts of DCB only
}

// parse finds struct ieee_pfc: the second byte is pfc_en.
func parse(attrs []byte) (p Priorities, ok bool, err error) {
	outer, err := netlink.NewAttributeDecoder(attrs)
	if err != nil {
		return 0, false, err
	}
	for outer.Next() {
		if outer.Type() != attrIEEE {
			continue
		}
		outer.Nested(func(inner *netlink.AttributeDecoder) error {
			for inner.Next() {
				if inner.Type() != attrIEEEPFC {
					continue
				}
				b := inner.Bytes()
				if len(b) < 2 {
					return fmt.Errorf("a struct ieee_pfc of %d bytes", len(b))
				}
				p, ok = Priorities(b[1]), true
			}
			return inner.Err()
		})
	}
	return p, ok, outer.Err()
}

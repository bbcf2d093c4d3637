// SPDX-License-Identifier: Apache-2.0

package gid

import (
	"encoding/binary"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
)

// AddVLANs fills in the VLANs of GIDs' network devices, which sysfs does not
// have.
func AddVLANs(table []ibdev.GID) error {
	ids, err := vlans()
	if err != nil {
		return err
	}
	for i := range table {
		table[i].VLAN = ids[table[i].NetDev]
	}
	return nil
}

// vlans asks rtnetlink for the VLAN devices of this network namespace and their
// numbers.
func vlans() (map[string]int, error) {
	dump, err := syscall.NetlinkRIB(unix.RTM_GETLINK, unix.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	messages, err := syscall.ParseNetlinkMessage(dump)
	if err != nil {
		return nil, err
	}
	ids := map[string]int{}
	for _, m := range messages {
		if m.Header.Type != unix.RTM_NEWLINK {
			continue
		}
		attrs, err := syscall.ParseNetlinkRouteAttr(&m)
		if err != nil {
			return nil, err
		}
		name, id := "", 0
		for _, a := range attrs {
			switch a.Attr.Type {
			case unix.IFLA_IFNAME:
				name = strings.TrimRight(string(a.Value), "\x00")
			case unix.IFLA_LINKINFO:
				id = vlanID(a.Value)
			}
		}
		if id != 0 {
			ids[name] = id
		}
	}
	return ids, nil
}

// vlanID reads IFLA_LINKINFO; 0 is no VLAN's.
func vlanID(info []byte) (id int) {
	const ( // include/uapi/linux/if_link.h
		infoKind = 1 // IFLA_INFO_KIND
		infoData = 2 // IFLA_INFO_DATA
		vlanTag  = 1 // IFLA_VLAN_ID
	)
	kind := ""
	nested(info, func(typ uint16, value []byte) {
		switch typ {
		case infoKind:
			kind = strings.TrimRight(string(value), "\x00")
		case infoData:
			nested(value, func(typ uint16, value []byte) {
				if typ == vlanTag && len(value) == 2 {
					id = int(binary.NativeEndian.Uint16(value))
				}
			})
		}
	})
	if kind != "vlan" {
		return 0
	}
	return id
}

// nested goes through the attributes (struct nlattr) in b.
func nested(b []byte, each func(typ uint16, value []byte)) {
	const header, align = 4, 4
	for len(b) >= header {
		n := int(binary.NativeEndian.Uint16(b))
		if n < header || n > len(b) {
			return
		}
		each(binary.NativeEndian.Uint16(b[2:])&^unix.NLA_F_NESTED, b[header:n])
		b = b[min((n+align-1)&^(align-1), len(b)):]
	}
}

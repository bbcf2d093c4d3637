// SPDX-License-Identifier: Apache-2.0

package ibdev

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd/internal/enum"
)

// GIDType is the protocol that a GID stands for.
//
// The numbers are those of enum ibv_gid_type.
type GIDType int

// The GID types.
const (
	GIDInfiniBand GIDType = iota // of an InfiniBand fabric
	GIDRoCEv1                    // over Ethernet
	GIDRoCEv2                    // over UDP
	GIDUnknown    GIDType = -1   // not known
)

var gidTypeNames = [...]string{"IB", "RoCE v1", "RoCE v2"}

// String returns the type's name as sysfs writes it.
func (t GIDType) String() string {
	if t == GIDUnknown {
		return "unknown"
	}
	return enum.Name(gidTypeNames[:], int(t), "GIDType")
}

// MarshalText makes a GIDType a string in JSON.
func (t GIDType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// GID is an entry of a port's GID table.
type GID struct {
	Index  int      `json:"index"`            // the place of the entry in the table
	GID    [16]byte `json:"-"`                // the GID in the long form of sysfs, with all zeros
	Type   GIDType  `json:"type"`             // the protocol that the GID stands for
	NetDev string   `json:"netdev,omitempty"` // the network device of the GID
	VLAN   int      `json:"-"`                // NetDev's; 0 is none, or not asked
}

// Addr is the GID as an address: IPv4 for an IPv4-mapped GID.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g.GID).Unmap() }

// String writes the GID as an address, with its index and type.
func (g GID) String() string { return fmt.Sprintf("%v (index %d, %v)", g.Addr(), g.Index, g.Type) }

// MarshalJSON writes the GID itself in the long form that sysfs has.
func (g GID) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	fmt.Fprintf(&b, `{"index":%d,"gid":"%s","type":%q`, g.Index, formatGID(g.GID), g.Type)
	if g.NetDev != "" {
		fmt.Fprintf(&b, `,"netdev":%q`, g.NetDev)
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}

// formatGID writes "fe80:0000:…:0001", eight groups of four digits.
func formatGID(gid [16]byte) string {
	groups := make([]string, 8)
	for i := range groups {
		groups[i] = fmt.Sprintf("%02x%02x", gid[2*i], gid[2*i+1])
	}
	return strings.Join(groups, ":")
}

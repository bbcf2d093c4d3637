// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"fmt"
	"math/bits"
	"net/netip"
	"strings"
)

// DeviceAttr is a device's limits: ibv_query_device(3).
type DeviceAttr struct {
	Firmware        string `json:"firmware"`
	NodeGUID        uint64 `json:"node_guid"`
	VendorID        uint32 `json:"vendor_id"`
	VendorPart      uint32 `json:"vendor_part"`
	MaxMRSize       uint64 `json:"max_mr_size"` // bytes
	PageSizeCap     uint64 `json:"page_size_cap"`
	MaxMR           int    `json:"max_mr"`
	MaxPD           int    `json:"max_pd"`
	MaxQP           int    `json:"max_qp"`
	MaxQPWR         int    `json:"max_qp_wr"`
	MaxSGE          int    `json:"max_sge"`
	MaxSGERead      int    `json:"max_sge_rd"`
	MaxCQ           int    `json:"max_cq"`
	MaxCQE          int    `json:"max_cqe"`
	MaxSRQ          int    `json:"max_srq"` // 0: the device has none
	MaxSRQWR        int    `json:"max_srq_wr"`
	MaxSRQSGE       int    `json:"max_srq_sge"`
	MaxAH           int    `json:"max_ah"`
	MaxMW           int    `json:"max_mw"`              // 0: the device has no memory windows
	MaxReadAtomic   int    `json:"max_qp_rd_atom"`      // as responder, for one QP
	MaxInitReadAtom int    `json:"max_qp_init_rd_atom"` // as initiator, for one QP
	Atomic          bool   `json:"atomic"`              // fetch-and-add, compare-and-swap
	Ports           int    `json:"ports"`
}

// PortAttr is a port's state: ibv_query_port(3).
type PortAttr struct {
	State     PortState `json:"state"`
	MTU       int       `json:"mtu"`     // bytes, in use
	MaxMTU    int       `json:"max_mtu"` // bytes
	LID       uint16    `json:"lid"`     // 0 on Ethernet
	GIDs      int       `json:"gid_tbl_len"`
	MaxMsg    uint32    `json:"max_msg_sz"` // bytes
	LinkLayer LinkLayer `json:"link_layer"`
}

// PortState is the state of a port. The numbers are those of enum
// ibv_port_state.
type PortState int

// The port states.
const (
	PortDown   PortState = 1
	PortInit   PortState = 2
	PortArmed  PortState = 3
	PortActive PortState = 4
)

var portStateNames = [...]string{"nop", "down", "init", "armed", "active", "active-defer"}

// String returns the state's name: "active".
func (s PortState) String() string { return nameOf(portStateNames[:], int(s), "PortState") }

// MarshalText makes a PortState a string in JSON.
func (s PortState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LinkLayer is what a port is plugged into. The numbers are those of
// IBV_LINK_LAYER_*.
type LinkLayer int

// The link layers.
const (
	LinkUnspecified LinkLayer = iota
	LinkInfiniBand
	LinkEthernet
)

var linkLayerNames = [...]string{"unspecified", "InfiniBand", "Ethernet"}

// String returns the link layer's name as sysfs writes it.
func (l LinkLayer) String() string { return nameOf(linkLayerNames[:], int(l), "LinkLayer") }

// MarshalText makes a LinkLayer a string in JSON.
func (l LinkLayer) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// GIDType is the protocol that a GID stands for. The numbers are those of enum
// ibv_gid_type.
type GIDType int

// The GID types.
const (
	GIDInfiniBand GIDType = iota
	GIDRoCEv1
	GIDRoCEv2
	GIDUnknown GIDType = -1
)

var gidTypeNames = [...]string{"IB", "RoCE v1", "RoCE v2"}

// String returns the type's name as sysfs writes it.
func (t GIDType) String() string {
	if t == GIDUnknown {
		return "unknown"
	}
	return nameOf(gidTypeNames[:], int(t), "GIDType")
}

// MarshalText makes a GIDType a string in JSON.
func (t GIDType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// GID is an entry of a port's GID table.
type GID struct {
	Index  int      `json:"index"`
	GID    [16]byte `json:"-"`
	Type   GIDType  `json:"type"`
	NetDev string   `json:"netdev,omitempty"`
	VLAN   int      `json:"-"` // NetDev's; 0 is none, or not asked: Context.ChooseGID does if GIDWish.VLAN is set
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

// mtuBytes turns enum ibv_mtu (1 is 256, 5 is the largest) into bytes; 0 if it
// is no MTU. mtuEnum is its inverse, rounding down.
func mtuBytes(enum int) int {
	if enum < mtuMin || enum > mtuMax {
		return 0
	}
	return 128 << enum
}

func mtuEnum(bytes int) int {
	return min(max(bits.Len(uint(bytes))-8, 0), mtuMax)
}

const (
	mtuMin = 1
	mtuMax = 5
)

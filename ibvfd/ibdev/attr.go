// SPDX-License-Identifier: Apache-2.0

package ibdev

import (
	"github.com/gpurdma/gpurdma/ibvfd/internal/enum"
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

// PortState is the state of a port.
//
// The numbers are those of enum ibv_port_state.
type PortState int

// The port states.
const (
	PortDown   PortState = 1 // no link
	PortInit   PortState = 2 // a link, and no configuration by a subnet manager yet
	PortArmed  PortState = 3 // configured, and not yet in use
	PortActive PortState = 4 // a link, in use
)

var portStateNames = [...]string{"nop", "down", "init", "armed", "active", "active-defer"}

// String returns the state's name: "active".
func (s PortState) String() string { return enum.Name(portStateNames[:], int(s), "PortState") }

// MarshalText makes a PortState a string in JSON.
func (s PortState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LinkLayer is the kind of network that a port belongs to.
//
// The numbers are those of IBV_LINK_LAYER_*.
type LinkLayer int

// The link layers.
const (
	LinkUnspecified LinkLayer = iota // not known
	LinkInfiniBand                   // an InfiniBand fabric
	LinkEthernet                     // an Ethernet network
)

var linkLayerNames = [...]string{"unspecified", "InfiniBand", "Ethernet"}

// String returns the link layer's name as sysfs writes it.
func (l LinkLayer) String() string { return enum.Name(linkLayerNames[:], int(l), "LinkLayer") }

// MarshalText makes a LinkLayer a string in JSON.
func (l LinkLayer) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

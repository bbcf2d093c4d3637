// SPDX-License-Identifier: Apache-2.0

package ibvfd

import "github.com/gpurdma/gpurdma/ibvfd/internal/enum"

// QPType is a queue pair's transport. The numbers are those of enum
// ibv_qp_type.
type QPType int

// The transports.
const (
	RC QPType = 2 // reliable connection
	UD QPType = 4 // unreliable datagram
)

// String returns "RC" or "UD".
func (t QPType) String() string { return enum.Name([]string{RC: "RC", UD: "UD"}, int(t), "QPType") }

// QPState is a queue pair's state. The numbers are those of enum ibv_qp_state.
type QPState int

// The states.
const (
	StateReset QPState = iota
	StateInit
	StateRTR // ready to receive
	StateRTS // ready to send
	StateSQD // sends are drained: what was posted later waits
	StateSQE // a send failed: later ones complete flushed, receives go on (UD)
	StateErr // everything completes flushed
)

var qpStateNames = [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

// String returns the state's name: "RTS".
func (s QPState) String() string { return enum.Name(qpStateNames[:], int(s), "QPState") }

// Endpoint is what two peers exchange before they connect.
type Endpoint struct {
	QPN      uint32   `json:"qpn"`
	PSN      uint32   `json:"psn"` // first packet sequence number that this side sends
	LID      uint16   `json:"lid"` // InfiniBand only
	GID      [16]byte `json:"gid"`
	GIDIndex int      `json:"gid_index"` // in the side's own table
	Port     int      `json:"port"`
	MTU      int      `json:"mtu"`            // bytes; the connection takes the smaller one
	QKey     uint32   `json:"qkey,omitempty"` // UD only
}

// CQAttr is what kind of completion queue to make.
type CQAttr struct {
	// Depth is how many completions it must hold: everything posted and not yet
	// polled. A queue that overruns kills the queue pairs on it.
	Depth int
	// Events lets Wait sleep. The queue then has a completion channel of its
	// own, which is a descriptor.
	Events bool
	// Vector is the completion vector, that is the interrupt, for the events: 0
	// and up.
	Vector int
}

// SRQAttr is what kind of shared receive queue to make.
type SRQAttr struct {
	Depth int // receives that may be outstanding; 0 means 1
	SGE   int // SGEs in one receive; 0 means 1
}

// MWType is a memory window's type. The numbers are those of enum ibv_mw_type.
type MWType int

// The types of memory windows (ibv_alloc_mw(3)).
const (
	// MWType1 is bound by the library's own call and may be bound anew at any
	// time.
	MWType1 MWType = 1
	// MWType2 is bound by a work request, belongs to the queue pair that bound
	// it, and must be invalidated (OpLocalInv, or the peer's OpSendInv) before it
	// is bound anew.
	MWType2 MWType = 2
)

// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"github.com/gpurdma/gpurdma/ibvfd/internal/enum"
)

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
	StateSQD // sends are drained: those that were posted later wait
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

// SPDX-License-Identifier: Apache-2.0

package cm

import "fmt"

// Reason says why a connection was refused. The numbers are those of enum ib_cm_rej_reason
// in the kernel's include/rdma/ib_cm.h.
type Reason int

// The reasons that programs meet.
const (
	ReasonTimeout   Reason = 4  // the peer did not answer in time, or closed the ID before it answered
	ReasonNobody    Reason = 8  // no program listens at the address and port
	ReasonStale     Reason = 10 // the peer's kernel still has a connection of the same queue pair
	ReasonResponder Reason = 27 // the peer serves fewer READs at once than Param.InitiatorDepth asks for
	ReasonConsumer  Reason = 28 // the program that listens called Reject
)

var reasonNames = map[Reason]string{
	1: "no queue pair", 2: "no end-to-end context", 3: "no resources", ReasonTimeout: "timeout", 5: "unsupported request",
	6: "invalid communication ID", 7: "invalid communication instance", ReasonNobody: "invalid service ID: no program listens there",
	9: "invalid transport service type", ReasonStale: "stale connection", 11: "read domain does not exist", 12: "invalid GID", 13: "invalid LID",
	14: "invalid SL", 15: "invalid traffic class", 16: "invalid hop limit", 17: "invalid packet rate", 18: "invalid alternate GID",
	19: "invalid alternate LID", 20: "invalid alternate SL", 21: "invalid alternate traffic class", 22: "invalid alternate hop limit",
	23: "invalid alternate packet rate", 24: "port redirect", 25: "port and communication manager redirect", 26: "invalid MTU",
	ReasonResponder: "insufficient responder resources", ReasonConsumer: "consumer defined: the program that listens refused", 29: "invalid RNR retry count",
	30: "duplicate local communication ID", 31: "invalid class version", 32: "invalid flow label", 33: "invalid alternate flow label",
	35: "vendor option not supported",
}

// String returns the reason in words, with its number.
func (r Reason) String() string {
	if name := reasonNames[r]; name != "" {
		return fmt.Sprintf("%s (%d)", name, int(r))
	}
	return fmt.Sprintf("reason %d", int(r))
}

func (r Reason) remedy() string {
	switch r {
	case ReasonNobody:
		return "start the peer, or check the port"
	case ReasonStale:
		return "connect again"
	case ReasonTimeout:
		return "the peer listens and has accepted nothing: is it busy, or stopped?"
	case ReasonResponder:
		return "ask for fewer READs in flight: Param.InitiatorDepth"
	}
	return ""
}

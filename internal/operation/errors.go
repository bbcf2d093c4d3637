// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"errors"
	"fmt"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// The errors of posting that callers test for.
var (
	// ErrQueueFull means that the endpoint's limit of operations under way is reached. Nothing
	// was posted (FI_EAGAIN): call Poll or Wait, and try again.
	ErrQueueFull = errors.New("queue full")
	// ErrOutcomeUnknown means that the peer's NIC may have carried out an operation, or may still
	// do so.
	ErrOutcomeUnknown = errors.New("it is not known what the peer's memory has got")
	// ErrPeerBehind is ErrQueueFull of a connection whose operations wait for the peer's program
	// to take messages.
	ErrPeerBehind = fmt.Errorf("%w: the peer's program does not take messages", ErrQueueFull)
	// ErrStaleKey means that a RemoteBuffer is of another connection: keys end with their
	// connection.
	ErrStaleKey = errors.New("key of another connection")
)

// ErrPeerGone means that the peer has ended the connection, or does not answer.
var ErrPeerGone = fmt.Errorf("%w: the peer has ended the connection", rc.ErrNotConnected)

// Error is the error of a failed operation. Unwrap leads to an *[ibvfd.WCError], with the
// vendor's own code, if the NIC reported the error.
type Error struct {
	Op   Kind
	Peer Peer
	NIC  string
	Err  error
}

// Error returns all fields in one line.
func (e *Error) Error() string {
	msg := fmt.Sprintf("%v with peer %d by %s: %v", e.Op, e.Peer, e.NIC, e.Err)
	if r := Remedy(e.Err); r != "" {
		msg += "; " + r
	}
	return msg
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Remedy returns advice for the NIC's event or the completion's status; "" if there is none.
func Remedy(err error) string {
	var w *ibvfd.WCError
	var e *rc.EventError
	switch {
	case errors.As(err, &e) && e.Event.Type == ibvfd.EventDeviceFatal:
		return "close everything of this NIC: it is gone or broken; the kernel's log may say why"
	case errors.As(err, &e):
		return "connect anew; the kernel's log may say what the NIC did not like"
	case !errors.As(err, &w):
		return ""
	}
	switch w.Status {
	case ibvfd.WCRemAccessErr:
		return "the peer's key is wrong or was withdrawn, the range is outside of it, it does not allow this, or the memory was revoked by its driver"
	case ibvfd.WCRNRRetryExcErr:
		return "the peer has posted no receive"
	case ibvfd.WCRetryExcErr:
		return "the peer does not answer: has it ended, or its link gone down, or do the two GIDs not reach each other?"
	case ibvfd.WCRemOpErr:
		return "the peer's queue pair has failed at it: a message longer than its receive does that on some NICs"
	case ibvfd.WCLocQPOpErr:
		return "the queue pair has failed at it: a message longer than the receive does that on some NICs"
	case ibvfd.WCLocLenErr:
		return "the message is longer than the receive"
	case ibvfd.WCRemInvReqErr:
		return "the message is longer than the peer's receive"
	}
	return ""
}

// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// The errors that callers test for, besides those of package dmabuf.
var (
	// ErrNotConnected means that the connection to the peer has ended, or never existed.
	ErrNotConnected = rc.ErrNotConnected
	// ErrQueueFull means that the endpoint's limit of operations under way is reached. Nothing
	// was posted (FI_EAGAIN): call Poll or Wait, and try again.
	ErrQueueFull = errors.New("queue full")
	// ErrStaleKey means that a RemoteBuffer is of another connection: keys end with theirs.
	ErrStaleKey = errors.New("key of another connection")
	// ErrMalformed means that a peer sent bytes that no peer of this package sends.
	ErrMalformed = exchange.ErrMalformed
	// ErrUnsafe means that the exchange would not be encrypted.
	ErrUnsafe = exchange.ErrUnsafe
	// ErrRejected means that the peer refuses the connection. The error quotes the peer's text.
	ErrRejected = exchange.ErrRejected
)

// ErrClosed means that this side has closed what it has used. The error says what that is.
var ErrClosed = errs.ErrClosed

// isClosed returns the error of an endpoint that is closed.
func (e *Endpoint) isClosed() error { return errs.Closed("endpoint of " + e.nic.Name()) }

// isClosed returns the error of a connection that this side has closed. The caller holds the
// mutex.
func (c *Conn) isClosed() error {
	what := "connection"
	if c.info.Addr != nil {
		what += " to " + c.info.Addr.String()
	}
	return errs.Closed(what, ErrNotConnected)
}

// OpError is the error of a failed operation. Unwrap leads to an *[ibvfd.WCError], with the
// vendor's own code, if the NIC reported the error.
type OpError struct {
	Op   Op
	Peer Peer
	NIC  string
	Err  error
}

// Error returns all fields in one line.
func (e *OpError) Error() string {
	msg := fmt.Sprintf("%v with peer %d by %s: %v", e.Op, e.Peer, e.NIC, e.Err)
	if r := remedyOf(e.Err); r != "" {
		msg += "; " + r
	}
	return msg
}

// Unwrap returns Err.
func (e *OpError) Unwrap() error { return e.Err }

// Remedy returns advice by the NIC's event or the completion's status; "" if there is none.
func Remedy(err error) string { return remedyOf(err) }

// remedyOf returns advice by the NIC's event or the completion's status; "" if there is none.
func remedyOf(err error) string {
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

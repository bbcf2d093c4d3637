// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"errors"
	"fmt"
	"io"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/wire"
)

// What callers branch on, beside the sentinels of package dmabuf.
var (
	// ErrNotConnected: the connection to the peer is gone, or never was.
	ErrNotConnected = errors.New("not connected")
	// ErrQueueFull: as many operations are under way as the endpoint may have.
	// Poll or Wait, and try again. Nothing was posted (FI_EAGAIN).
	ErrQueueFull = errors.New("queue full")
	// ErrStaleKey: a RemoteBuffer of another connection: keys end with theirs.
	ErrStaleKey = errors.New("key of another connection")
	// ErrMalformed: a peer sent bytes that no peer of this package sends.
	ErrMalformed = wire.ErrMalformed
	// ErrUnsafe: the exchange would go in the clear.
	ErrUnsafe = errors.New("not protected by TLS")
	// ErrRejected: the peer does not want the connection. The error has what the peer says,
	// quoted.
	ErrRejected = errors.New("the peer has rejected the connection")
)

// OpError is an operation that failed. The errors that Unwrap gives are an
// *[ibvfd.WCError] where the NIC says so, with the vendor's own code.
type OpError struct {
	Op   Op
	Peer Peer
	NIC  string
	Err  error
}

// Error says all of it in one line.
func (e *OpError) Error() string {
	msg := fmt.Sprintf("%v with peer %d by %s: %v", e.Op, e.Peer, e.NIC, e.Err)
	if r := remedyOf(e.Err); r != "" {
		msg += "; " + r
	}
	return msg
}

// Unwrap is Err.
func (e *OpError) Unwrap() error { return e.Err }

// remedyOf is what to change, by the NIC's event, or the completion's status.
func remedyOf(err error) string {
	var w *ibvfd.WCError
	var e *EventError
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

func outOfRange(op string, off, length, size int64) *dmabuf.Error {
	return &dmabuf.Error{
		Op: op, Detail: fmt.Sprintf("offset %#x, length %#x of %#x bytes", off, length, size),
		Remedy: "stay within them", Err: dmabuf.ErrRange,
	}
}

func joined(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return errors.Join(a, b)
}

// joinClose closes c after err.
func joinClose(err error, c io.Closer) error { return joined(err, c.Close()) }

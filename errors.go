// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/verify"
)

// The errors that programs test for by errors.Is.
var (
	// ErrClosed means that this side has closed the connection, the listener, the buffer, the
	// queue or the fabric: the error says which. It is net.ErrClosed and os.ErrClosed, too.
	ErrClosed = engine.ErrClosed
	// ErrPeerGone means that the peer has ended the connection, or does not answer.
	ErrPeerGone = operation.ErrPeerGone
	// ErrPeerClosed means that the peer's program has closed the connection: it is the ordinary
	// end. It is ErrPeerGone, too.
	ErrPeerClosed = engine.ErrPeerClosed
	// ErrQueueFull means that a Queue or its connection has no room: the error says which, and
	// the setting that limits it. Nothing was posted: take completions, and post again.
	ErrQueueFull = operation.ErrQueueFull
	// ErrStaleKey means that a Remote is of another connection: keys end with their connection.
	ErrStaleKey = operation.ErrStaleKey
	// ErrRejected means that the peer refuses the connection. The error quotes the peer's text.
	ErrRejected = engine.ErrRejected
	// ErrMalformed means that the other side sent bytes that no peer of this package sends.
	ErrMalformed = engine.ErrMalformed
	// ErrUnsafe means that the exchange would not be encrypted.
	ErrUnsafe = engine.ErrUnsafe
	// ErrCorrupt means that the bytes of a write in this side's memory have other sums than the peer
	// has sent (Config.Verify). The error is a *CorruptError, too.
	ErrCorrupt = errors.New("the bytes in the memory are not those that the peer has sent")
	// ErrUnverified means that the bytes of such a write could not be compared: their memory is not
	// exported any more, or cannot be read. They may be right.
	ErrUnverified = verify.ErrUnverified
	// ErrOutcomeUnknown means that operations were under way when the connection ended, and that
	// the peer has not confirmed its end: its NIC may have carried them out, or may still do so.
	// Close returns it, and an atomic that was under way when a link was lost (Config.Outlive).
	// Other operations do not: a write that has failed may have been carried out, wholly or in
	// part, unless the peer's NIC has refused it.
	ErrOutcomeUnknown = engine.ErrOutcomeUnknown

	// ErrRange means that an offset, a length or a setting is outside of what there is. It is
	// dmabuf.ErrRange.
	ErrRange = dmabuf.ErrRange
	// ErrLimit means that a limit would be exceeded, such as that of SetMaxPinned. Nothing was
	// attempted. It is dmabuf.ErrLimit.
	ErrLimit = dmabuf.ErrLimit
	// ErrInUse means that something still uses the memory, and that nothing was freed. It is
	// dmabuf.ErrInUse.
	ErrInUse = dmabuf.ErrInUse
)

// OpError is the error of an operation. Unwrap leads to an *[ibvfd.WCError], with the vendor's
// own code, if the NIC reported the error.
type OpError struct {
	Op   OpKind
	Peer net.Addr
	NIC  string
	Err  error
}

// Error returns all fields in one line, and what to change.
func (e *OpError) Error() string {
	text := fmt.Sprintf("%v with %v by %s: %v", e.Op, e.Peer, e.NIC, e.Err)
	if r := operation.Remedy(e.Err); r != "" {
		text += "; " + r
	}
	return text
}

// Unwrap returns Err.
func (e *OpError) Unwrap() error { return e.Err }

// CorruptError says which bytes of the peer's write are wrong: those of the first block that differs.
// ReceiveNotification returns it, with ErrCorrupt.
type CorruptError struct {
	error
	Memory      string // name of the exported memory; "" for memory of Conn.Share
	Off         int64  // where the block begins in the bytes of the write
	At          int64  // where it begins in the memory, as the peer sees that
	Len         int64  // bytes of the block
	Sent, Found uint32 // CRC32C of the bytes that the peer has sent, and of those in the memory
	Blocks      int    // blocks of the write that differ
	Checked     int    // blocks of the write that were compared
}

// unanswered is the error of an operation to which the peer's NIC has given no answer. It is
// ErrPeerGone.
type unanswered struct{ error }

func (u unanswered) Unwrap() error        { return u.error }
func (u unanswered) Is(target error) bool { return target == ErrPeerGone }

// noRoom returns the error of a connection without room; nil for another error.
func (c *Conn) noRoom(err error) error {
	switch err { //nolint:errorlint // nothing wraps them
	case operation.ErrQueueFull:
		return &c.full
	case operation.ErrPeerBehind:
		return &c.behind
	}
	return nil
}

// failed returns the error of an operation; nil for nil.
func (c *Conn) failed(kind OpKind, err error) error {
	if err == nil {
		return nil
	}
	nic := c.c.FirstRail.NIC.Name()
	if e := (*operation.Error)(nil); errors.As(err, &e) {
		nic = e.NIC
	}
	if err = plain(c.c.Explain(err)); errors.Is(err, &ibvfd.WCError{Status: ibvfd.WCRetryExcErr}) {
		err = unanswered{err}
	}
	return &OpError{Op: kind, Peer: c.RemoteAddr(), NIC: nic, Err: err}
}

// plain returns an error of the engine without the engine's names of the operation and the peer.
func plain(err error) error {
	if e := (*operation.Error)(nil); errors.As(err, &e) {
		err = e.Err
	}
	if errors.Is(err, os.ErrClosed) && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}

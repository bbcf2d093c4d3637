// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/verify"
)

// The errors that programs test for by errors.Is.
var (
	// ErrClosed means that this side has closed the connection, the listener, the buffer, the queue or the fabric:
	// the error says which. errors.Is also finds net.ErrClosed and os.ErrClosed in it.
	ErrClosed = engine.ErrClosed
	// ErrPeerGone means that the peer has ended the connection, or does not answer.
	ErrPeerGone = operation.ErrPeerGone
	// ErrPeerClosed means that the peer's program has closed the connection, which is the ordinary end. errors.Is
	// also finds ErrPeerGone in it.
	ErrPeerClosed = engine.ErrPeerClosed
	// ErrQueueFull means that a Queue or its connection has no room for the next operation, which was not posted. The
	// error says which of them, and the setting that limits it. Take completions, and post again.
	ErrQueueFull = operation.ErrQueueFull
	// ErrStaleKey means that a Remote was made for another connection: keys end with their connection.
	ErrStaleKey = operation.ErrStaleKey
	// ErrRejected means that the peer has refused the connection. The error quotes the peer's text.
	ErrRejected = engine.ErrRejected
	// ErrMalformed means that the other side has sent bytes that no peer of this package sends.
	ErrMalformed = engine.ErrMalformed
	// ErrUnsafe means that the exchange over TCP would not be encrypted: see Config.TLS.
	ErrUnsafe = engine.ErrUnsafe
	// ErrCorrupt means that the bytes of a peer's write in this side's memory have other sums than the peer has sent
	// (Config.Verify). errors.As finds a *CorruptError in it.
	ErrCorrupt = errors.New("the bytes in the memory are not those that the peer has sent")
	// ErrUnverified means that the bytes of a peer's write could not be compared with its sums: their memory is not
	// exported any more, or cannot be read. The bytes may be right.
	ErrUnverified = verify.ErrUnverified
	// ErrOutcomeUnknown means that a NIC may have carried out operations, or may still do so. Conn.Close returns it
	// if operations were under way, and the peer has not confirmed the end of the connection. An atomic returns it if
	// a link was lost with it (Config.Outlive), and other operations if a NIC was removed ("Several NICs"). Any write
	// that has failed may have been carried out, wholly or in part, unless the peer's NIC has refused it.
	ErrOutcomeUnknown = engine.ErrOutcomeUnknown

	// ErrRange means that an offset, a length or a setting is out of range. It is failure.ErrRange.
	ErrRange = failure.ErrRange
	// ErrLimit means that the call would exceed a limit, such as that of SetMaxPinned. It has no effect. It is
	// failure.ErrLimit.
	ErrLimit = failure.ErrLimit
	// ErrInUse means that something still uses the memory. Nothing was freed. It is failure.ErrInUse.
	ErrInUse = failure.ErrInUse
)

// OpError is the error of an operation. If the NIC has reported the error, errors.As finds an *[ibvfd.WCError] with
// the vendor's own code in it.
type OpError struct {
	Op   OpKind
	Peer net.Addr
	NIC  string
	Err  error
}

// Error returns all fields in one line, and a remedy if there is one.
func (e *OpError) Error() string {
	text := fmt.Sprintf("%v with %v by %s: %v", e.Op, e.Peer, e.NIC, e.Err)
	if r := operation.Remedy(e.Err); r != "" {
		text += "; " + r
	}
	return text
}

// Unwrap returns Err.
func (e *OpError) Unwrap() error { return e.Err }

// CorruptError describes the first block of the peer's write whose bytes are wrong. ReceiveNotification returns it,
// with ErrCorrupt.
type CorruptError struct {
	error
	Memory      string // name of the exported memory; "" for memory of Conn.Share
	Off         int64  // offset of the block in the bytes of the write
	At          int64  // offset of the block in the memory, as the peer sees it: through its layout
	Len         int64  // bytes of the block
	Sent, Found uint32 // CRC32C of the bytes that the peer has sent, and of those in the memory
	Blocks      int    // blocks of the write that differ
	Checked     int    // blocks of the write that were compared
}

// unanswered is the error of an operation to which the peer's NIC has given no answer. It is ErrPeerGone.
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

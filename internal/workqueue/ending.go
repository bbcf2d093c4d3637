// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// ErrRemoved is the cause if the program has removed the connection. No automatic receive reports
// it.
var ErrRemoved = fmt.Errorf("%w: removed", rc.ErrNotConnected)

// ending has the reasons for a connection's end.
type ending struct {
	cause    error
	down     error         // the state of the port, or the path, if the connection ended because of it
	farewell error         // the peer's reason for the end; nil before it comes
	heard    chan struct{} // closed when farewell is set
}

// gone returns the error of a connection that cannot be used.
func (e *ending) gone() error {
	if errors.Is(e.cause, rc.ErrNotConnected) {
		return e.cause
	}
	return e.unanswered(fmt.Errorf("%w: %w", rc.ErrNotConnected, e.cause))
}

// unanswered makes an error ErrPeerGone if the connection has ended because the peer's NIC or
// host does not answer.
func (e *ending) unanswered(err error) error {
	if unanswered(e.cause) {
		return unansweredError{err}
	}
	return err
}

// unanswered reports whether a connection's cause is that the peer's NIC or host does not answer.
func unanswered(cause error) bool {
	return errors.Is(cause, &ibvfd.WCError{Status: ibvfd.WCRetryExcErr}) || errors.Is(cause, unix.ETIMEDOUT) || errors.Is(cause, unix.EHOSTUNREACH)
}

type unansweredError struct{ error }

func (e unansweredError) Unwrap() error        { return e.error }
func (e unansweredError) Is(target error) bool { return target == operation.ErrPeerGone }

// flushed returns the error of an operation that the NIC has flushed: the reason why the
// connection has ended, and the flush.
func (e *ending) flushed(err error) error {
	switch {
	case e.farewell == nil && errors.Is(e.cause, &ibvfd.WCError{Status: ibvfd.WCWRFlushErr}): // no other reason is known
		return becauseOf(e.down, fmt.Errorf("%w: %w", rc.ErrNotConnected, err))
	case errors.As(e.cause, new(*ibvfd.WCError)): // another operation's status
		return &behind{e.gone(), err}
	}
	return fmt.Errorf("%w; %w", e.gone(), err)
}

// behind is the error of an operation that the NIC has flushed because another one has failed.
// errors.Is finds in it the connection's error, without the other operation's status.
type behind struct{ gone, err error }

func (b *behind) Error() string { return b.gone.Error() + "; " + b.err.Error() }
func (b *behind) Unwrap() error { return b.err }

// Is reports whether the connection's error is target.
func (b *behind) Is(target error) bool {
	_, status := target.(*ibvfd.WCError)
	return !status && errors.Is(b.gone, target)
}

// of returns the error of an operation that was under way; err is its own, or nil.
func (e *ending) of(err error) error {
	switch {
	case err == nil:
		return e.gone()
	case errors.Is(err, &ibvfd.WCError{Status: ibvfd.WCWRFlushErr}):
		return e.flushed(err)
	}
	return becauseOf(e.down, err)
}

// becauseOf adds to a completion's error the state of the port or the path, which the status
// does not include.
func becauseOf(down, err error) error {
	if down == nil {
		return err
	}
	return fmt.Errorf("%w; %w", err, down)
}

// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/fifo"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// ErrRemoved is the cause if the program has removed the connection. No automatic receive reports
// it.
var ErrRemoved = fmt.Errorf("%w: removed", rc.ErrNotConnected)

// Ending has the reasons for a Queue's end. The Queue's mutex guards it.
type Ending struct {
	q        *Queue
	shut     error // why no work is taken any more; nil before Shut
	cause    error
	down     error         // the state of the port, or the path, if the connection ended because of it
	farewell error         // the peer's reason for the end; nil before it comes
	heard    chan struct{} // closed when farewell is set
}

// Refusal returns the error of a connection that takes no works any more; nil if it does.
func (e *Ending) Refusal() error {
	e.q.mu.Lock()
	defer e.q.mu.Unlock()
	return e.refusal()
}

func (e *Ending) refusal() error {
	if e.q.state == dead {
		return e.gone()
	}
	return e.shut
}

// Err returns why a connection has begun to end, nil before that. Until its ops are completed the
// reason may still become more precise.
func (e *Ending) Err() error {
	e.q.mu.Lock()
	defer e.q.mu.Unlock()
	if e.q.state != dead {
		return nil
	}
	return e.gone()
}

// Gone returns the error of a connection that has begun to end.
func (e *Ending) Gone() error {
	e.q.mu.Lock()
	defer e.q.mu.Unlock()
	return e.gone()
}

// Cause returns why the connection has ended, and whether the peer may have received operations
// that were under way then.
func (e *Ending) Cause() (cause error, unknown bool) {
	e.q.mu.Lock()
	defer e.q.mu.Unlock()
	return e.cause, e.q.send.unknown
}

// Hear keeps the first reason for which the peer has ended the connection, and returns it. If why
// is nil it only returns it.
func (e *Ending) Hear(why error) error {
	e.q.mu.Lock()
	defer e.q.mu.Unlock()
	if e.farewell == nil {
		if e.farewell = why; why != nil {
			close(e.heard)
		}
	}
	return e.farewell
}

// AwaitReason waits until Hear gets the peer's reason, if this side knows none: a NIC that has
// refused a request of the peer flushes its own requests, and reports the refusal to the peer
// only. over is closed when no reason can come any more.
func (e *Ending) AwaitReason(over <-chan struct{}) {
	cause, _ := e.Cause()
	if !errors.Is(cause, &ibvfd.WCError{Status: ibvfd.WCWRFlushErr}) {
		return
	}
	select {
	case <-e.heard:
	case <-over:
	case <-time.After(FlushWait):
	}
	e.q.mu.Lock()
	defer e.q.mu.Unlock()
	if e.farewell != nil {
		e.cause = fmt.Errorf("%w; %w", e.farewell, e.cause)
	}
}

// gone returns the error of a connection that cannot be used.
func (e *Ending) gone() error {
	if errors.Is(e.cause, rc.ErrNotConnected) {
		return e.cause
	}
	return e.unanswered(fmt.Errorf("%w: %w", rc.ErrNotConnected, e.cause))
}

// unanswered makes an error ErrPeerGone if the connection has ended because the peer's NIC or
// host does not answer.
func (e *Ending) unanswered(err error) error {
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
func (e *Ending) flushed(err error) error {
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
func (e *Ending) of(err error) error {
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

// Abort ends the connection. From here on nothing is posted. Config.Aborted does the slow part in
// a goroutine of its own: Link.End, and then Finish.
func (q *Queue) Abort(cause error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.abort(cause)
}

// QueueFailed implements cqueue.Conn. The link gets no completions any more, as when its NIC was
// removed: a connection that outlives its links loses it, and any other ends.
func (q *Queue) QueueFailed(cause error) { q.Link.Fail(cause) }

// abort is Abort for callers that hold the mutex.
func (q *Queue) abort(cause error) {
	if q.state == dead {
		return
	}
	if q.state != up {
		close(q.ready)
	}
	if q.End.farewell != nil && unanswered(cause) {
		cause = fmt.Errorf("%w; %w", q.End.farewell, cause) // the peer's NIC does not answer, because the peer has ended the connection
	}
	q.state, q.End.cause = dead, cause
	q.over.Store(true)
	q.stop()
	q.vacate()
	go q.cfg.Aborted()
}

// Finish waits for the slow work, and completes the remaining ops, each once, in the order of
// posting within its queue, with the connection's cause or with the NIC's status. It returns
// false if the NIC may still touch their memory.
func (q *Queue) Finish() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.slow.rest()
	var left []*Work
	add := func(o *Work) {
		if !o.ended {
			o.ended = true
			left = append(left, o)
		}
	}
	for i := range q.send.queues {
		s := &q.send.queues[i]
		for s.groups.Len() > 0 {
			o := s.groups.Pop().op
			if i == rc.WriteQueue && !s.refused && !o.letter.IsCredit() && !o.probe {
				q.send.unknown = true
			}
			add(o)
		}
	}
	for _, f := range []*fifo.Queue[*Work]{&q.send.pending, &q.recv.posted, &q.recv.waiting} {
		for f.Len() > 0 {
			o := f.Pop()
			if o.again && o.queue == rc.WriteQueue {
				q.send.unknown = true
			}
			add(o)
		}
	}
	for _, o := range left {
		q.finish(o, q.End.of(o.err))
	}
	if !q.Link.stuck {
		q.mail.Close()
	}
	return !q.Link.stuck
}

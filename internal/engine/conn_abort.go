// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/fifo"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/rc"
)

func (c *Conn) refusal() error {
	switch {
	case c.state == dead:
		return c.gone()
	case c.shut:
		return c.isClosed()
	}
	return nil
}

// gone returns the error of a connection that cannot be used.
func (c *Conn) gone() error {
	if errors.Is(c.cause, ErrNotConnected) {
		return c.cause
	}
	return c.unanswered(fmt.Errorf("%w: %w", ErrNotConnected, c.cause))
}

// unanswered makes an error ErrPeerGone if the connection has ended because the peer does not
// answer: its NIC, or its host.
func (c *Conn) unanswered(err error) error {
	if unanswered(c.cause) {
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
func (e unansweredError) Is(target error) bool { return target == ErrPeerGone }

// lost waits for the end, and returns the reason.
func (c *Conn) lost(ctx context.Context) error {
	select {
	case <-c.ended:
	case <-ctx.Done():
		return errs.Ended(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone()
}

// flushWait bounds the time that a failed link has to flush. NICs take microseconds.
const (
	flushWait = 250 * time.Millisecond
	flushLook = 20 * time.Microsecond
)

// answerWait bounds how long a connection that the peer has ended waits for the answers of the
// peer's NIC. It waits only while operations are under way; the full time passes only if the
// peer has ended the connection for a reason of its own.
const (
	answerWait = 2 * time.Second
	answerLook = time.Millisecond
)

// drainBeforeAbort takes the completions of operations under way. A peer ends the connection
// when its NIC has refused an operation; the NIC's answer takes another way, which may be
// slower, and a flush would hide which operation it was. Once the peer's queue pairs are
// destroyed only an answer may come that is on its way.
func (c *Conn) drainBeforeAbort() {
	over := time.Now().Add(answerWait)
	for gone := false; time.Now().Before(over); time.Sleep(answerLook) {
		c.queue.Poll()
		c.mu.Lock()
		if c.peerGone && !gone {
			gone, over = true, time.Now().Add(flushWait)
		}
		waits := c.state == up && (c.q[rc.WriteQueue].groups.Len() > 0 || c.q[rc.ReadQueue].groups.Len() > 0)
		c.mu.Unlock()
		if !waits {
			return
		}
	}
}

// broke is called when the NIC has given up the link. It does not block.
func (c *Conn) broke(why error) {
	go func() {
		c.mu.Lock()
		q := c.queue
		c.mu.Unlock()
		if q != nil {
			q.Poll() // earlier completions may say more
			if e := (*rc.EventError)(nil); errors.As(why, &e) && e.Event.Type == ibvfd.EventCQErr {
				q.Retire()
			}
		}
		c.Abort(why)
	}()
}

// errOwnEnd is the cause if this side has ended the connection: the program is not notified.
var errOwnEnd = fmt.Errorf("%w: removed", ErrNotConnected)

// Abort is abort for callers that do not hold the connection's mutex.
func (c *Conn) Abort(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abort(cause)
}

// abort ends the connection. From here on nothing is posted. A goroutine does the slow part,
// and closes c.ended: all operations under way complete, with cause or with the NIC's status,
// and the keys that the peer was given are withdrawn. The peer's offers that the program has
// not taken are dropped.
func (c *Conn) abort(cause error) {
	if c.state == dead {
		return
	}
	if c.state == connecting {
		close(c.ready)
	}
	if c.farewell != nil && unanswered(cause) {
		cause = fmt.Errorf("%w; %w", c.farewell, cause) // the peer's NIC does not answer, because the peer has ended the connection
	}
	c.state, c.cause = dead, cause
	c.over.Store(true)
	c.stop()
	c.vacate()
	c.offers, c.offerBytes, c.names.imports = fifo.Queue[*memory.RemoteBuffer]{}, 0, nil
	go c.teardown()
}

// teardown is the slow part of abort.
func (c *Conn) teardown() {
	defer c.e.tasks.Done()
	c.mu.Lock()
	tcp, uninvited, reading, bye, l := c.tcp, c.uninvited, c.reading, farewell(c.cause), c.listener
	c.mu.Unlock()
	if l != nil {
		c.e.mu.Lock()
		l.conns--
		c.e.mu.Unlock()
	}
	if uninvited || c.own { // the program does not know the peer, or knows its Conn
		c.e.mu.Lock()
		c.e.forget(c.peer)
		c.e.mu.Unlock()
	}
	said := make(chan struct{})
	switch {
	case reading: // the peer learns of it at once, and the link ends meanwhile
		c.e.tasks.Go(func() {
			c.say(tcp, exchange.MsgBye, bye)
			close(said)
		})
	case tcp != nil:
		// The peer sees the end. TLS sends a close message, which may take time.
		c.e.tasks.Go(func() { _ = tcp.Close() })
	}
	c.awaitReason()
	c.endLink()
	c.withdraw()
	c.mu.Lock()
	c.rest()
	c.finishAll()
	stuck := c.stuck
	if !stuck {
		c.closeMail()
	}
	onEnd := c.onEnd
	c.finished = true
	c.mu.Unlock()
	if onEnd != nil {
		onEnd()
	}
	if reading {
		c.e.tasks.Go(func() {
			<-said
			c.part(tcp, stuck)
		})
	} else {
		close(c.readDone)
	}
	close(c.ended)
	c.tell()
}

// endLink takes the completions from before the end, and closes the queue pairs, so that the
// NIC does not touch the memory. c.link does not change any more.
func (c *Conn) endLink() {
	if c.link == nil {
		return
	}
	if errors.As(c.cause, new(*ibvfd.WCError)) {
		down := c.link.Down()
		if down == nil && c.path != nil && errors.Is(c.cause, &ibvfd.WCError{Status: ibvfd.WCRetryExcErr}) {
			down = fmt.Errorf("the path is %v", c.path) // its GIDs may not reach each other
		}
		c.mu.Lock()
		c.down, c.cause = down, becauseOf(down, c.cause)
		c.mu.Unlock()
	}
	if err := c.link.Fail(); err == nil {
		c.drain()
	}
	c.queue.Leave(c.id)
	// After a close without error the NIC touches none of the memory. Otherwise the memory
	// stays.
	if err := c.link.Close(); err != nil {
		c.mu.Lock()
		c.stuck, c.letSlabGo = true, c.e.slab.Hold()
		c.mu.Unlock()
		c.e.nic.Keep(c.closeStuck)
		return
	}
	c.queue.Poll() // drops the completions of this connection
	c.queue.Release(c.opt.room())
}

// withdraw ends the keys that the peer was given. No keys are added any more.
func (c *Conn) withdraw() {
	c.mu.Lock()
	shares := c.shares
	c.shares = nil
	c.mu.Unlock()
	for s := range shares {
		_ = c.e.nic.End(s.keys.Withdraw)
	}
}

// becauseOf adds to a completion's error the state of the port or the path, which the status
// does not include.
func becauseOf(down, err error) error {
	if down == nil {
		return err
	}
	return fmt.Errorf("%w; %w", err, down)
}

// recycle frees an op that has ended.
func (c *Conn) recycle(o *Work) {
	if c.stuck {
		c.kept = append(c.kept, o)
		return
	}
	c.e.recycle(o)
}

// closeStuck tries again to close a link, and frees its resources.
func (c *Conn) closeStuck() error {
	if err := c.link.Close(); err != nil {
		return err
	}
	c.queue.Poll()
	c.queue.Release(c.opt.room())
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.kept {
		c.e.recycle(o)
	}
	c.letSlabGo()
	c.closeMail()
	c.stuck, c.kept = false, nil
	return nil
}

// drain takes completions from before the failure, and with them the operation that failed.
func (c *Conn) drain() {
	for end := time.Now().Add(flushWait); time.Now().Before(end); time.Sleep(flushLook) {
		c.queue.Poll()
		c.mu.Lock()
		drained := c.drained()
		c.mu.Unlock()
		if drained {
			return
		}
	}
}

// drained reports whether the last work request of each queue has completed.
func (c *Conn) drained() bool {
	for i := range c.q {
		if c.q[i].groups.Len() > 0 && c.q[i].seen < c.q[i].next {
			return false
		}
	}
	return c.rq.posted.Len() == 0 || c.rq.seen == c.rq.next
}

// flushed returns the error of an operation that the NIC has flushed: the reason why the
// connection has ended, and the flush.
func (c *Conn) flushed(err error) error {
	switch {
	case c.farewell == nil && errors.Is(c.cause, &ibvfd.WCError{Status: ibvfd.WCWRFlushErr}): // no other reason is known
		return becauseOf(c.down, fmt.Errorf("%w: %w", ErrNotConnected, err))
	case errors.As(c.cause, new(*ibvfd.WCError)): // another operation's status
		return c.unanswered(fmt.Errorf("%w: %v; %w", ErrNotConnected, c.cause, err))
	}
	return fmt.Errorf("%w; %w", c.gone(), err)
}

// finishAll completes the remaining ops, each once, in the order of posting within its queue.
func (c *Conn) finishAll() {
	var left []*Work
	add := func(o *Work) {
		if !o.ended {
			o.ended = true
			left = append(left, o)
		}
	}
	for i := range c.q {
		for c.q[i].groups.Len() > 0 {
			o := c.q[i].groups.Pop().op
			if i == rc.WriteQueue && !c.q[i].refused && o.letter.kind != mailCredit {
				c.unknown = true
			}
			add(o)
		}
	}
	for _, f := range []*fifo.Queue[*Work]{&c.pending, &c.rq.posted, &c.rq.waiting} {
		for f.Len() > 0 {
			add(f.Pop())
		}
	}
	for _, o := range left {
		err := o.err
		switch {
		case err == nil:
			err = c.gone()
		case errors.Is(err, &ibvfd.WCError{Status: ibvfd.WCWRFlushErr}):
			err = c.flushed(err)
		default:
			err = becauseOf(c.down, err)
		}
		c.finish(o, err)
	}
}

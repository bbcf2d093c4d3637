// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
)

func (c *conn) refusal() error {
	if c.state != dead {
		return nil
	}
	return c.gone()
}

// gone is why the connection cannot be used.
func (c *conn) gone() error {
	if errors.Is(c.cause, ErrNotConnected) {
		return c.cause
	}
	return fmt.Errorf("%w: %w", ErrNotConnected, c.cause)
}

// lost waits for the end, and says why.
func (c *conn) lost(ctx context.Context) error {
	select {
	case <-c.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone()
}

// flushWait bounds how long a failed link is given to flush. NICs take
// microseconds.
const (
	flushWait = 250 * time.Millisecond
	flushLook = 20 * time.Microsecond
)

// answerWait bounds how long a connection that the peer has ended waits for what
// its NIC has answered. It waits no longer than something is under way: so long only
// where the peer has ended for a reason of its own.
const (
	answerWait = 2 * time.Second
	answerLook = time.Millisecond
)

// drainBeforeAbort takes the completions of what is under way. A peer ends the connection
// when its NIC has refused something; the NIC's word of that comes another way,
// which may be the slower one, and flushing would hide which operation it was.
func (c *conn) drainBeforeAbort() {
	for end := time.Now().Add(answerWait); time.Now().Before(end); time.Sleep(answerLook) {
		c.queue.poll()
		c.mu.Lock()
		waits := c.state == up && (c.q[writeQueue].groups.len() > 0 || c.q[readQueue].groups.len() > 0)
		c.mu.Unlock()
		if !waits {
			return
		}
	}
}

// broke is called when the NIC has given the link up. It does not block.
func (c *conn) broke(why error) {
	go func() {
		c.mu.Lock()
		q := c.queue
		c.mu.Unlock()
		if q != nil {
			q.poll() // what completed before may say more
			if e := (*EventError)(nil); errors.As(why, &e) && e.Event.Type == ibvfd.EventCQErr {
				q.retire()
			}
		}
		c.end(why)
	}()
}

// errOwnEnd: this side has ended the connection, and need not be told.
var errOwnEnd = fmt.Errorf("%w: removed", ErrNotConnected)

// end is abort of who does not have the connection's mutex.
func (c *conn) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abort(cause)
}

// abort has the connection end. From here on nothing is posted; a goroutine does the rest, which
// takes time, and closes c.ended: all that is under way completes, with cause or with what the NIC
// says of it, and the keys that the peer was given are withdrawn. What it has offered and nobody has
// taken goes too.
func (c *conn) abort(cause error) {
	if c.state == dead {
		return
	}
	if c.state == connecting {
		close(c.ready)
	}
	c.state, c.cause = dead, cause
	c.over.Store(true)
	c.offers, c.offerBytes = fifo[*RemoteBuffer]{}, 0
	go c.teardown()
}

// teardown is the slow part of abort.
func (c *conn) teardown() {
	defer c.e.tasks.Done()
	c.mu.Lock()
	tcp, uninvited := c.tcp, c.uninvited
	c.mu.Unlock()
	if uninvited { // nobody knows of it
		c.e.mu.Lock()
		c.e.forget(c.peer)
		c.e.mu.Unlock()
	}
	if tcp != nil {
		// The peer learns of it. TLS says goodbye, which may take time.
		c.e.tasks.Go(func() { _ = tcp.Close() })
	}
	c.endLink()
	c.withdraw()
	c.mu.Lock()
	c.rest()
	c.finishAll()
	c.mu.Unlock()
	close(c.ended)
	c.tell()
}

// endLink takes what had completed before the end, and has the NIC let go of the memory. c.link does
// not change any more.
func (c *conn) endLink() {
	if c.link == nil {
		return
	}
	if errors.As(c.cause, new(*ibvfd.WCError)) {
		down := c.link.down()
		if down == nil && c.path != nil && errors.Is(c.cause, &ibvfd.WCError{Status: ibvfd.WCRetryExcErr}) {
			down = fmt.Errorf("the path is %v", c.path) // of GIDs that may not reach each other
		}
		c.mu.Lock()
		c.down, c.cause = down, becauseOf(down, c.cause)
		c.mu.Unlock()
	}
	if err := c.link.fail(); err == nil {
		c.drain()
	}
	c.queue.leave(c.id)
	// From here on the NIC touches none of the memory. Otherwise it stays.
	if err := c.link.close(); err != nil {
		c.mu.Lock()
		c.stuck, c.letSlabGo = true, c.e.slab.hold()
		c.mu.Unlock()
		c.e.nic.keep(c.closeStuck)
		return
	}
	c.queue.poll() // what it has left there
	c.queue.release(c.e.opt.room())
}

// withdraw ends the keys that the peer was given. Nobody adds any.
func (c *conn) withdraw() {
	c.mu.Lock()
	shares := c.shares
	c.shares = nil
	c.mu.Unlock()
	for s := range shares {
		_ = c.e.nic.end(s.close)
	}
}

// becauseOf adds to a completion's error that the port is down, or which way it went,
// which its status does not say.
func becauseOf(down, err error) error {
	if down == nil {
		return err
	}
	return fmt.Errorf("%w; %w", err, down)
}

// recycle lets go of an op that has ended.
func (c *conn) recycle(o *op) {
	if c.stuck {
		c.kept = append(c.kept, o)
		return
	}
	c.e.recycle(o)
}

// closeStuck closes a link that did not, and lets go of what it had.
func (c *conn) closeStuck() error {
	if err := c.link.close(); err != nil {
		return err
	}
	c.queue.poll()
	c.queue.release(c.e.opt.room())
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.kept {
		c.e.recycle(o)
	}
	c.letSlabGo()
	c.stuck, c.kept = false, nil
	return nil
}

// drain takes what had completed before the failure, and learns from the NIC
// what failed.
func (c *conn) drain() {
	for end := time.Now().Add(flushWait); time.Now().Before(end); time.Sleep(flushLook) {
		c.queue.poll()
		c.mu.Lock()
		drained := c.drained()
		c.mu.Unlock()
		if drained {
			return
		}
	}
}

// drained reports whether each queue's last work request has been heard of.
func (c *conn) drained() bool {
	for i := range c.q {
		if c.q[i].groups.len() > 0 && c.q[i].seen < c.q[i].next {
			return false
		}
	}
	return c.rq.posted.len() == 0 || c.rq.seen == c.rq.next
}

// flushed is the error of an operation that the NIC has flushed: what has ended the connection, and
// that it was flushed.
func (c *conn) flushed(err error) error {
	switch {
	case errors.Is(c.cause, &ibvfd.WCError{Status: ibvfd.WCWRFlushErr}): // all that there is to say
		return becauseOf(c.down, fmt.Errorf("%w: %w", ErrNotConnected, err))
	case errors.As(c.cause, new(*ibvfd.WCError)): // another operation's status
		return fmt.Errorf("%w: %v; %w", ErrNotConnected, c.cause, err)
	}
	return fmt.Errorf("%w; %w", c.gone(), err)
}

// finishAll completes what is left, each op once, in the order of posting
// within its queue.
func (c *conn) finishAll() {
	var left []*op
	add := func(o *op) {
		if !o.ended {
			o.ended = true
			left = append(left, o)
		}
	}
	for i := range c.q {
		for c.q[i].groups.len() > 0 {
			add(c.q[i].groups.pop().op)
		}
	}
	for _, f := range []*fifo[*op]{&c.pending, &c.rq.posted, &c.rq.waiting} {
		for f.len() > 0 {
			add(f.pop())
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

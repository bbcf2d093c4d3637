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
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	return c.gone()
}

// flushWait bounds how long a failed link is given to flush. NICs take
// microseconds.
const (
	flushWait = 250 * time.Millisecond
	flushLook = 20 * time.Microsecond
)

// hearWait bounds how long a connection that the peer has ended waits for what
// its NIC has answered. It waits no longer than something is under way: so long only
// where the peer has ended for a reason of its own.
const (
	hearWait = 2 * time.Second
	hearLook = time.Millisecond
)

// hearOut takes the completions of what is under way. A peer ends the connection
// when its NIC has refused something; the NIC's word of that comes another way,
// which may be the slower one, and flushing would hide which operation it was.
func (e *Endpoint) hearOut(c *conn) {
	for end := time.Now().Add(hearWait); time.Now().Before(end); time.Sleep(hearLook) {
		e.mu.Lock()
		c.progress()
		waits := c.state == up && (c.q[writeQueue].groups.len() > 0 || c.q[readQueue].groups.len() > 0)
		e.mu.Unlock()
		if !waits {
			return
		}
	}
}

// abort ends the connection: all that is under way completes, with cause or
// with what the NIC says of it, and the keys that the peer was given end. What it
// has offered and nobody has taken goes too.
func (c *conn) abort(cause error) {
	if c.state == dead {
		return
	}
	was := c.state
	c.state, c.cause = dead, cause
	if was == connecting {
		close(c.ready)
	}
	close(c.ended)
	c.offers, c.offerBytes = fifo[*RemoteBuffer]{}, 0
	if c.uninvited { // nobody knows of it
		c.e.forget(c.peer)
	}
	if c.tcp != nil {
		// The peer learns of it. TLS says goodbye, which may take time.
		c.e.tasks.Go(func() { _ = c.tcp.Close() })
	}
	if c.link != nil {
		if errors.As(cause, new(*ibvfd.WCError)) {
			c.down = c.link.down()
			if c.down == nil && c.over != nil && errors.Is(cause, &ibvfd.WCError{Status: ibvfd.WCRetryExcErr}) {
				c.down = fmt.Errorf("the path is %v", c.over) // of GIDs that may not reach each other
			}
			c.cause = becauseOf(c.down, cause)
		}
		if err := c.link.fail(); err == nil {
			c.drain()
		}
		// From here on the NIC touches none of the memory. Otherwise it stays.
		if err := c.link.close(); err != nil {
			c.stuck = true
			if s := c.e.slab; s != nil && s.buf.use() == nil {
				c.slab = s
			}
			c.e.nic.keep(c.unstick)
		}
	}
	c.finishAll()
	for s := range c.e.shares {
		if s.conn == c {
			_ = c.e.nic.end(s.close)
			delete(c.e.shares, s)
		}
	}
	select {
	case c.offered <- struct{}{}:
	default:
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
		c.held = append(c.held, o)
		return
	}
	c.e.recycle(o)
}

// unstick closes a link that did not, and lets go of what it had.
func (c *conn) unstick() error {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if err := c.link.close(); err != nil {
		return err
	}
	for _, o := range c.held {
		c.e.recycle(o)
	}
	if c.slab != nil {
		c.slab.buf.core.unuse()
	}
	c.stuck, c.held, c.slab = false, nil, nil
	return nil
}

// drain takes what had completed before the failure, and learns from the NIC
// what failed.
func (c *conn) drain() {
	wc := make([]ibvfd.WC, batchWRs)
	for end := time.Now().Add(flushWait); time.Now().Before(end) && !c.drained(); {
		n, err := c.link.poll(wc)
		if err != nil {
			return
		}
		for i := range wc[:n] {
			_ = c.completed(&wc[i])
		}
		if n == 0 {
			time.Sleep(flushLook)
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
			if errors.As(c.cause, new(*ibvfd.WCError)) { // another operation's status
				err = fmt.Errorf("%w; %w: %v", err, ErrNotConnected, c.cause)
			} else {
				err = fmt.Errorf("%w; %w", err, c.gone())
			}
		default:
			err = becauseOf(c.down, err)
		}
		c.finish(o, err)
	}
}

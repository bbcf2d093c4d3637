// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/slab"
)

// NewWork returns an operation, whose memory the caller adds, and which is then posted or
// dropped. The sink gets the completion, with the context.
func (c *Conn) NewWork(kind operation.Kind, flags operation.Flags, context any, sink operation.Sink) (*Work, error) {
	o, err := c.e.start(kind, flags, context)
	if err != nil {
		return nil, err
	}
	o.sink = sink
	return o, nil
}

// Drop gives up a work that was not posted.
func (c *Conn) Drop(o *Work) { c.e.recycle(o) }

// AddLocal adds local memory: of several spans, one follows the other.
func (o *Work) AddLocal(c *Conn, s memory.Span) error { return o.addLocal(c.e, &s) }

// AddBytes makes p the bytes that are written. They are copied at once.
func (o *Work) AddBytes(c *Conn, p []byte) error {
	if o.kind != operation.Write {
		return &dmabuf.Error{Op: o.kind.String(), Detail: "only a write takes bytes", Err: unix.EOPNOTSUPP}
	}
	return o.inject(c.e, int64(len(p)), func(slot []byte) error { copy(slot, p); return nil })
}

// AddRemote adds the peer's memory: of several spans, one follows the other.
func (o *Work) AddRemote(s memory.RemoteSpan) error {
	need := ibvfd.AccessRemoteRead
	switch o.kind {
	case operation.Write:
		need = ibvfd.AccessRemoteWrite
	case operation.FetchAdd, operation.CompareSwap:
		need = ibvfd.AccessRemoteAtomic
	}
	return o.addRemote(need, &s)
}

// SetAtomic sets an atomic's numbers: to add, or to compare with and to swap for. Without
// local memory the old value is in the completion.
func (o *Work) SetAtomic(add, swap uint64) { o.add, o.swap = add, swap }

// SetContext bounds a work: the NIC gets nothing of it after the end of ctx, which may be nil.
func (o *Work) SetContext(ctx context.Context) { o.life = ctx }

// expired ends a work that has not begun, and whose context has ended. Its error is that of
// Cancel then, which follows.
func (o *Work) expired() {
	if o.life != nil && o.err == nil && o.life.Err() != nil {
		o.err = errs.Ended(o.life)
	}
}

// Ticket names a posted work until it has ended.
type Ticket struct {
	c   *Conn
	o   *Work
	use uint32
}

// Post takes a work over. If it returns an error the work is gone, and makes no completion.
func (c *Conn) Post(o *Work) (Ticket, error) {
	if err := o.complete(c.e); err != nil {
		c.e.recycle(o)
		return Ticket{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rb := range o.bufs {
		if err := c.permits(rb); err != nil {
			c.e.recycle(o)
			return Ticket{}, err
		}
	}
	t := Ticket{c, o, o.uses.Load()}
	return t, c.submit(o)
}

// complete checks a work to which all has been added.
func (o *Work) complete(e *Endpoint) error {
	switch o.kind {
	case operation.FetchAdd, operation.CompareSwap:
		if len(o.local) == 0 {
			x, err := e.slab.Take()
			if err != nil {
				return err
			}
			o.slot, o.result = x, true
			o.local, o.length = append(o.local, x.Window(slab.ResultSize)), slab.ResultSize
		}
		return o.checkAtomic(e)
	case operation.Send:
		return nil
	}
	if o.flags&operation.FlagDeliveryComplete != 0 {
		if err := e.slab.Need(); err != nil {
			return err
		}
	}
	return o.matched()
}

// Cancel withdraws a work as far as the NIC does not have it: why becomes its error. It returns
// true if the NIC has got nothing of it, and false if it has, or if the work has ended.
func (t Ticket) Cancel(why error) bool {
	c := t.c
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	withdrawn := t.withdraw(why)
	c.kick()
	return withdrawn
}

// CancelAll is Cancel of several works of one connection: none of them is posted meanwhile.
func CancelAll(list []Ticket, why error) {
	if len(list) == 0 {
		return
	}
	c := list[0].c
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range list {
		t.withdraw(why)
	}
	c.kick()
}

// withdraw is Cancel for callers that hold the connection's mutex, and call kick.
func (t Ticket) withdraw(why error) bool {
	c, o := t.c, t.o
	if o.uses.Load() != t.use || o.made || o.ended || c.state == dead {
		return false
	}
	return c.cancel(o, why)
}

// cancel withdraws a work that is pending. The caller calls kick.
func (c *Conn) cancel(o *Work, why error) bool {
	if o.withdrawn == nil {
		o.withdrawn = why
	}
	if o.cancel != nil {
		o.cancel()
	}
	if o.busy { // kick ends it when the slow work is done
		if o.err == nil {
			o.err = o.withdrawn
		}
		return true
	}
	if !c.forgetPending(o) {
		return false
	}
	q := &c.q[o.queue]
	begun := o.begun
	last := -1
	for i := q.groups.Len() - 1; i >= 0; i-- {
		if q.groups.At(i).op == o {
			last = i
			break
		}
	}
	o.made = true
	if last >= 0 {
		q.groups.At(last).final = true
	} else {
		c.finish(o, o.withdrawn)
	}
	return !begun
}

// forgetPending removes a work from those whose work requests are not all made.
func (c *Conn) forgetPending(o *Work) bool {
	for i := range c.pending.Len() {
		if *c.pending.At(i) == o {
			c.pending.RemoveAt(i)
			return true
		}
	}
	return false
}

// closedChannel is closed.
var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Vacancy returns a channel that is closed when the connection may take another work, or has
// ended.
func (c *Conn) Vacancy() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == dead || c.shut || c.posted < c.opt.Depth {
		return closedChannel
	}
	if c.vacancy == nil {
		c.vacancy = make(chan struct{})
	}
	return c.vacancy
}

// vacate tells those who wait that the connection takes a work, or none any more.
func (c *Conn) vacate() {
	if c.vacancy != nil {
		close(c.vacancy)
		c.vacancy = nil
	}
}

// awaitReady waits, in a goroutine, until a work's sources may be read.
func (c *Conn) awaitReady(o *Work) {
	o.busy = true
	ctx, cancel := context.WithCancel(c.life)
	o.cancel = cancel
	c.waits++
	go func() {
		var err error
		for _, ready := range o.ready {
			if err == nil {
				err = ready(ctx)
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waits--
		o.busy = false
		if err != nil && o.err == nil {
			o.err = fmt.Errorf("the source is not ready: %w", err)
		}
		if o.err == nil && o.staged && c.state != dead {
			c.later(o, (*Work).stage)
		}
		c.kick()
		c.deliver()
		if c.waits == 0 {
			c.idle.Broadcast()
		}
	}()
}

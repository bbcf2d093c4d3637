// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// NewWork returns an operation. The caller adds its memory, and passes it to Submit or to Drop.
func (e *Endpoint) NewWork(kind operation.Kind, flags operation.Flags, context any) (*workqueue.Work, error) {
	if kind == operation.Recv && e.opt.AutoReceive > 0 {
		return nil, &failure.Error{
			Op: kind.String(), Device: e.nic.Name(), Detail: "the endpoint posts its receives itself (AutoReceive)", Err: unix.EINVAL,
			Remedy: "make an endpoint without AutoReceive for those who send messages",
		}
	}
	return e.pool.New(kind, flags, context, nil)
}

// Drop gives up a work that was not posted.
func (e *Endpoint) Drop(o *workqueue.Work) { e.pool.Put(o) }

// Submit posts a work to a peer. If it returns an error, it has dropped the work, which makes no
// completion.
func (e *Endpoint) Submit(to operation.Peer, o *workqueue.Work) error {
	c, p, err := (*Conn)(nil), (*peer)(nil), o.Prepare()
	if err == nil {
		c, p, err = e.connOf(to)
	}
	if err == nil && c.Works.MustPack(o) {
		if err = o.Pack(); err == nil {
			c, p, err = e.connOf(to)
		}
	}
	if err != nil {
		e.pool.Put(o)
		return err
	}
	more := o.Flags&operation.FlagMore != 0
	_, err = c.Works.Post(o)
	if more && err == nil && e.Sleepers() > 0 { // the next call may be one that waits, and a goroutine that sleeps in Wait does not poll
		c.Works.Kick()
	}
	if p != nil { // only now, so that a new connection does not fail before it has the work
		e.dialLater(c, p.addr)
	}
	return err
}

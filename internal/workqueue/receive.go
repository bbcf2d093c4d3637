// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/cqueue"
	"github.com/gpurdma/gpurdma/internal/fifo"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/wire"
)

// receiver is the receiving side of a Queue, whose mutex guards it.
type receiver struct {
	q       *Queue
	waiting fifo.Queue[*Work] // until there is a link
	posted  fifo.Queue[*Work]
	first   uint64 // number of the oldest receive
	next    uint64
	seen    uint64
}

// recvKind marks a receive in work requests' IDs; the other values are the send queues' numbers.
const recvKind = rc.Queues

// kick posts waiting receives.
func (r *receiver) kick() {
	q := r.q
	for q.state != dead && q.state != lost && q.Link.broken == nil && q.Link.pairs != nil && r.waiting.Len() > 0 {
		o := *r.waiting.Front()
		if o.busy {
			return
		}
		if !o.started {
			o.started = true
			o.err = q.begin(o)
			if o.busy {
				return
			}
		}
		if o.err != nil {
			r.waiting.Pop()
			q.finish(o, o.err)
			continue
		}
		sges := q.send.sges
		n := o.Message(sges)
		wr := ibvfd.RecvWR{ID: q.Link.member.ID(recvKind, r.next), SGE: sges[:n:n]}
		if _, err := q.Link.pairs.Recv([]ibvfd.RecvWR{wr}); err != nil {
			q.Link.fail(err)
			return
		}
		r.waiting.Pop()
		r.posted.Push(o)
		r.next++
	}
}

// completed takes one completion. After an error the queue pair cannot be used any more.
func (r *receiver) completed(wc *ibvfd.WC, failed error) error {
	q := r.q
	seq := cqueue.Number(wc.ID, r.first)
	r.seen = max(r.seen, seq+1)
	if seq != r.first || r.posted.Len() == 0 {
		return failed
	}
	o := *r.posted.Front()
	if failed != nil {
		if o.err == nil {
			o.err = failed
		}
		return failed
	}
	r.posted.Pop()
	r.first++
	if o.letter.IsReceive() {
		if wc.Opcode != ibvfd.WCOpRecv {
			return &failure.Error{Op: "receive", Detail: "data that is no message", Err: wire.ErrMalformed}
		}
		if err := q.mail.Arrived(&o.letter, int(wc.ByteLen)); err != nil {
			return err
		}
		o.started = false
		r.waiting.Push(o)
		return nil
	}
	o.Received(wc)
	auto := o.auto
	q.finish(o, nil)
	if auto {
		r.waiting.Push(q.cfg.Pool.automatic())
	}
	return nil
}

// drained reports whether the last receive has completed.
func (r *receiver) drained() bool { return r.posted.Len() == 0 || r.seen == r.next }

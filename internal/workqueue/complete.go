// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"errors"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/cqueue"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/wire"
)

// begin prepares a work that is the next one of its side.
func (q *Queue) begin(o *Work) error {
	if !o.permitted {
		if err := q.permit(o); err != nil {
			return err
		}
	}
	if !o.letter.None() && (o.Kind == operation.Send || o.Kind == operation.Recv) {
		return nil // it fits into its slot
	}
	pack, err := o.Begin(&q.Link.attr)
	if pack {
		q.slow.later(o, (*Work).Pack)
	} else if err == nil && o.sums.left() {
		q.slow.later(o, (*Work).sum)
	}
	return err
}

// Complete takes completions, and posts operations for which they make room.
func (q *Queue) Complete(wcs []ibvfd.WC) {
	now := clock() // once for all of them
	q.mu.Lock()
	q.now = now
	q.complete(wcs)
	q.now = 0
	q.mu.Unlock()
}

// complete is Complete for callers that hold the mutex.
func (q *Queue) complete(wcs []ibvfd.WC) {
	var failed error
	for i := range wcs {
		wc := &wcs[i]
		var err error
		if cqueue.Kind(wc.ID) == recvKind {
			err = q.recv.completed(wc, wc.Err())
		} else {
			err = q.send.completed(wc, wc.Err())
		}
		if failed == nil {
			failed = err
		}
	}
	if q.state == dead || q.state == lost {
		return // Link.End takes their completions
	}
	switch {
	case errors.Is(failed, wire.ErrMalformed):
		q.abort(failed)
		return
	case failed != nil:
		q.Link.fail(failed)
		return
	}
	q.recv.kick()
	q.send.kick()
}

// finish completes an op after the ops that ended before it. The op must not be in a queue.
// Bytes received in staged memory are first copied to their source, and memory that was
// allocated for the op is freed.
func (q *Queue) finish(o *Work, err error) {
	if err == nil {
		err = o.withdrawn
	}
	o.err = err
	q.mail.Unstamp(&o.letter)
	slow := err == nil && o.EndsSlowly()
	if !slow && !o.busy && q.done.Len() == 0 {
		q.hand(o)
		return
	}
	q.done.Push(o)
	if slow {
		q.slow.later(o, (*Work).Arrive)
	}
	q.deliver()
}

// deliver passes ended ops to the program, in order.
func (q *Queue) deliver() {
	for q.done.Len() > 0 && !(*q.done.Front()).busy {
		q.hand(q.done.Pop())
	}
}

func (q *Queue) hand(o *Work) {
	switch {
	case o.probe:
		q.Link.probes--
		fallthrough
	case o.letter.Own():
		q.recycle(o)
		return
	}
	recv := o.Kind == operation.Recv || o.Kind == operation.RemoteWrite
	if n, ok := o.letter.Sent(); ok {
		o.Length = int64(n)
	}
	if !recv {
		q.send.ended(o)
	}
	err := o.err
	if err != nil && o.auto {
		// Only the first automatic receive reports the end, and only to a program that knows the
		// peer.
		if q.told || q.unaccepted || q.peer == 0 || q.state == dead && errors.Is(q.End.cause, ErrRemoved) {
			q.recycle(o)
			return
		}
		q.told = true
	}
	if err == nil && o.silent && !recv {
		q.recycle(o)
		return
	}
	sink := o.sink
	done := operation.Completion{Context: o.context, Op: o.Kind, Peer: q.peer, Len: o.Length, Held: q.Link.stuck}
	if recv && o.Flags&operation.FlagRemoteCQData != 0 {
		done.Flags, done.Data = operation.FlagRemoteCQData, o.Data
	}
	if err != nil {
		done.Len = 0
		done.Err = &operation.Error{Op: o.Kind, Peer: q.peer, NIC: q.cfg.Pool.home.NIC.Name(), Err: err}
	} else {
		done.Value = o.Value()
	}
	q.recycle(o) // before the program gets the completion, after which it may free the memory
	if sink != nil {
		sink.Complete(done)
	} else {
		q.cfg.Progress.Push(done)
	}
}

// recycle frees an op that has ended.
func (q *Queue) recycle(o *Work) {
	if q.Link.stuck {
		q.Link.kept = append(q.Link.kept, o)
		return
	}
	q.cfg.Pool.Put(o)
}

// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"errors"
	"fmt"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/fifo"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// FlushWait bounds the time that a failed link has to flush. NICs take microseconds.
const (
	FlushWait = 250 * time.Millisecond
	flushLook = 20 * time.Microsecond
)

// Refusal returns the error of a connection that takes no works any more; nil if it does.
func (q *Queue) Refusal() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.refusal()
}

func (q *Queue) refusal() error {
	switch {
	case q.state == dead:
		return q.end.gone()
	}
	return q.shut
}

// Err returns why a connection has begun to end, nil before that. Until its ops are completed the
// reason may still become more precise.
func (q *Queue) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != dead {
		return nil
	}
	return q.end.gone()
}

// Gone returns the error of a connection that has begun to end.
func (q *Queue) Gone() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.end.gone()
}

// Cause returns why the connection has ended, and whether the peer may have received operations
// that were under way then.
func (q *Queue) Cause() (cause error, unknown bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.end.cause, q.send.unknown
}

// Hear keeps the first reason for which the peer has ended the connection, and returns it. If why
// is nil it only returns it.
func (q *Queue) Hear(why error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.end.farewell == nil {
		if q.end.farewell = why; why != nil {
			close(q.end.heard)
		}
	}
	return q.end.farewell
}

// AwaitReason waits until Hear gets the peer's reason, if this side knows none: a NIC that has
// refused a request of the peer flushes its own requests, and reports the refusal to the peer
// only. over is closed when no reason can come any more.
func (q *Queue) AwaitReason(over <-chan struct{}) {
	q.mu.Lock()
	known := !errors.Is(q.end.cause, &ibvfd.WCError{Status: ibvfd.WCWRFlushErr})
	q.mu.Unlock()
	if known {
		return
	}
	select {
	case <-q.end.heard:
	case <-over:
	case <-time.After(FlushWait):
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.end.farewell != nil {
		q.end.cause = fmt.Errorf("%w; %w", q.end.farewell, q.end.cause)
	}
}

// Abort ends the connection. From here on nothing is posted. Config.Aborted does the slow part in
// a goroutine of its own: EndLink, and then Finish.
func (q *Queue) Abort(cause error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.abort(cause)
}

// abort is Abort for callers that hold the mutex.
func (q *Queue) abort(cause error) {
	if q.state == dead {
		return
	}
	if q.state != up {
		close(q.ready)
	}
	if q.end.farewell != nil && unanswered(cause) {
		cause = fmt.Errorf("%w; %w", q.end.farewell, cause) // the peer's NIC does not answer, because the peer has ended the connection
	}
	q.state, q.end.cause = dead, cause
	q.over.Store(true)
	q.stop()
	q.vacate()
	go q.cfg.Aborted()
}

// Broke is called when the NIC has given up the link. It does not block.
func (q *Queue) Broke(why error) {
	go func() {
		q.mu.Lock()
		cq := q.cq
		q.mu.Unlock()
		if cq != nil {
			cq.Poll() // an earlier completion may have the cause
			if e := (*rc.EventError)(nil); errors.As(why, &e) && e.Event.Type == ibvfd.EventCQErr {
				cq.Retire()
			}
		}
		if !q.Lose(why) {
			q.Abort(why)
		}
	}()
}

// Poll takes the completions of the queue's link, and of those that share its completion queue.
// There must be a link.
func (q *Queue) Poll() {
	q.mu.Lock()
	cq := q.cq
	q.mu.Unlock()
	if cq != nil {
		cq.Poll()
	}
}

// EndLink takes the completions from before the end, and closes the queue pairs, so that the NIC
// does not touch the memory. The connection has begun to end: the link does not change any more.
func (q *Queue) EndLink() {
	q.mu.Lock()
	cause, none := q.end.cause, q.link == nil || q.stuck
	q.mu.Unlock()
	if none {
		return
	}
	if errors.As(cause, new(*ibvfd.WCError)) {
		down := q.link.Down()
		if down == nil && q.path != nil && errors.Is(cause, &ibvfd.WCError{Status: ibvfd.WCRetryExcErr}) {
			down = fmt.Errorf("the path is %v", q.path) // its GIDs may not reach each other
		}
		q.mu.Lock()
		q.end.down, q.end.cause = down, becauseOf(down, q.end.cause)
		q.mu.Unlock()
	}
	if err := q.link.Fail(); err == nil {
		q.drain()
	}
	q.cq.Leave(q.member)
	// After a close without error the NIC touches none of the memory. Otherwise the memory
	// stays.
	if err := q.link.Close(); err != nil {
		home := &q.cfg.Pool.home
		q.mu.Lock()
		q.stuck, q.letSlabGo = true, home.Slab.Hold()
		q.mu.Unlock()
		home.NIC.Keep(q.closeStuck)
		return
	}
	q.cq.Poll() // drops the completions of this connection
	q.cq.Release(q.cfg.Room)
}

// closeStuck tries again to close a link, and frees its resources.
func (q *Queue) closeStuck() error {
	if err := q.link.Close(); err != nil {
		return err
	}
	q.cq.Poll()
	q.cq.Release(q.cfg.Room)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, o := range q.kept {
		sink, context := o.sink, o.context
		q.cfg.Pool.Put(o)
		if r, ok := sink.(operation.Releaser); ok {
			r.Released(context)
		}
	}
	q.letSlabGo()
	q.mail.Close()
	q.stuck, q.kept, q.link = false, nil, nil
	return nil
}

// drain takes completions from before the failure, and with them the operation that failed.
func (q *Queue) drain() {
	for end := time.Now().Add(FlushWait); time.Now().Before(end); time.Sleep(flushLook) {
		q.cq.Poll()
		q.mu.Lock()
		drained := q.send.drained() && q.recv.drained()
		q.mu.Unlock()
		if drained {
			return
		}
	}
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
		q.finish(o, q.end.of(o.err))
	}
	if !q.stuck {
		q.mail.Close()
	}
	return !q.stuck
}

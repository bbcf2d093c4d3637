// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/cqueue"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// Times of a link's end.
const (
	FlushWait = 250 * time.Millisecond // bounds the time that a failed link has to flush; NICs take microseconds
	flushLook = 20 * time.Microsecond
)

// Link is the link of a Queue: its queue pairs, and its place in a completion queue. The Queue's
// mutex guards it.
type Link struct {
	q *Queue

	pairs  rc.Link // nil until Adopt, and after Unlink
	attr   rc.Attr
	cq     *cqueue.Queue
	member cqueue.Member
	path   fmt.Stringer // for errors

	outlived bool                 // the connection outlives its links
	loss     atomic.Pointer[loss] // of the link; nil while there is one
	adopted  int                  // number of links
	early    error                // why the NIC has given up the next one before Adopt
	broken   error                // why the link that was adopted cannot be used; nil if it can
	probes   int                  // that have not completed

	stuck     bool    // closing the link failed
	kept      []*Work // operations that have ended since; the NIC may still touch their memory
	letSlabGo func()  // releases the slab, which the NIC may access after the endpoint's end
}

// loss is why and when a link was lost.
type loss struct {
	why error
	at  time.Time
}

// Adopt gives the Queue a link, for whose completions it has room in cq, and posts receives on
// it: the peer may send as soon as it has this side's hello. Keys with one of the two tokens may
// be used. If it returns an error, the queue pairs stay the caller's; otherwise End closes them.
func (l *Link) Adopt(pairs rc.Link, cq *cqueue.Queue, tokens [2]uint64, path fmt.Stringer) error {
	q := l.q
	m := cq.Enter(q)
	q.mu.Lock()
	if q.state == dead {
		why := q.End.gone()
		q.mu.Unlock()
		cq.Leave(m)
		return why
	}
	defer q.mu.Unlock()
	l.pairs, l.attr, l.cq, l.member, l.path = pairs, pairs.Attr(), cq, m, path
	l.broken, l.early, q.tokens = l.early, nil, tokens
	l.adopted++
	q.send.adopt()
	q.recv.kick()
	q.cfg.Progress.Wake() // the new queue must be armed
	return nil
}

// Poll takes the completions of the link, and of those that share its completion queue. It does
// nothing if there is no link.
func (l *Link) Poll() {
	if cq := l.queue(); cq != nil {
		cq.Poll()
	}
}

// queue returns the completion queue; nil if there is no link.
func (l *Link) queue() *cqueue.Queue {
	l.q.mu.Lock()
	defer l.q.mu.Unlock()
	return l.cq
}

// Watch returns a function to call when the NIC has given up the link that Adopt takes next. It
// does not block, and does nothing once there is another link.
func (l *Link) Watch() (broke func(why error)) {
	l.q.mu.Lock()
	defer l.q.mu.Unlock()
	l.early = nil
	number := l.adopted + 1
	return func(why error) { go l.broke(number, why) }
}

// broke is called when the NIC has given up a link, or when its port is down: of several rails, the
// others carry on then, and otherwise the port may be up again before the NIC gives up.
func (l *Link) broke(number int, why error) {
	q := l.q
	event := (*rc.EventError)(nil)
	q.mu.Lock()
	if errors.As(why, &event) && event.Event.Type == ibvfd.EventPortErr && !q.mail.Several() {
		q.mu.Unlock()
		return
	}
	last, early := l.adopted, l.outlived && l.adopted < number
	if early {
		l.early = why
	}
	q.mu.Unlock()
	if number < last || early {
		return
	}
	if cq := l.queue(); cq != nil {
		cq.Poll() // an earlier completion may have the cause
		if event != nil && event.Event.Type == ibvfd.EventCQErr {
			cq.Retire()
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if number >= l.adopted {
		l.fail(why)
	}
}

// End takes the completions from before the end, and closes the queue pairs, so that the NIC does
// not touch the memory. Nothing is posted any more, and the link does not change.
func (l *Link) End() {
	q := l.q
	q.mu.Lock()
	cause, none := q.End.cause, l.pairs == nil || l.stuck
	q.mu.Unlock()
	if none {
		return
	}
	if errors.As(cause, new(*ibvfd.WCError)) {
		down := l.pairs.Down()
		if down == nil && l.path != nil && errors.Is(cause, &ibvfd.WCError{Status: ibvfd.WCRetryExcErr}) {
			down = fmt.Errorf("the path is %v", l.path) // its GIDs may not reach each other
		}
		q.mu.Lock()
		q.End.down, q.End.cause = down, becauseOf(down, q.End.cause)
		q.mu.Unlock()
	}
	if err := l.pairs.Fail(); err == nil {
		l.drain()
	}
	l.cq.Leave(l.member)
	// After a close without error the NIC touches none of the memory. Otherwise the memory
	// stays.
	if err := l.pairs.Close(); err != nil {
		home := &q.cfg.Pool.home
		q.mu.Lock()
		l.stuck, l.letSlabGo = true, home.Slab.Hold()
		q.mu.Unlock()
		home.NIC.Keep(l.closeStuck)
		return
	}
	l.cq.Poll() // drops the completions of this connection
	l.cq.Release(q.cfg.Room)
}

// closeStuck tries again to close a link, and frees its resources.
func (l *Link) closeStuck() error {
	if err := l.pairs.Close(); err != nil {
		return err
	}
	q := l.q
	l.cq.Poll()
	l.cq.Release(q.cfg.Room)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, o := range l.kept {
		sink, context := o.sink, o.context
		q.cfg.Pool.Put(o)
		if r, ok := sink.(operation.Releaser); ok {
			r.Released(context)
		}
	}
	l.letSlabGo()
	q.mail.Close()
	l.stuck, l.kept, l.pairs = false, nil, nil
	return nil
}

// drain takes completions from before the failure, and with them the operation that failed.
func (l *Link) drain() {
	q := l.q
	for end := time.Now().Add(FlushWait); time.Now().Before(end); time.Sleep(flushLook) {
		l.cq.Poll()
		q.mu.Lock()
		drained := q.send.drained() && q.recv.drained()
		q.mu.Unlock()
		if drained {
			return
		}
	}
}

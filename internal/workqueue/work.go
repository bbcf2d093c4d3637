// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpurdma/gpurdma/internal/mailbox"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/request"
)

// Work is an operation between its posting and its completion. Its caller adds memory to the
// Request, and calls Prepare, before it posts the work.
type Work struct {
	request.Request

	context any
	sink    operation.Sink // nil: the endpoint's own list
	uses    atomic.Uint32
	silent  bool // no completion, unless it fails
	auto    bool // an automatic receive (AutoReceive)
	queue   int

	letter  mailbox.Letter // the message that the work sends, or that follows its bytes
	sums    *sums          // of the bytes; nil if they are not summed, otherwise ownSums
	ownSums sums
	cancel  context.CancelFunc // ends the wait until the sources may be read
	limit   time.Time          // the work is not begun after it; zero if there is none
	turn    uint64             // the sender's, when it was posted
	since   int64              // the clock, then
	number  uint64             // of the works of its sender, in the order of their posting
	message uint64             // number of its message; 0 before it is sent
	again   bool               // it was posted to a link that was lost
	repeats bool               // another rail has lost it
	part    bool               // of an operation, which is counted as a whole by Count
	own     bool               // the connection's own: it is not counted
	probe   bool               // it tries the link
	listed  bool               // by takeBack
	refused bool               // the NIC did not take its work requests
	blamed  int64              // the clock when it first ended a link, without any of it having got through since; or 0
	refusal error              // of the peer's NIC; it counts if that NIC is not removed

	permitted bool // its keys were checked when the connection was up

	started, begun, made, ended bool // begun: the NIC has got a work request
	busy                        bool // slow work of this op is under way
	err                         error
	withdrawn                   error // why Cancel has withdrawn it, or the rest of it
}

// Silence makes a work complete only if it fails.
func (o *Work) Silence() { o.silent = true }

// AfterWrites makes a read follow the writes that were posted before it: when it completes, their
// bytes are in the memory that it reads. It is not counted.
func (o *Work) AfterWrites() { o.queue, o.part, o.own = rc.WriteQueue, true, true }

// Part says that the work is a part of an operation: its bytes are counted, and Count counts the
// operation.
func (o *Work) Part() { o.part = true }

// Repeats says that the work repeats one that another rail has lost.
func (o *Work) Repeats() { o.repeats = true }

// SetDeadline bounds the wait of a work: after the deadline of ctx it is not begun, and its error
// is context.DeadlineExceeded.
func (o *Work) SetDeadline(ctx context.Context) { o.limit, _ = ctx.Deadline() }

// SetMessage sets the message that a send sends, or the note that follows a write's bytes. p is
// copied when the message is posted: it must not change until the completion.
func (o *Work) SetMessage(q *Queue, p []byte) error {
	kind := mailbox.Message
	if o.Kind == operation.Write {
		kind = mailbox.Note
	}
	l, err := q.mail.Letter(o.Kind.String(), kind, p)
	if err == nil {
		o.letter = l
	}
	return err
}

// reset clears all but the Request, and the count of uses.
func (o *Work) reset() {
	o.uses.Add(1)
	o.context, o.sink = nil, nil
	o.silent, o.auto, o.queue = false, false, 0
	o.number, o.message, o.again, o.repeats, o.probe = 0, 0, false, false, false
	o.listed, o.refused, o.blamed, o.refusal = false, false, 0, nil
	o.part, o.own = false, false
	o.letter, o.sums, o.cancel, o.limit = mailbox.Letter{}, nil, nil, time.Time{}
	o.permitted, o.started, o.begun, o.made, o.ended, o.busy = false, false, false, false, false, false
	o.err, o.withdrawn = nil, nil
}

// Pool makes works, and keeps those that have ended for the next ones. Its methods may be called
// from several goroutines at once.
type Pool struct {
	home      request.Home
	most      int  // unused works
	selective bool // only works with FlagCompletion make completions

	mu   sync.Mutex
	free []*Work
}

// NewPool returns a pool that keeps up to that many unused works. If it is selective, only works
// with FlagCompletion complete without an error.
func NewPool(home request.Home, most int, selective bool) *Pool {
	return &Pool{home: home, most: most, selective: selective}
}

// New returns a work. The caller adds its memory, and then posts it, or gives it back by Put. The
// sink, if it is not nil, gets the completion, with the context.
func (p *Pool) New(kind operation.Kind, flags operation.Flags, context any, sink operation.Sink) (*Work, error) {
	if err := flags.Check(kind); err != nil {
		return nil, err
	}
	o := p.work(kind, flags)
	o.context, o.sink = context, sink
	return o, nil
}

// work returns a work, possibly a recycled one.
func (p *Pool) work(kind operation.Kind, flags operation.Flags) *Work {
	p.mu.Lock()
	var o *Work
	if n := len(p.free); n > 0 {
		o, p.free = p.free[n-1], p.free[:n-1]
	}
	p.mu.Unlock()
	if o == nil {
		o = new(Work)
	}
	o.Start(&p.home, kind, flags)
	o.silent = p.selective && flags&operation.FlagCompletion == 0
	if kind == operation.Read {
		o.queue = rc.ReadQueue
	}
	return o
}

// automatic returns an empty receive that a queue posts by itself.
func (p *Pool) automatic() *Work {
	o := p.work(operation.Recv, 0)
	o.auto = true
	return o
}

// Put frees the memory that a work holds, and keeps the work for New.
func (p *Pool) Put(o *Work) {
	if o.cancel != nil {
		o.cancel()
	}
	o.Free()
	o.reset()
	p.mu.Lock()
	if len(p.free) < p.most {
		p.free = append(p.free, o)
	}
	p.mu.Unlock()
}

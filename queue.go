// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"slices"
	"sync"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/progress"
	"golang.org/x/sys/unix"
)

// Queue is for event loops. It posts slices of operations on any connections of its Fabric, and collects their
// completions, without an allocation. Its methods may be called from several goroutines at once.
type Queue struct {
	fabric   *Fabric
	progress []*progress.Progress
	noRoom   operation.Full // the error of a full queue
	wake     chan struct{}  // gets a value when there is a completion, or the queue is closed

	mu     sync.Mutex
	closed bool
	places []place
	free   []*place
	done   []*place // a ring: the completions that were not taken
	head   int
	count  int
	full   []*Conn // connections that had no room when Post was called last
}

// place is an operation of a queue. It is free again when its completion is taken.
type place struct {
	queue *Queue
	done  Completion
}

// Completion says that an operation of a Queue has ended.
type Completion struct {
	Tag   uint64 // Op.Tag
	Conn  *Conn
	Kind  OpKind
	Len   int64  // bytes moved
	Value uint64 // the old value of an atomic without local memory
	Err   error  // nil, or an *OpError
}

// NewQueue makes a queue with room for depth operations; 0 stands for 1,024. An operation takes room until the
// program takes its completion. Config.Depth of each connection applies, too.
func (f *Fabric) NewQueue(depth int) *Queue {
	if depth <= 0 {
		depth = 1024
	}
	q := &Queue{fabric: f, noRoom: operation.Full{Most: depth, Format: operation.FullQueue}, wake: make(chan struct{}, 1), places: make([]place, depth), free: make([]*place, depth), done: make([]*place, depth)}
	for _, n := range f.set.NICs {
		q.progress = append(q.progress, n.Endpoint.Progress)
	}
	for i := range q.places {
		q.places[i].queue = q
		q.free[depth-1-i] = &q.places[i]
	}
	return q
}

// Post posts operations in order, and returns the number n of those that were posted: each of them makes one
// completion. If the queue or the connection has no room for more, the error is ErrQueueFull: take completions, or
// Wait, and post the rest. Any other error is that of operation n, which was not posted.
func (q *Queue) Post(c *Conn, ops []Op) (n int, err error) {
	if c == nil {
		return 0, &failure.Error{Op: "post", Detail: "no connection", Err: unix.EINVAL}
	}
	for n = range ops {
		o := &ops[n]
		p, err := q.take(c, o)
		if err == nil {
			_, err = c.post(context.Background(), o, n+1 < len(ops), p, places{})
			if err != nil {
				q.put(p)
			}
		}
		if err != nil {
			if n > 0 {
				c.c.Look()
			}
			if none := c.noRoom(err); none != nil {
				q.await(c)
				return n, none
			}
			if err == error(&q.noRoom) {
				return n, err
			}
			return n, c.failed(o.Kind, err)
		}
	}
	return len(ops), nil
}

// await makes Wait return when a connection has room again: other calls may have used it up.
func (q *Queue) await(c *Conn) {
	q.mu.Lock()
	if !slices.Contains(q.full, c) {
		q.full = append(q.full, c)
	}
	q.mu.Unlock()
	c.c.SignalRoom(q.wake)
}

func (q *Queue) take(c *Conn, o *Op) (*place, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return nil, errs.Closed("queue")
	case c.fabric != q.fabric:
		return nil, &failure.Error{Op: "post", Detail: "the connection is of another fabric", Remedy: "make a queue of its fabric", Err: unix.EINVAL}
	case len(q.free) == 0:
		return nil, &q.noRoom
	}
	if i := slices.Index(q.full, c); i >= 0 {
		q.full = slices.Delete(q.full, i, i+1)
	}
	p := q.free[len(q.free)-1]
	q.free = q.free[:len(q.free)-1]
	p.done = Completion{Tag: o.Tag, Conn: c, Kind: o.Kind}
	return p, nil
}

func (q *Queue) put(p *place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p.done = Completion{}
	q.free = append(q.free, p)
}

// places is the sink of queues.
type places struct{}

// Complete adds a completion to the ring.
func (places) Complete(c operation.Completion) {
	p := c.Context.(*place)
	q := p.queue
	d := &p.done
	d.Len, d.Value, d.Err = c.Len, c.Value, d.Conn.failed(d.Kind, c.Err)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.done[(q.head+q.count)%len(q.done)] = p
	q.count++
	if q.count == 1 {
		q.signal()
	}
}

func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Poll takes up to len(done) completions, and returns their number: 0 if there are none. It does not wait. After
// Close it returns ErrClosed.
func (q *Queue) Poll(done []Completion) (int, error) {
	n, err := q.collect(done)
	if n > 0 || err != nil {
		return n, err
	}
	for _, p := range q.progress {
		p.Look()
	}
	return q.collect(done)
}

func (q *Queue) collect(done []Completion) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		q.signal() // another goroutine that waits
		return 0, errs.Closed("queue")
	}
	n := min(len(done), q.count)
	for i := range done[:n] {
		p := q.done[q.head]
		done[i] = p.done
		p.done, q.done[q.head] = Completion{}, nil
		q.free = append(q.free, p)
		q.head = (q.head + 1) % len(q.done)
	}
	if q.count -= n; q.count > 0 {
		q.signal()
	}
	return n, nil
}

// Wait waits until there is at least one completion, and takes up to len(done) of them; with an empty done it returns
// at once. It returns 0 when a connection for which Post has returned ErrQueueFull has room: post again. If the
// context ends first, it returns the context's error; operations continue. After Close it returns ErrClosed.
func (q *Queue) Wait(ctx context.Context, done []Completion) (int, error) {
	if len(done) == 0 {
		return 0, nil
	}
	for {
		if n, err := q.collect(done); n > 0 || err != nil {
			return n, err
		}
		if q.hasRoom() {
			q.mu.Lock()
			q.full = q.full[:0] // Post says again which ones are full
			q.mu.Unlock()
			return 0, nil
		}
		if !progress.Look(q.progress, (*waited)(q)) {
			progress.Asleep(q.progress)
			select {
			case <-q.wake:
			case <-ctx.Done():
				return 0, errs.Ended(ctx)
			}
		}
	}
}

// waited is a Queue as the progress.End of Wait.
type waited Queue

// Ended reports whether there is a completion, or a connection has room.
func (q *waited) Ended() bool {
	q.mu.Lock()
	ended := q.count > 0 || q.closed
	q.mu.Unlock()
	return ended || (*Queue)(q).hasRoom()
}

// hasRoom reports whether one of the connections that had no room has some.
func (q *Queue) hasRoom() bool {
	var list [8]*Conn
	q.mu.Lock()
	full := append(list[:0], q.full...)
	q.mu.Unlock()
	// Without the queue's mutex: a completion locks it while the connection's is locked.
	return slices.ContainsFunc(full, func(c *Conn) bool { return c.c.HasRoom() })
}

// Close drops all completions, also those that come later. Operations continue. Close returns nil.
func (q *Queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed, q.count = true, 0
	clear(q.done)
	q.signal()
	return nil
}

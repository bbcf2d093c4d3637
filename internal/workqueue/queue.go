// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/cqueue"
	"github.com/gpurdma/gpurdma/internal/fifo"
	"github.com/gpurdma/gpurdma/internal/mailbox"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/progress"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// Config is what a Queue needs.
type Config struct {
	Pool     *Pool
	Progress *progress.Progress
	Life     context.Context // of the endpoint
	Aborted  func()          // called once, in a goroutine of its own, when the connection begins to end
	Lost     func(why error) // called when a connection that outlives its link has lost it, with the mutex held
	Patience time.Duration   // how long an operation that ends links is posted again

	Peer        operation.Peer // in completions; 0 until Up
	Depth       int            // operations that may be under way
	RecvDepth   int            // receives that may be posted
	Room        int            // work requests that may be in the completion queue
	AutoReceive int            // empty receives that are kept posted
}

// Queue is the works of one connection. Its methods may be called from several goroutines at
// once.
type Queue struct {
	cfg   Config
	begun atomic.Bool // the connection is up, or was
	over  atomic.Bool // the connection is ending, or has ended

	lostFor atomic.Pointer[error] // why the link was lost; nil while there is one

	counters counters // written with the mutex held, and read without it

	mu    sync.Mutex
	ready chan struct{} // closed when the connection is up, or begins to end
	state state
	end   ending
	shut  error // why no work is taken any more; nil before Shut

	outlives bool  // its links
	broken   error // why the link that was adopted cannot be used; nil if it can
	probes   int   // that have not completed

	link   rc.Link // nil until Adopt, and after Unlink
	attr   rc.Attr
	cq     *cqueue.Queue
	member cqueue.Member
	tokens [2]uint64    // of the keys that this connection may use
	path   fmt.Stringer // for errors

	peer       operation.Peer
	unaccepted bool // the program does not know the connection yet
	told       bool // an automatic receive has reported the end

	send    sender
	recv    receiver
	slow    slowWorks
	done    fifo.Queue[*Work] // operations that have ended, and wait for those before them
	now     int64             // the clock, while completions are taken; otherwise 0
	mail    mailbox.Box
	vacancy chan struct{}     // closed when there is room for a work; nil unless a goroutine waits
	signals []chan<- struct{} // get a value when there is room
	life    context.Context   // ends when the connection begins to end
	stop    context.CancelFunc

	stuck     bool    // closing the link failed
	kept      []*Work // operations that have ended since; the NIC may still touch their memory
	letSlabGo func()  // releases the slab, which the NIC may access after the endpoint's end
}

type state int

const (
	connecting state = iota // also after Unlink
	up
	lost // until Unlink
	dead
)

// New returns the works of a connection that is being made. Works may be posted: they wait.
func New(cfg Config) *Queue {
	q := &Queue{cfg: cfg, ready: make(chan struct{}), peer: cfg.Peer}
	q.life, q.stop = context.WithCancel(cfg.Life)
	q.send.q, q.recv.q, q.slow.q = q, q, q
	q.slow.idle.L, q.end.heard = &q.mu, make(chan struct{})
	for range cfg.AutoReceive {
		q.recv.waiting.Push(cfg.Pool.automatic())
	}
	return q
}

// OpenMailbox makes the connection receive messages by itself. It is called before Adopt.
func (q *Queue) OpenMailbox(ours, theirs mailbox.Size) error {
	var box mailbox.Box
	if err := box.Open(q.cfg.Pool.home.NIC, ours, theirs); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state == dead {
		box.Close()
		return q.end.gone()
	}
	q.mail = box
	for i := range q.mail.Receives() {
		o := q.cfg.Pool.work(operation.Recv, 0)
		l, w := q.mail.Receive(i)
		o.letter = l
		o.AddWindow(w)
		q.recv.waiting.Push(o)
	}
	return nil
}

// Adopt gives the queue its link, for whose completions it has room in cq, and posts receives on
// it: the peer may send as soon as it has this side's hello. Keys with one of the two tokens may
// be used. If it returns an error, the link stays the caller's; otherwise EndLink closes it.
func (q *Queue) Adopt(l rc.Link, cq *cqueue.Queue, tokens [2]uint64, path fmt.Stringer) error {
	m := cq.Enter(q)
	q.mu.Lock()
	if q.state == dead {
		why := q.end.gone()
		q.mu.Unlock()
		cq.Leave(m)
		return why
	}
	defer q.mu.Unlock()
	q.link, q.attr, q.cq, q.member, q.tokens, q.path = l, l.Attr(), cq, m, tokens, path
	q.send.adopt()
	q.broken = nil
	q.recv.kick()
	q.cfg.Progress.Wake() // the new queue must be armed
	return nil
}

// Up starts the operations, unless the connection has begun to end. Completions name the peer. If
// the program does not know the connection yet, it calls Accepted when it does.
func (q *Queue) Up(peer operation.Peer, accepted bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.startable(); err != nil {
		return err
	}
	q.peer, q.unaccepted, q.state = peer, !accepted, up
	q.begun.Store(true)
	close(q.ready)
	q.send.kick()
	return nil
}

// startable returns why the operations cannot start on the link that was adopted, or nil.
func (q *Queue) startable() error { return cmp.Or(q.refusal(), q.broken) }

// Accepted says that the program knows the connection from now on; false if it has begun to end.
func (q *Queue) Accepted() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state == dead {
		return false
	}
	q.unaccepted = false
	return true
}

// Post takes a work over. If it returns an error, it has dropped the work, which makes no
// completion.
func (q *Queue) Post(o *Work) (Ticket, error) {
	if o.Kind != operation.Recv {
		o.since = clock()
	}
	q.mu.Lock()
	t, err := q.post(o)
	q.mu.Unlock()
	if err != nil {
		q.cfg.Pool.Put(o)
	}
	return t, err
}

// post is Post for callers that hold the mutex, and give back the work after an error.
func (q *Queue) post(o *Work) (Ticket, error) {
	waiting, most := q.send.posted, q.cfg.Depth
	if o.Kind == operation.Recv {
		waiting, most = q.recv.waiting.Len()+q.recv.posted.Len(), q.cfg.RecvDepth
	}
	err := q.permit(o)
	o.permitted = q.state != connecting
	if err == nil {
		err = q.refusal()
	}
	if err == nil && waiting >= most {
		err = q.send.full(o.Kind)
	}
	if err != nil {
		return Ticket{}, err
	}
	t := Ticket{q, o, o.uses.Load()}
	if o.Kind == operation.Recv {
		q.recv.waiting.Push(o)
		q.recv.kick()
	} else {
		q.send.take(o)
	}
	return t, nil
}

// permit refuses a work with keys that were made for another connection.
func (q *Queue) permit(o *Work) error {
	for _, rb := range o.Remotes() {
		if err := q.permits(rb); err != nil {
			return err
		}
	}
	return nil
}

// Permits refuses keys that were made for another connection.
func (q *Queue) Permits(rb *memory.RemoteBuffer) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.permits(rb)
}

func (q *Queue) permits(rb *memory.RemoteBuffer) error {
	if q.state == connecting && !q.begun.Load() || rb.Token() == q.tokens[0] || rb.Token() == q.tokens[1] {
		return nil
	}
	return &dmabuf.Error{
		Op: "use remote memory", Device: rb.String(), Err: operation.ErrStaleKey,
		Remedy: "keys end with the connection that they were given for: ask the peer for new ones",
	}
}

// MustPack reports whether a receive must be packed before it is posted. Its caller then waits
// for the memory, so that the receive is posted when the call returns.
func (q *Queue) MustPack(o *Work) bool {
	if o.Kind != operation.Recv {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.link != nil && o.MustPack(&q.attr)
}

// PostHeld posts the operations that waited for more.
func (q *Queue) PostHeld() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.send.holding = false
	q.send.kick()
}

// TakeMessage returns the next message of the kind that has arrived. over reports that no message
// will follow: all goroutines that wait for one are then woken.
func (q *Queue) TakeMessage(kind mailbox.Kind, over bool) (p []byte, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p, ok = q.mail.Take(kind, over); ok {
		q.send.kick()
	}
	return p, ok
}

// MessageSignal returns a channel that gets a value when a message of the kind may have arrived.
func (q *Queue) MessageSignal(kind mailbox.Kind) <-chan struct{} { return q.mail.Signal(kind) }

// closedChannel is closed.
var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Vacancy returns a channel that is closed when the connection may take another work, or takes
// none any more.
func (q *Queue) Vacancy() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.hasRoom() {
		return closedChannel
	}
	if q.vacancy == nil {
		q.vacancy = make(chan struct{})
	}
	return q.vacancy
}

// HasRoom reports whether the connection may take another work, or takes none any more.
func (q *Queue) HasRoom() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.hasRoom()
}

func (q *Queue) hasRoom() bool {
	return q.state == dead || q.shut != nil || q.send.posted < q.cfg.Depth
}

// SignalRoom sends a value to a channel, without blocking, when HasRoom is true: now, or once
// later.
func (q *Queue) SignalRoom(signal chan<- struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !slices.Contains(q.signals, signal) {
		q.signals = append(q.signals, signal)
	}
	if q.hasRoom() {
		q.vacate()
	}
}

// vacate wakes the goroutines that wait for room: there is room, or the connection takes no works
// any more.
func (q *Queue) vacate() {
	if q.vacancy != nil {
		close(q.vacancy)
		q.vacancy = nil
	}
	for _, signal := range q.signals {
		select {
		case signal <- struct{}{}:
		default: // it has one
		}
	}
	if len(q.signals) > 0 {
		clear(q.signals)
		q.signals = q.signals[:0]
	}
}

// Ready returns a channel that is closed when the connection is up, or begins to end.
func (q *Queue) Ready() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ready
}

// Begun reports whether the connection is up, or was.
func (q *Queue) Begun() bool { return q.begun.Load() }

// Life returns a context that ends when the connection begins to end.
func (q *Queue) Life() context.Context { return q.life }

// Over reports whether the connection is ending, or has ended.
func (q *Queue) Over() bool { return q.over.Load() }

// State describes the works that a Queue has under way.
type State struct {
	Link        rc.Link // nil before Adopt
	Up          bool    // works are taken and posted
	Posted      int     // operations that have not completed, without receives
	Pending     int     // of these, operations whose work requests are not all made
	Outstanding int     // groups of work requests that the NIC has and that have not completed
}

// State returns the current state.
func (q *Queue) State() State {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := State{Link: q.link, Up: q.state == up && q.shut == nil, Posted: q.send.posted, Pending: q.send.pending.Len()}
	for i := range q.send.queues {
		s.Outstanding += q.send.queues[i].groups.Len()
	}
	return s
}

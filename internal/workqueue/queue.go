// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpurdma/gpurdma/failure"
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

	counters counters // written with the mutex held, and read without it

	mu    sync.Mutex
	ready chan struct{} // closed when the connection is up, or begins to end
	state state
	End   Ending
	Link  Link

	tokens [2]uint64 // of the keys that this connection may use

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
	q.Link.q, q.End.q, q.send.q, q.recv.q, q.slow.q = q, q, q, q, q
	q.slow.idle.L, q.End.heard = &q.mu, make(chan struct{})
	for range cfg.AutoReceive {
		q.recv.waiting.Push(cfg.Pool.automatic())
	}
	return q
}

// OpenMailbox makes the connection receive messages by itself. It is called before Adopt.
// shared has the messages of all rails; it is nil for a connection over one.
func (q *Queue) OpenMailbox(ours, theirs mailbox.Size, shared *mailbox.Shared) error {
	var box mailbox.Box
	if err := box.Open(q.cfg.Pool.home.NIC, ours, theirs, shared, q.taken); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state == dead {
		box.Close()
		return q.End.gone()
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

// Up starts the operations, unless the connection has begun to end. Completions name the peer. If
// the program does not know the connection yet, it calls Accepted when it does.
func (q *Queue) Up(peer operation.Peer, accepted bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.start(); err != nil {
		return err
	}
	q.peer, q.unaccepted = peer, !accepted
	q.send.kick()
	return nil
}

// start is the part of Up that is the same for later links.
func (q *Queue) start() error {
	if err := cmp.Or(q.End.refusal(), q.Link.broken); err != nil {
		return err
	}
	q.state = up
	q.begun.Store(true)
	q.Link.loss.Store(nil)
	close(q.ready)
	return nil
}

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
	if o.sums != nil {
		err := operation.ErrQueueFull
		if q.HasRoom() { // otherwise the sums would be made again with each try
			err = o.sumNow()
		}
		if err != nil {
			q.cfg.Pool.Put(o)
			return Ticket{}, err
		}
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
		err = q.End.refusal()
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

// PermitsAll refuses a work with keys that were made for another connection.
func (q *Queue) PermitsAll(o *Work) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.permit(o)
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
	return &failure.Error{
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
	return q.Link.pairs != nil && o.MustPack(&q.Link.attr)
}

// Kick posts the operations that can be posted, also those that wait for more.
func (q *Queue) Kick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.send.kick()
}

// PostHeld is Kick for [progress.Progress], which has taken the queue off its list.
func (q *Queue) PostHeld() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.send.holding = false
	q.send.kick()
}

// TakeMessage returns the next message of the kind that has arrived. over reports that no message
// will follow: all goroutines that wait for one are then woken.
func (q *Queue) TakeMessage(kind mailbox.Kind, over bool) (m mailbox.Mail, ok bool) {
	m, taken, ok := q.mail.Take(kind, over)
	if ok {
		taken()
	}
	return m, ok
}

// taken gives the peer the credit of a message back that has arrived over the Queue's link.
func (q *Queue) taken() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mail.Taken()
	q.send.kick()
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
	return q.state == dead || q.End.shut != nil || q.send.posted < q.cfg.Depth
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
	s := State{Link: q.Link.pairs, Up: q.state == up && q.End.shut == nil, Posted: q.send.posted, Pending: q.send.pending.Len()}
	for i := range q.send.queues {
		s.Outstanding += q.send.queues[i].groups.Len()
	}
	return s
}

// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// scheduler gives the operations of a connection to its rails. Its mutex may be locked before those
// of workqueue.Queues, never after them: a completion, which comes with such a mutex held, only
// tries to lock it.
type scheduler struct {
	c     *Conn
	order Order
	wake  chan struct{} // gets a value when there may be something to post

	mu       sync.Mutex
	rails    []*Rail // that may be used
	active   []*job  // that have not ended, in the order of posting
	shutFor  error   // why no operation is taken any more
	pushed   []pushed
	main     *Rail  // the home of operations that keep their order by themselves
	writes   uint64 // number of the last write that pushed may get
	flushing bool   // a flush is under way
	timer    bool   // later has started one
	vacancy  chan struct{}
	signals  []chan<- struct{}

	endsMu sync.Mutex
	ends   []*slice // that have ended, and were not settled
}

func newScheduler(c *Conn) *scheduler {
	s := &scheduler{c: c, order: c.how.Order, wake: make(chan struct{}, 1), rails: []*Rail{c.rails[0]}, main: c.rails[0]}
	go s.run()
	return s
}

// run posts what waits, until the connection has ended.
func (s *scheduler) run() {
	for {
		select {
		case <-s.wake:
			s.lock()
			s.unlock()
		case <-s.c.done:
			return
		}
	}
}

func (s *scheduler) lock() {
	s.mu.Lock()
	s.settle()
}

// unlock posts what can be posted, settles what has ended meanwhile, and unlocks the mutex.
func (s *scheduler) unlock() {
	for {
		s.settle() // of evict: the order of what it has ended must be known before more is posted
		s.advance()
		s.mu.Unlock()
		if !s.unsettled() || !s.mu.TryLock() {
			return
		}
	}
}

func (s *scheduler) unsettled() bool {
	s.endsMu.Lock()
	defer s.endsMu.Unlock()
	return len(s.ends) > 0
}

// Complete takes the completion of a slice. A workqueue.Queue's mutex is held.
func (s *scheduler) Complete(c operation.Completion) {
	x := c.Context.(*slice)
	x.done = c
	s.endsMu.Lock()
	s.ends = append(s.ends, x)
	s.endsMu.Unlock()
	for s.unsettled() && s.mu.TryLock() {
		s.settle()
		waits := s.waits()
		s.mu.Unlock()
		if waits {
			s.signal()
		}
	}
}

// Released says that a NIC does not use the memory of a slice any more.
func (s *scheduler) Released(context any) {
	j := context.(*slice).j
	if j == nil {
		return
	}
	s.endsMu.Lock()
	j.held--
	last := j.told && j.held == 0
	s.endsMu.Unlock()
	if r, ok := j.Sink.(operation.Releaser); ok && last {
		r.Released(j.Context)
	}
}

// waits reports whether a part of a job was not posted yet.
func (s *scheduler) waits() bool {
	return slices.ContainsFunc(s.active, func(j *job) bool { return !j.begun || j.next < j.Size || len(j.again) > 0 || !j.noted })
}

// look calls f with the mutex held. f ends no job, and makes nothing possible.
func (s *scheduler) look(f func()) {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	if s.unsettled() {
		s.signal()
	}
}

func (s *scheduler) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// joined adds a rail, in the place of an old one if that is not nil.
func (s *scheduler) joined(r, old *Rail) {
	s.lock()
	defer s.unlock()
	s.rails = append(slices.DeleteFunc(s.rails, func(x *Rail) bool { return x == old }), r)
	if s.main == old {
		s.main = s.rails[0]
	}
}

// settle takes the slices that have ended, and completes their jobs.
func (s *scheduler) settle() {
	s.endsMu.Lock()
	ends := s.ends
	s.ends = nil
	s.endsMu.Unlock()
	for _, x := range ends {
		err := x.done.Err
		if x.r.load.end(x.n, err == nil) {
			go s.c.Events.add(x.r.Number)
		}
		if x.flush > 0 {
			s.flushing = false
			if j := x.waits; err == nil {
				s.flushed(x.r, x.memory, x.flush)
			} else if !j.begun && !j.ended && !errors.Is(err, workqueue.ErrEvicted) && !errors.Is(err, operation.ErrOutcomeUnknown) {
				j.err = err
				s.finishJob(j)
			}
			continue
		}
		j := x.j
		if i := slices.Index(j.live, x); i >= 0 {
			j.live = slices.Delete(j.live, i, i+1)
		}
		if x.done.Held {
			s.endsMu.Lock()
			j.held++
			s.endsMu.Unlock()
		}
		if errors.Is(err, workqueue.ErrEvicted) && j.err == nil {
			s.repeat(j, x)
			continue
		}
		if j.value = x.done.Value; err != nil && j.err == nil {
			j.err = err
		}
		if j.done() {
			s.finishJob(j)
		}
	}
}

// repeat makes a part of a job that a rail has lost wait for another rail.
func (s *scheduler) repeat(j *job, x *slice) {
	j.tried = true
	switch {
	case !j.cut:
		j.begun, j.only, j.next, j.mark, j.gone = false, nil, 0, 0, false
	case x.n > 0:
		j.again = append(j.again, x)
	default:
		j.noted = false
	}
}

// finishJob completes a job.
func (s *scheduler) finishJob(j *job) {
	j.ended = true
	s.active = slices.DeleteFunc(s.active, func(x *job) bool { return x == j })
	switch {
	case j.mark == 0 || j.err != nil:
	case j.Flags&operation.FlagDeliveryComplete != 0:
		for _, b := range j.bytes {
			s.flushed(j.only, b.Memory, j.mark)
		}
	default:
		s.push(j)
	}
	if j.cut || !j.begun {
		s.c.First.Works.Count(j.Kind, j.err, time.Since(j.since))
	}
	if j.hold != nil {
		s.c.First.Drop(j.hold)
		j.hold = nil
	}
	s.endsMu.Lock()
	j.told = j.held > 0
	done := operation.Completion{Context: j.Context, Op: j.Kind, Len: j.Size, Value: j.value, Err: j.err, Held: j.told}
	s.endsMu.Unlock()
	if j.err != nil {
		done.Len, done.Value = 0, 0
	}
	if j.Sink != nil {
		j.Sink.Complete(done)
	}
	s.vacate()
}

// Post posts an operation over several rails. w is its work for the first one, and has no fault.
// Post drops it.
func (c *Conn) Post(w *workqueue.Work, p Posting) (Ticket, error) {
	p.Kind, p.Whole = w.Kind, len(w.Ready()) > 0 // ready is called once for each operation
	all := w.Remotes()
	for _, rb := range all { // reading back pushes the bytes of one memory only
		p.Whole = p.Whole || rb != all[0] || rb.Layout().DistinctSources() > 1
	}
	s, j := c.sched, &job{Posting: p, noted: true, bytes: p.appendBytes(nil), since: time.Now()}
	err := c.First.Works.PermitsAll(w)
	if err == nil {
		s.look(func() { err = s.full() })
	}
	if err == nil {
		err = j.Sums.make(w)
	}
	if err == nil && p.Bytes == nil && (p.Kind == operation.Read || p.Kind == operation.Write) {
		j.hold = w // it keeps the memory while the operation waits
	} else {
		c.First.Drop(w)
	}
	if err != nil {
		return Ticket{}, err
	}
	t, err := s.add(j)
	if err != nil && j.hold != nil {
		c.First.Drop(j.hold)
	}
	return t, err
}

// add takes a job, and begins it if that is possible.
func (s *scheduler) add(j *job) (Ticket, error) {
	c := s.c
	s.lock()
	defer s.unlock()
	switch {
	case c.life.Err() != nil:
		return Ticket{}, c.gone()
	case s.shutFor != nil:
		return Ticket{}, s.shutFor
	}
	if err := s.full(); err != nil {
		return Ticket{}, err
	}
	s.active = append(s.active, j)
	if len(s.active) == 1 || s.active[len(s.active)-2].begun { // it may begin now, and its error is the caller's
		if _, err := s.begin(j); err != nil && len(j.live) == 0 {
			s.active = s.active[:len(s.active)-1]
			return Ticket{}, err
		}
	}
	return Ticket{s: s, j: j}, nil
}

// gone returns the error of a connection that has begun to end.
func (c *Conn) gone() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// cancel withdraws the parts of a job that no NIC has.
func (s *scheduler) cancel(j *job, why error) bool {
	if j.ended {
		return false
	}
	withdrawn := true
	if j.err == nil && (!j.begun || j.next < j.Size || len(j.again) > 0 || !j.noted) {
		j.err = why
	}
	for _, x := range j.live {
		withdrawn = x.ticket.Cancel(why) && withdrawn
	}
	withdrawn = withdrawn && !j.tried && (!j.begun || !j.cut || j.next == sumOf(j.live))
	if len(j.live) == 0 {
		s.finishJob(j)
	}
	return withdrawn
}

// sumOf returns the number of bytes of slices.
func sumOf(list []*slice) (n int64) {
	for _, x := range list {
		n += x.n
	}
	return n
}

// shut makes the connection take no operations any more, withdraws those that no NIC has, and waits
// for the others, for a time at most. It returns false if some have not ended.
func (s *scheduler) shut(why error, patience time.Duration) bool {
	s.lock()
	s.shutFor = why
	for _, j := range slices.Clone(s.active) {
		s.cancel(j, why)
	}
	s.vacate()
	s.unlock()
	for end := time.Now().Add(patience); time.Now().Before(end) && s.c.life.Err() == nil; time.Sleep(time.Millisecond) {
		s.c.Look()
		s.lock()
		left := len(s.active)
		s.unlock()
		if left == 0 {
			return true
		}
	}
	return s.c.life.Err() != nil
}

// finish ends the jobs that have not ended when all rails have.
func (s *scheduler) finish(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	for _, j := range slices.Clone(s.active) {
		if j.err == nil {
			j.err = why
		}
		s.finishJob(j)
	}
	s.vacate()
}

// Vacancy returns a channel that is closed when the connection may take another operation, or takes
// none any more.
func (c *Conn) Vacancy() <-chan struct{} {
	if c.sched == nil {
		return c.First.Works.Vacancy()
	}
	s, v := c.sched, (<-chan struct{})(nil)
	s.look(func() {
		if s.vacancy == nil {
			s.vacancy = make(chan struct{})
		}
		v = s.vacancy
		s.check()
	})
	return v
}

// HasRoom reports whether the connection may take another operation, or takes none any more.
func (c *Conn) HasRoom() bool {
	if c.sched == nil {
		return c.First.Works.HasRoom()
	}
	some := false
	c.sched.look(func() { some = c.sched.hasRoom() })
	return some
}

// SignalRoom sends a value to a channel, without blocking, when HasRoom is true: now, or once
// later.
func (c *Conn) SignalRoom(signal chan<- struct{}) {
	if c.sched == nil {
		c.First.Works.SignalRoom(signal)
		return
	}
	s := c.sched
	s.look(func() {
		if !slices.Contains(s.signals, signal) {
			s.signals = append(s.signals, signal)
		}
		s.check()
	})
}

func (s *scheduler) hasRoom() bool {
	return s.c.life.Err() != nil || s.shutFor != nil || len(s.active) < s.c.First.Depth()
}

// full returns the error of an operation for which there is no room; nil if there is some.
func (s *scheduler) full() error {
	if s.hasRoom() {
		return nil
	}
	for _, j := range s.active {
		for _, x := range j.live {
			if x.r.Conn.Works.PeerBehind() {
				return operation.ErrPeerBehind
			}
		}
	}
	return operation.ErrQueueFull
}

// check wakes the goroutines that wait for room, if there is some.
func (s *scheduler) check() {
	if s.hasRoom() {
		s.vacate()
	}
}

// vacate wakes the goroutines that wait for room.
func (s *scheduler) vacate() {
	if s.vacancy != nil {
		close(s.vacancy)
		s.vacancy = nil
	}
	for _, signal := range s.signals {
		select {
		case signal <- struct{}{}:
		default: // it has one
		}
	}
	s.signals = nil
}

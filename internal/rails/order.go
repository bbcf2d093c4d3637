// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// Order says which operations follow earlier ones over other rails.
type Order int

// The orders. In all of them a message, a notification, an atomic and a fence follow what was posted
// before.
const (
	Overlaps Order = iota // those that overlap an earlier one, and are not both reads
	Writes                // all that change the peer's memory follow one another, and reads as in Overlaps
	Fences                // no others
)

// advance posts what can be posted. The mutex is held.
func (s *scheduler) advance() {
	for _, j := range slices.Clone(s.active) {
		switch {
		case j.ended:
		case s.c.life.Err() != nil: // finish ends it
			return
		case j.begun:
			s.carry(j)
		default:
			started, err := s.begin(j)
			if err != nil && len(j.live) == 0 {
				j.err = err
				s.finishJob(j)
			} else if !started {
				return // no later one begins before it
			}
		}
	}
}

// overlap reports whether two lists have bytes in common.
func overlap(a, b []memory.Bytes) bool {
	for _, x := range a {
		for _, y := range b {
			if x.Overlaps(y) {
				return true
			}
		}
	}
	return false
}

// conflict is what an operation must follow.
type conflict struct {
	wait   bool     // for operations that are under way over several rails, or over two
	on     *Rail    // the operations under way that all go over this rail
	pushed []pushed // writes that have completed, and may not be in the memory
}

// conflictOf returns what a job must follow. With all it follows all writes before it.
func (s *scheduler) conflictOf(j *job, all bool) (x conflict) {
	s.forget()
	overlap := func(list []memory.Bytes) bool { return s.order != Fences && overlap(list, j.bytes) }
	for _, p := range s.pushed {
		if all || overlap([]memory.Bytes{p.at}) {
			x.pushed = append(x.pushed, p)
		}
	}
	for _, e := range s.active {
		if e == j {
			return x
		}
		same := overlap(e.bytes)
		switch {
		case j.fenced() && !j.begun:
			x.wait = true
		case same && e.changes() != j.changes(): // a read is not ordered with a write over the same rail
			x.wait = true
		case !e.changes(), !same && !all:
		case e.only == nil || x.on != nil && x.on != e.only:
			x.wait = true
		default:
			x.on = e.only
		}
	}
	return x
}

// begin begins a job, if the ones before it allow that.
func (s *scheduler) begin(j *job) (started bool, err error) {
	if j.Limit != nil {
		if d, ok := j.Limit.Deadline(); ok && time.Now().After(d) {
			return false, context.DeadlineExceeded
		}
	}
	home := s.home(j)
	if home == nil {
		return false, s.unreached(j)
	}
	j.stuck = time.Time{}
	usable := s.usable(j, home)
	cut := len(usable) > 1 && j.Size >= cutFrom && !j.fenced()
	single := j.fenced() || j.Kind != operation.Read && j.Kind != operation.Write || j.Note && !cut // over its home
	x := s.conflictOf(j, single || s.order == Writes && j.changes())
	if cut && x.on != nil && j.Size < mostSlice && s.order != Writes { // it follows over the same rail, with its notification
		cut = false
		if single = j.Note; single {
			x = s.conflictOf(j, true)
		}
	}
	if err := s.missing(j, x.pushed); err != nil {
		return false, err
	}
	if x.wait || cut && x.on != nil {
		return false, nil
	}
	r, free := home, false // free: it may go over any rail
	stuck := only(x.pushed, j)
	switch {
	case stuck != nil && j.can(stuck): // it follows over the rail of what cannot be read back
		r, cut = stuck, false
	case single:
	case x.on != nil:
		r = x.on
	case cut:
		if len(x.pushed) > 0 {
			return false, s.flush(j, x.pushed)
		}
		j.begun, j.cut, j.noted = true, true, !j.Note
		s.carry(j)
		return true, nil
	case len(x.pushed) > 0:
		r = x.pushed[0].r
	default:
		r = best(usable, j.Size)
		free = true
	}
	if x.on != nil && x.on != r || r != home && r != stuck && (!r.up() || !slices.Contains(usable, r)) {
		if x.on != nil {
			return false, nil
		}
		r = home
	}
	if more := before(j, r, x.pushed); len(more) > 0 {
		return false, s.flush(j, more)
	}
	started, err = s.whole(j, r, home)
	if started && free {
		pass(usable, r, j.Size)
	}
	return started, err
}

// before returns which of the writes that a job must follow are to be read back before it goes over a
// rail. Writes of one rail follow one another; a read has a queue pair of its own.
func before(j *job, r *Rail, list []pushed) (more []pushed) {
	for _, p := range list {
		if p.r != r || !j.changes() && overlap([]memory.Bytes{p.at}, j.bytes) && p.readable(j) {
			more = append(more, p)
		}
	}
	return more
}

// home returns the rail for what keeps its order by itself: messages, atomics, and writes that cannot be
// read back. It stays the same as long as the rail has a link and reaches the memory. It is nil if no
// rail reaches the memory.
func (s *scheduler) home(j *job) *Rail {
	if !s.main.up() {
		for _, r := range s.rails {
			if r.up() && (!s.main.up() || r.Number < s.main.Number) {
				s.main = r
			}
		}
	}
	if j.can(s.main) && !j.moved(s.main) {
		return s.main
	}
	worth := func(r *Rail) (n int) {
		if r.up() {
			n = 2
		}
		if !j.moved(r) {
			n++
		}
		return n
	}
	var found *Rail
	for _, r := range s.rails {
		if j.can(r) && (found == nil || worth(r) > worth(found) || worth(r) == worth(found) && r.Number < found.Number) {
			found = r
		}
	}
	return found
}

// memoryPause is the time between two looks for a rail that reaches the memory of an operation.
const memoryPause = 10 * time.Millisecond

// later looks again for what can be posted. The mutex is held.
func (s *scheduler) later() {
	if s.timer {
		return
	}
	s.timer = true
	time.AfterFunc(memoryPause, func() {
		s.mu.Lock()
		s.timer = false
		s.mu.Unlock()
		s.signal()
	})
}

// unreached returns the error of a job whose memory no rail reaches on both sides, once the peer has had
// the time to export it over another rail.
func (s *scheduler) unreached(j *job) error {
	if j.atomic() && j.Remotes[0].hasNoAtomics() {
		return &failure.Error{
			Op: j.Kind.String(), Device: j.Remotes[0].First.String(), Detail: "the descriptor has no keys for atomics, which change", Err: unix.EACCES,
			Remedy: "import the memory by its name, or decode what the peer's Share has given",
		}
	}
	if j.stuck.IsZero() {
		j.stuck = time.Now()
	}
	if time.Since(j.stuck) < s.c.First.PeerTimeout() {
		s.later()
		return nil
	}
	if away, why := s.c.notMade(); away != "" {
		return fmt.Errorf("%w: no rail reaches the memory of both sides, and that over %s was not made: %w", engine.ErrNotConnected, away, why)
	}
	if j.atomic() {
		return fmt.Errorf("%w: the peer has given no keys for atomics over a rail that has a link", engine.ErrNotConnected)
	}
	return &failure.Error{
		Op: j.Kind.String(), Detail: "no rail has a NIC on each side that reaches the memory of both", Err: unix.EOPNOTSUPP,
		Remedy: "look at the paths of the buffers on both sides: register one with StagedOnly, or give the connection another NIC",
	}
}

// usable returns the rails that may carry a job's bytes. Writes that cannot be read back go over its
// home only. A rail whose NIC reaches another memory than the device's is left out, if there is a better
// one; so is a rail while messages wait there for the peer's program, since other operations would wait
// behind them.
func (s *scheduler) usable(j *job, home *Rail) []*Rail {
	list := []*Rail{home}
	if j.Whole || j.Kind != operation.Read && (j.Kind != operation.Write || !j.readable()) {
		return list
	}
	for _, r := range s.rails {
		if r != home && r.up() && j.reaches(r) {
			list = append(list, r)
		}
	}
	list = without(list, j.moved)
	return without(list, func(r *Rail) bool { return r.Conn.Works.MessagesWait() })
}

// without returns a list without the rails that f names, or the list if none would be left.
func without(list []*Rail, f func(*Rail) bool) []*Rail {
	if len(list) > 1 && slices.ContainsFunc(list, f) {
		if rest := slices.DeleteFunc(slices.Clone(list), f); len(rest) > 0 {
			return rest
		}
	}
	return list
}

// whole begins a job that goes over one rail.
func (s *scheduler) whole(j *job, r, home *Rail) (bool, error) {
	if !r.up() { // others may carry it
		if j.atomic() { // the peer may take it over another one
			s.later()
		}
		return false, nil
	}
	deliver := r != home || r != s.main && j.readable() && !j.Whole // otherwise messages would have to follow it
	err := s.post(j, r, 0, j.Size, j.Note, deliver)
	if errors.Is(err, operation.ErrQueueFull) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	j.begun, j.only, j.next = true, r, j.Size
	if j.Kind == operation.Write && j.live[0].pushes {
		s.writes++
		j.mark = s.writes
	}
	return true, nil
}

// carry posts the next slices of a job, and then its notification.
func (s *scheduler) carry(j *job) {
	if !j.cut || j.err != nil {
		return
	}
	home := s.home(j)
	if home == nil {
		s.later()
		return
	}
	for usable := s.usable(j, home); len(j.again) > 0 || j.next < j.Size; {
		off, left := j.next, j.Size-j.next
		if len(j.again) > 0 {
			off, left = j.again[0].off, j.again[0].n
		}
		r, n := next(usable, j.Size, left)
		if r == nil || !r.up() {
			return
		}
		switch err := s.post(j, r, off, n, false, true); {
		case errors.Is(err, operation.ErrQueueFull):
			return
		case err != nil:
			j.err = err
			if len(j.live) == 0 {
				s.finishJob(j)
			}
			return
		}
		pass(usable, r, n)
		switch {
		case len(j.again) == 0:
			j.next += n
		case n < left:
			j.again[0] = &slice{off: off + n, n: left - n}
		default:
			j.again = j.again[1:]
		}
	}
	if j.noted || len(j.live) > 0 {
		return
	}
	x := s.conflictOf(j, true)
	if err := s.missing(j, x.pushed); err != nil {
		j.err = err
		s.finishJob(j)
		return
	}
	if stuck := only(x.pushed, j); stuck != nil {
		home = stuck
	}
	if x.wait || x.on != nil && x.on != home {
		return
	}
	if more := before(j, home, x.pushed); len(more) > 0 {
		if err := s.flush(j, more); err != nil {
			j.err = err
			s.finishJob(j)
		}
		return
	}
	if !home.up() {
		return
	}
	err := s.post(j, home, j.Size, 0, true, false)
	if errors.Is(err, operation.ErrQueueFull) {
		return
	}
	if j.noted = true; err != nil {
		j.err = err
		s.finishJob(j)
	}
}

// post posts a part of a job. With deliver a write is in the memory when it completes.
func (s *scheduler) post(j *job, r *Rail, off, n int64, note, deliver bool) error {
	flags, x := j.Flags&^(operation.FlagFence|operation.FlagMore), &slice{j: j, r: r, off: off, n: n}
	if x.pushes = j.Kind == operation.Write && n > 0; x.pushes && deliver {
		flags |= operation.FlagDeliveryComplete
		x.pushes = false
	}
	w, err := r.Conn.NewWork(j.Kind, flags, x, s)
	if err != nil {
		return err
	}
	if j.Limit != nil {
		w.SetDeadline(j.Limit)
	}
	if j.tried && (!j.cut || len(j.again) > 0) {
		w.Repeats()
	}
	if j.cut {
		w.Part()
	}
	if n == j.Size && note == j.Note {
		err = j.All(w, r)
	} else {
		err = j.fill(w, r, off, n, note)
	}
	if err == nil && j.atomic() && w.Remotes()[0] != j.Remotes[0].atomics(r.Number) { // the peer has withdrawn the keys just now
		r.Conn.Drop(w)
		s.later()
		return operation.ErrQueueFull
	}
	if err == nil {
		err = w.Prepare()
	}
	if err != nil {
		r.Conn.Drop(w)
		return err
	}
	if note {
		j.Sums.give(w)
	}
	r.load.begin(n)
	j.live = append(j.live, x)
	if x.ticket, err = r.Conn.Works.Post(w); err != nil {
		j.live = j.live[:len(j.live)-1]
		r.load.end(n, false)
	}
	return err
}

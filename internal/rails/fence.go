// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gpurdma/gpurdma/internal/engine"
)

// The link of a rail is lost on one side first. That side destroys its queue pairs, and reports it
// over another rail. The other side then does the same. When a side has both reports, nothing of the
// link can land any more on either side, and the peer has said which messages it has: the rail's
// operations go over other rails. The rail goes on making another link.

// callbacks sets what the engine calls for the rails of connections that this side has made, or
// accepted.
func (s *Set) callbacks(opt *engine.Rails, dialed bool) {
	of := func(group uint64, f func(c *Conn)) {
		if c := s.conn(key{group, dialed}); c != nil {
			go f(c)
		}
	}
	opt.Lost = func(group uint64, r engine.RailReport) {
		if c := s.conn(key{group, dialed}); c != nil {
			if rail := c.rail(int(r.Rail)); rail != nil && c.sched != nil {
				c.sched.lock()
				c.sched.lost(rail, r.Link)
				c.sched.takeBack(func(x *slice) bool { return x.r == rail && x.j.atomic() }) // the keys may change meanwhile
				c.sched.unlock()
			}
			go c.lost(r)
		}
	}
	opt.Reported = func(group uint64, r engine.RailReport) { of(group, func(c *Conn) { c.reported(r) }) }
	opt.Linked = func(group uint64, rail int, link uint32) { of(group, func(c *Conn) { c.linked(rail, link) }) }
	opt.Drain = func(group uint64, rail int, id uint64) {
		if c := s.conn(key{group, dialed}); c != nil && c.sched != nil {
			c.sched.drain(rail, id)
		}
	}
	opt.Keep = func(group uint64) bool {
		c := s.conn(key{group, dialed})
		return c != nil && c.keep()
	}
}

// Times between two reports of a rail that the peer has not answered.
const (
	reportPause   = 100 * time.Millisecond
	reportTimeout = time.Second
)

// lost takes the report of this side, and sends it to the peer until the peer has sent its own, or the
// rail has another link.
func (c *Conn) lost(report engine.RailReport) {
	r := c.rail(int(report.Rail))
	if r == nil {
		return
	}
	c.Events.add(r.Number)
	if c.sched == nil {
		return
	}
	c.sched.signal() // others may carry what waits
	time.AfterFunc(homePause, c.set.homes.Look)
	if !report.Removed {
		c.lent.push(r.NIC)
	}
	c.mu.Lock()
	r.ours = &report
	theirs := r.theirs
	c.mu.Unlock()
	if theirs != nil {
		c.evict(r, *theirs)
	}
	for !c.resolved(r, report) {
		c.report(r, report)
		select {
		case <-time.After(reportPause):
		case <-c.life.Done():
			return
		}
	}
}

// resolved reports whether a rail that has lost a link needs no report any more.
func (c *Conn) resolved(r *Rail, report engine.RailReport) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return r.up() || c.rails[r.Number] != r || r.ours.Link != report.Link || r.evicted != nil && *r.evicted == report.Link
}

// reported takes a report of the peer.
func (c *Conn) reported(report engine.RailReport) {
	if int(report.Rail) >= c.count || c.sched == nil {
		return
	}
	r := c.rail(int(report.Rail))
	if r == nil {
		return
	}
	c.mu.Lock()
	if r.theirs != nil && r.theirs.Link > report.Link {
		c.mu.Unlock()
		return
	}
	r.theirs = &report
	ours, evicted := r.ours, r.evicted
	c.mu.Unlock()
	if ours == nil || ours.Link < report.Link {
		r.Conn.Lose(report.Link)
		return
	}
	c.evict(r, report)
	if evicted != nil && *evicted == report.Link && ours.Link == report.Link && !r.up() { // the peer may not have this side's report
		c.report(r, *ours)
	}
}

// report sends this side's report of a rail over another one.
func (c *Conn) report(r *Rail, report engine.RailReport) {
	for _, other := range c.Rails() {
		if other == r || !other.up() {
			continue
		}
		ctx, cancel := context.WithTimeout(c.life, reportTimeout)
		sent := other.Conn.Report(ctx, report)
		cancel()
		if sent {
			return
		}
	}
}

// evict makes other rails carry out the operations of a rail, if both sides have reported the same
// link.
func (c *Conn) evict(r *Rail, theirs engine.RailReport) {
	c.mu.Lock()
	same := r.ours != nil && r.ours.Link == theirs.Link && (r.evicted == nil || *r.evicted != theirs.Link)
	ours := r.ours
	c.mu.Unlock()
	if !same {
		return
	}
	s := c.sched
	s.lock()
	evicted := r.Conn.Evict(*ours, theirs)
	switch {
	case !evicted:
	case theirs.Removed:
		s.vanished(r)
	default:
		s.flushed(r, 0, s.writes)
	}
	s.unlock()
	if evicted {
		c.mu.Lock()
		r.evicted = &theirs.Link
		c.mu.Unlock()
	}
}

// linked is called when a rail has another link. It may have lost that one, too, by now.
func (c *Conn) linked(rail int, link uint32) {
	c.tries[rail].Store(0)
	c.Events.add(rail)
	r := c.rail(rail)
	if c.sched == nil || r == nil {
		return
	}
	c.sched.lock()
	c.sched.relinked(r, link)
	c.sched.unlock()
	c.shareOver(r)
	c.set.homes.Look()
}

// lose ends the link of a rail, and waits until it has, for a time at most.
func (r *Rail) lose(limit time.Duration) {
	r.Conn.LoseLast()
	for end := time.Now().Add(limit); r.up() && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
}

// drain waits until the NIC of a rail has no atomic on memory with an ID. The peer has withdrawn the keys,
// and gives no others for the rail before it knows that. Atomics that the NIC does not have go elsewhere.
func (s *scheduler) drain(rail int, id uint64) {
	under := func(x *slice) bool {
		return x.r.Number == rail && x.j.atomic() && x.j.Remotes[0].First.ID() == id
	}
	for busy := true; busy; {
		s.lock()
		s.takeBack(under)
		busy = slices.ContainsFunc(s.active, func(j *job) bool { return slices.ContainsFunc(j.live, under) })
		s.unlock()
		if busy {
			time.Sleep(drainPause)
		}
	}
}

// takeBack makes atomics that no NIC has, and what was posted after them over their rails, wait for other
// keys.
func (s *scheduler) takeBack(which func(x *slice) bool) {
	for _, j := range s.active {
		for _, x := range slices.Clone(j.live) {
			if which(x) {
				x.ticket.Evict()
			}
		}
	}
	s.settle()
}

// drainPause is the time between two looks at atomics that are under way.
const drainPause = time.Millisecond

// up reports whether a rail has a link.
func (r *Rail) up() bool {
	w := r.Conn.Works
	return w.Link.LostFor() == nil && w.Begun() && !w.Over()
}

// keep reports whether the connection has had a rail with a link within PeerTimeout.
func (c *Conn) keep() bool {
	if c.sched == nil {
		return false
	}
	some, all := false, true
	for _, r := range c.Rails() {
		recent := c.recent(r)
		some, all = some || recent, all && recent
	}
	if some && !all {
		go c.sched.giveUp()
	}
	return some
}

// recent reports whether a rail has had a link within PeerTimeout.
func (c *Conn) recent(r *Rail) bool {
	at, _ := r.Conn.Works.Link.Loss()
	return r.up() || time.Since(at) < c.First.PeerTimeout()
}

// giveUp ends an operation if no rail that can carry it has had a link for PeerTimeout.
func (s *scheduler) giveUp() {
	s.lock()
	defer s.unlock()
	for _, j := range slices.Clone(s.active) {
		if j.ended || j.err != nil || j.begun && (!j.cut || len(j.live) > 0) {
			continue
		}
		var last *Rail
		waits := false
		for _, r := range s.rails {
			if j.can(r) {
				last, waits = r, waits || s.c.recent(r)
			}
		}
		if last != nil && !waits {
			j.err = fmt.Errorf("%w: only %s can carry it, whose link is lost: %w", engine.ErrNotConnected, last.NIC.Name(), last.Conn.Works.Link.LostFor())
			s.finishJob(j)
		}
	}
}

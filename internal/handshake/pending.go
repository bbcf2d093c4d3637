// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Pending are the handshakes that are under way. Several listeners may share one.
type Pending struct {
	max    int
	ending chan struct{} // who has a place, or lost it and has not gone yet

	mu      sync.Mutex
	callers map[*Caller]struct{}
	sources map[netip.Prefix]*source
	doubted int           // sources with which there is half the patience or less
	swept   time.Time     // when sources were last looked over
	freed   chan struct{} // closed when a place is free

	watching bool
	lost     time.Duration // in which this process did not get to run, as far as it has watched
}

// Ending is how many callers beyond those with a place may exist: who has lost the place
// and whose goroutine has not ended yet.
const Ending = 64

// New makes room for that many callers.
func New(places int) *Pending {
	return &Pending{
		max: places, ending: make(chan struct{}, places+Ending),
		callers: map[*Caller]struct{}{}, sources: map[netip.Prefix]*source{}, freed: make(chan struct{}),
	}
}

// ErrReplaced is why a caller was turned out, or not let in, for another.
var ErrReplaced = errors.New("all places for callers are taken")

// ErrSlow is why a caller was turned out that was too long in one phase.
var ErrSlow = errors.New("the caller is too slow")

// Enter gives a caller a place, and takes the connection over; with an error it has closed
// it. It waits while there is no place. Who has entered calls Leave in the end. The context
// ends with ctx, after the timeout, or when the caller has lost its place, and has the cause.
func (p *Pending) Enter(ctx context.Context, conn net.Conn, timeout time.Duration) (context.Context, *Caller, error) {
	return p.admit(ctx, conn, timeout, func() bool { return false })
}

// admit is Enter; queued reports whether so many are waiting to be accepted that some may
// be lost.
func (p *Pending) admit(ctx context.Context, conn net.Conn, timeout time.Duration, queued func() bool) (context.Context, *Caller, error) {
	select {
	case p.ending <- struct{}{}:
	case <-ctx.Done():
		_ = conn.Close()
		return nil, nil, ctx.Err()
	}
	c := &Caller{Conn: conn, pending: p, then: TLS}
	limited, end := context.WithTimeout(ctx, timeout)
	life, cancel := context.WithCancelCause(limited)
	c.cancel = func(why error) {
		cancel(why)
		end()
	}
	if err := p.enter(ctx, c, queued); err != nil {
		c.cancel(err)
		c.reset()
		_ = conn.Close() // where reset does not
		<-p.ending
		return nil, nil, err
	}
	return life, c, nil
}

func (p *Pending) enter(ctx context.Context, c *Caller, queued func() bool) error {
	prefix := prefixOf(c.RemoteAddr())
	for pressed := false; ; pressed = queued() {
		p.mu.Lock()
		now := time.Now()
		from := p.source(prefix, now)
		if len(p.callers) < p.max {
			p.add(c, from, now)
			p.mu.Unlock()
			return nil
		}
		if victim := p.victim(from, pressed, now); victim != nil {
			why := fmt.Errorf("%w: %v, and another needs the place", ErrReplaced, victim.phase)
			p.turnOut(victim, why, now)
			p.add(c, from, now)
			p.mu.Unlock()
			victim.end(why)
			return nil
		}
		freed, hopeless := p.freed, from.patience <= noPatience
		p.mu.Unlock()
		if hopeless {
			return fmt.Errorf("%w, and the last callers of %v did not connect", ErrReplaced, prefix)
		}
		look := time.NewTimer(noPatience)
		select {
		case <-freed:
		case <-look.C:
		case <-ctx.Done():
		}
		look.Stop()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// add gives a place that is free.
func (p *Pending) add(c *Caller, from *source, now time.Time) {
	c.source, c.present = from, true
	from.places++
	p.callers[c] = struct{}{}
	c.waiting = true
	c.begin(FirstByte, now)
	if p.crowded() && !p.watching {
		p.watching = true
		go p.watch(now)
	}
}

// crowded reports whether there may be no place soon.
func (p *Pending) crowded() bool { return len(p.callers) > p.max/2 }

// watch counts by how much its own looks are late while it is crowded, as they are on a
// machine that has more to do than it can: that no caller has answered in that time is not the
// caller's fault.
func (p *Pending) watch(last time.Time) {
	for {
		time.Sleep(noPatience)
		p.mu.Lock()
		now := time.Now()
		p.lost += max(0, now.Sub(last)-2*noPatience)
		last = now
		p.watching = p.crowded()
		again := p.watching
		p.mu.Unlock()
		if !again {
			return
		}
	}
}

// remove takes the place back.
func (p *Pending) remove(c *Caller) {
	c.present = false
	c.limit.Stop()
	c.source.places--
	delete(p.callers, c)
	close(p.freed)
	p.freed = make(chan struct{})
}

// turnOut takes the place of one who keeps the connection no longer; end is to follow.
func (p *Pending) turnOut(c *Caller, why error, now time.Time) {
	p.remove(c)
	c.why = why
	p.failed(c.source, now)
}

// victim is who goes for a caller from an address; nil if nobody does.
func (p *Pending) victim(from *source, pressed bool, now time.Time) *Caller {
	var v *Caller
	for c := range p.callers {
		if c.mayGo(from, pressed, now) && (v == nil || goesBefore(c, v)) {
			v = c
		}
	}
	return v
}

// mayGo reports whether a caller has been waited for long enough that it may go for one from
// an address.
func (c *Caller) mayGo(from *source, pressed bool, now time.Time) bool {
	s := c.source
	patience := s.patience
	if c.phase > FirstByte && s.progresses(now) {
		patience *= progress
	}
	switch {
	case !from.isFailing() && (s.isFailing() || s.places > from.places && !s.progresses(now)):
		if pressed {
			return c.idle() || c.elapsed(now) > min(patience, pressedPatience)
		}
	case s == from:
		if pressed {
			return c.elapsed(now) > patience
		}
	case s.places <= from.places:
		return false
	}
	return c.waited(now) > patience
}

// goesBefore is the order in which callers go.
func goesBefore(a, b *Caller) bool {
	switch x, y := a.source.isFailing(), b.source.isFailing(); {
	case x != y:
		return x
	case a.idle() != b.idle():
		return a.idle()
	case a.source.places != b.source.places:
		return a.source.places > b.source.places
	case a.phase != b.phase:
		return a.phase < b.phase
	}
	return a.began.Before(b.began)
}

// idle reports whether a caller has sent nothing and is not the only one of its address.
func (c *Caller) idle() bool { return c.phase == FirstByte && c.source.places > 1 }

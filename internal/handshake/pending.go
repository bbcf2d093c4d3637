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

// Pending has the handshakes that are under way. Several listeners may share one.
type Pending struct {
	max    int
	ending chan struct{} // a value for each caller that has a place, or has lost it and has not ended

	mu      sync.Mutex
	callers map[*Caller]struct{}
	sources map[netip.Prefix]*source
	doubted int           // sources with half the patience or less
	swept   time.Time     // when sweep was last called
	freed   chan struct{} // closed when a place is free

	watching bool
	lost     time.Duration // the time in which this process did not run, as watch has measured it
}

// Ending is the number of callers that may exist besides those with a place: callers that have
// lost the place, and whose goroutines have not ended.
const Ending = 64

// New makes a Pending with a number of places.
func New(places int) *Pending {
	return &Pending{
		max: places, ending: make(chan struct{}, places+Ending),
		callers: map[*Caller]struct{}{}, sources: map[netip.Prefix]*source{}, freed: make(chan struct{}),
	}
}

// ErrReplaced means that another caller got the place, or that there was none.
var ErrReplaced = errors.New("all places for callers are taken")

// ErrSlow means that a caller was in one phase for too long.
var ErrSlow = errors.New("the caller is too slow")

// Enter gives a caller a place, and takes the connection over; it closes the connection if it
// returns an error. It waits while there is no place. Call Caller.Leave at the end. The context
// that it returns ends with ctx, after the timeout, or when the caller has lost its place, and has
// the cause.
func (p *Pending) Enter(ctx context.Context, conn net.Conn, timeout time.Duration) (context.Context, *Caller, error) {
	return p.admit(ctx, conn, timeout, func() bool { return false })
}

// admit is Enter; queued reports whether the kernel's queue may soon lose callers.
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
		_ = conn.Close() // reset closes TCP only
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
		if old := p.replaceable(from, pressed, now); old != nil {
			why := fmt.Errorf("%w: %v, and another needs the place", ErrReplaced, old.phase)
			p.evict(old, why, now)
			p.add(c, from, now)
			p.mu.Unlock()
			old.end(why)
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

// watch looks at an interval while there may be no place soon, and adds up the delays of its
// looks. On a busy machine looks are late, and the delay does not count against callers.
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

// evict takes the place of a caller whose connection ends; a call of end follows.
func (p *Pending) evict(c *Caller, why error, now time.Time) {
	p.remove(c)
	c.why = why
	p.failed(c.source, now)
}

// replaceable returns the caller that loses its place to one from an address; nil if none does.
func (p *Pending) replaceable(from *source, pressed bool, now time.Time) *Caller {
	var v *Caller
	for c := range p.callers {
		if c.mayBeReplaced(from, pressed, now) && (v == nil || replacedBefore(c, v)) {
			v = c
		}
	}
	return v
}

// mayBeReplaced reports whether the listener has waited for a caller long enough to give its place
// to one from an address.
func (c *Caller) mayBeReplaced(from *source, pressed bool, now time.Time) bool {
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

// replacedBefore is the order in which callers lose their places.
func replacedBefore(a, b *Caller) bool {
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

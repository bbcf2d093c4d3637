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
	if err := p.enter(ctx, c); err != nil {
		c.cancel(err)
		c.reset()
		_ = conn.Close() // where reset does not
		<-p.ending
		return nil, nil, err
	}
	return life, c, nil
}

func (p *Pending) enter(ctx context.Context, c *Caller) error {
	prefix := prefixOf(c.RemoteAddr())
	for {
		p.mu.Lock()
		now := time.Now()
		from := p.source(prefix, now)
		if len(p.callers) < p.max {
			p.add(c, from, now)
			p.mu.Unlock()
			return nil
		}
		if victim := p.victim(from, now); victim != nil {
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
	c.waiting, c.since = true, now
	c.begin(FirstByte, now)
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
func (p *Pending) victim(from *source, now time.Time) *Caller {
	var v *Caller
	for c := range p.callers {
		mayGo := c.source == from || c.source.places > from.places || c.source.isFailing() && !from.isFailing()
		if !mayGo || c.waited(now) <= c.source.patience {
			continue
		}
		if v == nil || goesBefore(c, v) {
			v = c
		}
	}
	return v
}

// goesBefore is the order in which callers go.
func goesBefore(a, b *Caller) bool {
	switch x, y := a.source.isFailing(), b.source.isFailing(); {
	case x != y:
		return x
	case a.source.places != b.source.places:
		return a.source.places > b.source.places
	case a.phase != b.phase:
		return a.phase < b.phase
	}
	return a.began.Before(b.began)
}

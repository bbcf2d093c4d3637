// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/errs"
)

// Events are the changes of rails that were not taken: the numbers of the rails, each once.
type Events struct {
	c       *Conn
	mu      sync.Mutex
	readers int
	changed []int
	signal  chan struct{}
}

// add says that a rail has lost its link, has another one, is slow, or is as fast as before. Without
// a reader it is logged.
func (e *Events) add(number int) {
	c := e.c
	e.mu.Lock()
	read := e.readers > 0
	if !slices.Contains(e.changed, number) {
		e.changed = append(e.changed, number)
	}
	e.mu.Unlock()
	select {
	case e.signal <- struct{}{}:
	default:
	}
	if read {
		return
	}
	s := c.States()[number]
	if s.Up && s.Lost == 0 && !s.Slow { // it was made
		return
	}
	log, what := slog.Info, "has a link"
	switch {
	case s.Err != nil:
		log, what = slog.Warn, "has lost its link"
	case s.Slow:
		log, what = slog.Warn, "is slower than half of its best"
	}
	log("gpurdma: a rail "+what, "nic", s.Path.NIC, "peer", c.First.Peer().Addr, "rate", int64(s.Rate), "error", s.Err)
}

// Read makes events wait for Next, until stop is called, instead of being logged.
func (e *Events) Read() (stop func()) {
	count := func(n int) {
		e.mu.Lock()
		e.readers += n
		e.mu.Unlock()
	}
	count(1)
	return func() { count(-1) }
}

// Next waits for the next rail that has changed. After the end of the connection it returns the
// reason.
func (e *Events) Next(ctx context.Context) (State, error) {
	c := e.c
	for {
		e.mu.Lock()
		if len(e.changed) > 0 {
			number := e.changed[0]
			e.changed = e.changed[1:]
			if len(e.changed) > 0 {
				select {
				case e.signal <- struct{}{}: // for another goroutine that waits
				default:
				}
			}
			e.mu.Unlock()
			return c.States()[number], nil
		}
		e.mu.Unlock()
		select {
		case <-e.signal:
		case <-c.Done():
			return State{}, c.First.Works.End.Gone()
		case <-ctx.Done():
			return State{}, errs.Ended(ctx)
		}
	}
}

// State is what is known of a rail.
type State struct {
	Path engine.ConnPath
	Up   bool
	Lost int     // links that were lost and replaced
	Rate float64 // bytes a second while it was busy; 0 before it was measured
	Slow bool    // it is slower than half of its best
	Err  error   // why it has no link
}

// States returns the states of all rails that the connection may have.
func (c *Conn) States() []State {
	list := make([]State, c.count)
	c.mu.Lock()
	rails := append([]*Rail(nil), c.rails...)
	for i := range list {
		list[i].Path.NIC = c.nicOf(i).Name()
		if c.why != nil {
			list[i].Err = c.why[i]
		}
	}
	c.mu.Unlock()
	for i, r := range rails {
		if r != nil {
			list[i] = State{Path: r.Conn.Path(), Up: r.Conn.Up(), Lost: r.Conn.Lost(), Err: r.Conn.Works.Link.LostFor()}
		}
	}
	if c.sched != nil {
		c.sched.look(func() {
			for _, r := range c.sched.rails {
				list[r.Number].Rate, list[r.Number].Slow = r.load.rate, r.load.slow
			}
		})
	}
	return list
}

// notMade returns the NIC of a rail that was not made yet, and why; "" if all were.
func (c *Conn) notMade() (nic string, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range c.rails {
		if r == nil {
			return c.nicOf(i).Name(), c.why[i]
		}
	}
	return "", nil
}

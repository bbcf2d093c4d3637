// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"os"
	"sync"
	"sync/atomic"

	"github.com/gpurdma/gpurdma/internal/spin"
)

// Completion is an operation that has ended, well or not.
type Completion struct {
	Context any // as given to the operation
	Op      Op
	Peer    Peer
	Len     int64  // bytes moved; for a receive, as many as came; for OpRemoteWrite those of the last work request
	Data    uint32 // the peer's data, if Flags has FlagRemoteCQData
	Flags   Flags
	Err     error // nil, or an *OpError
}

// completions are those that the program has not taken.
type completions struct {
	wake     chan struct{} // who has taken what is in it looks for completions
	sleepers atomic.Int32  // in Wait

	mu     sync.Mutex
	list   fifo[Completion]
	closed bool
}

func (d *completions) push(c Completion) {
	d.mu.Lock()
	if !d.closed {
		d.list.push(c)
	}
	d.mu.Unlock()
	d.wakeSleeper()
}

// take moves completions to dst.
func (d *completions) take(dst []Completion) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0, os.ErrClosed
	}
	n := min(len(dst), d.list.len())
	for i := range dst[:n] {
		dst[i] = d.list.pop()
	}
	return n, nil
}

// state is how many there are, and whether the endpoint is closed.
func (d *completions) state() (n int, closed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.list.len(), d.closed
}

// close drops what there is. Who sleeps wakes up.
func (d *completions) close() {
	d.mu.Lock()
	d.closed, d.list = true, fifo[Completion]{}
	d.mu.Unlock()
	d.wakeSleeper()
}

// wakeSleeper wakes a sleeper, if there is one. Every change that a sleeper would not
// hear of from a NIC calls it: a completion that somebody else made, a
// connection that is to be armed, the end.
func (d *completions) wakeSleeper() {
	if d.sleepers.Load() > 0 {
		d.event()
	}
}

// event wakes one sleeper, or the next one to be.
func (d *completions) event() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Poll takes up to len(dst) completions, and drives what waits in queues: what can
// be posted is posted. 0 if there are none. With no room in dst it only drives.
func (e *Endpoint) Poll(dst []Completion) (int, error) {
	have, closed := e.done.state()
	if closed {
		return 0, os.ErrClosed
	}
	if have < len(dst) || len(dst) == 0 {
		e.progress()
	} else {
		// There are enough: more, and receives posted anew, would pile up before a
		// program that is slow to take them.
		e.held.post()
	}
	return e.done.take(dst)
}

// progress takes completions, and posts what waits for more.
func (e *Endpoint) progress() {
	for _, q := range e.queues.all() {
		q.poll()
	}
	e.held.post()
}

// held are connections with operations of which the NIC is told by the next Poll (FlagMore).
type held struct {
	some  atomic.Bool
	mu    sync.Mutex
	conns []*conn
	spare []*conn // memory of an earlier list
}

func (h *held) add(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns = append(h.conns, c)
	h.some.Store(true)
}

// post tells the NIC.
func (h *held) post() {
	if !h.some.Load() {
		return
	}
	h.mu.Lock()
	conns := h.conns
	h.conns, h.spare = h.spare, nil
	h.some.Store(false)
	h.mu.Unlock()
	for _, c := range conns {
		c.mu.Lock()
		c.holding = false
		c.kick()
		c.mu.Unlock()
	}
	clear(conns)
	h.mu.Lock()
	h.spare = conns[:0]
	h.mu.Unlock()
}

// Wait waits until there is at least one completion, or ctx ends, whose error it
// then returns: what is under way goes on. It polls for what comes at once, and
// then sleeps until a NIC raises an event. Several goroutines may wait; each
// completion goes to one of them.
func (e *Endpoint) Wait(ctx context.Context, dst []Completion) (int, error) {
	if len(dst) == 0 {
		return 0, nil
	}
	slept := false
	for busy := (spin.Wait{}); ; {
		n, err := e.Poll(dst)
		if n == 0 && err == nil {
			err = ctx.Err()
		}
		if n > 0 || err != nil {
			if slept {
				e.done.wakeSleeper() // who leaves may have taken the event for which the queues were armed
			}
			return n, err
		}
		if busy.Over() {
			slept = true
			e.sleep(ctx)
		}
	}
}

// sleep returns when there may be a completion, or ctx has ended.
func (e *Endpoint) sleep(ctx context.Context) {
	queues := e.queues.list.Load()
	for _, q := range e.queues.all() {
		q.arm()
	}
	e.progress() // what completed before raises no event
	e.done.sleepers.Add(1)
	defer e.done.sleepers.Add(-1)
	// What others have done until now they have told no sleeper.
	if n, closed := e.done.state(); n > 0 || closed || e.held.some.Load() || e.queues.list.Load() != queues {
		return
	}
	select {
	case <-e.done.wake:
	case <-ctx.Done():
	}
}

// event wakes one sleeper, or the next one to be.
func (e *Endpoint) event() { e.done.event() }

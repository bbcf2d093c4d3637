// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/fifo"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/spin"
)

// completions are the completions that the program has not taken.
type completions struct {
	wake     chan struct{} // a goroutine that takes its value looks for completions
	sleepers atomic.Int32  // goroutines asleep in Wait

	mu     sync.Mutex
	list   fifo.Queue[operation.Completion]
	closed bool
}

func (d *completions) push(c operation.Completion) {
	d.mu.Lock()
	if !d.closed {
		d.list.Push(c)
	}
	d.mu.Unlock()
	d.wakeSleeper()
}

// take moves completions to dst.
func (d *completions) take(dst []operation.Completion) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0, errs.Closed("endpoint")
	}
	n := min(len(dst), d.list.Len())
	for i := range dst[:n] {
		dst[i] = d.list.Pop()
	}
	return n, nil
}

// state returns the number of completions, and whether the endpoint is closed.
func (d *completions) state() (n int, closed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.list.Len(), d.closed
}

// close drops all completions, and wakes a goroutine that sleeps.
func (d *completions) close() {
	d.mu.Lock()
	d.closed, d.list = true, fifo.Queue[operation.Completion]{}
	d.mu.Unlock()
	d.wakeSleeper()
}

// wakeSleeper wakes a sleeping goroutine, if there is one. Every change that a NIC does not
// report calls it: a completion that another goroutine has made, a connection whose queue is
// to be armed, and the end.
func (d *completions) wakeSleeper() {
	if d.sleepers.Load() > 0 {
		d.event()
	}
}

// event wakes one sleeping goroutine, or the next one to sleep.
func (d *completions) event() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Poll takes up to len(dst) completions, and returns their number, 0 if there are none. It
// also posts operations that wait in queues, as far as possible. If dst is empty it does only
// that.
func (e *Endpoint) Poll(dst []operation.Completion) (int, error) {
	have, closed := e.done.state()
	if closed {
		return 0, e.isClosed()
	}
	if have < len(dst) || len(dst) == 0 {
		e.progress()
	} else {
		// There are enough completions. More of them, and new receives, would pile up if the
		// program takes them slowly.
		e.held.post()
	}
	return e.done.take(dst)
}

// progress takes completions from the NIC, and posts operations that waited for room.
func (e *Endpoint) progress() {
	for _, q := range e.queues.all() {
		q.poll()
	}
	e.held.post()
}

// held are connections with operations that the next Poll posts (FlagMore).
type held struct {
	some  atomic.Bool
	mu    sync.Mutex
	conns []*Conn
	spare []*Conn // memory of an earlier list
}

func (h *held) add(c *Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns = append(h.conns, c)
	h.some.Store(true)
}

// post posts the held operations.
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

// Wait waits until there is at least one completion, and takes up to len(dst) of them. If ctx
// ends first it returns ctx's error; operations under way continue. It polls for a short time,
// and then sleeps until a NIC raises an event. Several goroutines may wait; each completion
// goes to one of them.
func (e *Endpoint) Wait(ctx context.Context, dst []operation.Completion) (int, error) {
	if len(dst) == 0 {
		return 0, nil
	}
	slept := false
	for busy := (spin.Wait{}); ; {
		n, err := e.Poll(dst)
		if n == 0 && err == nil {
			err = errs.Ended(ctx)
		}
		if n > 0 || err != nil {
			if slept {
				e.done.wakeSleeper() // this goroutine may have taken the event for which the queues were armed
			}
			return n, err
		}
		if busy.Over() {
			slept = true
			e.sleep(ctx)
		}
	}
}

// sleep returns when there may be a completion, or when ctx has ended.
func (e *Endpoint) sleep(ctx context.Context) {
	queues := e.queues.list.Load()
	for _, q := range e.queues.all() {
		q.arm()
	}
	e.progress() // a completion before arming raises no event
	e.done.sleepers.Add(1)
	defer e.done.sleepers.Add(-1)
	// Other goroutines woke no sleeper for changes that they made until now.
	if n, closed := e.done.state(); n > 0 || closed || e.held.some.Load() || e.queues.list.Load() != queues {
		return
	}
	select {
	case <-e.done.wake:
	case <-ctx.Done():
	}
}

// event wakes one sleeping goroutine, or the next one to sleep.
func (e *Endpoint) event() { e.done.event() }

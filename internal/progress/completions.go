// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"sync"
	"sync/atomic"

	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/fifo"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// completions are the completions that the program has not taken.
type completions struct {
	wake     chan struct{} // the goroutine that takes a value of it looks for completions
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

// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/spin"
)

// An endpoint with Background makes progress without calls of the program: a goroutine sleeps
// until a NIC raises an event, and takes completions then. A goroutine that waits for an
// operation takes them itself for a short time, and then sleeps. While such goroutines take
// completions, the background does not ask for events: each would wake it for nothing. It
// checks every lookEvery whether such goroutines remain, and asks for events again if not.
const lookEvery = 100 * time.Microsecond

// background runs until the endpoint is closed.
func (e *Endpoint) background() {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for e.life.Err() == nil {
		looks := e.looks.Load()
		e.progress()
		if e.lookers.Load() == 0 && e.looks.Load() == looks {
			e.sleep(e.life)
			continue
		}
		timer.Reset(lookEvery)
		select {
		case <-timer.C:
		case <-e.asleep:
		case <-e.life.Done():
		}
	}
}

// await waits for a value of one of two channels: it looks for completions for a short time,
// and then sleeps. If ctx ends first, it returns ctx's error. b may be nil.
func (e *Endpoint) await(ctx context.Context, a, b <-chan struct{}) error {
	return Await(ctx, []*Endpoint{e}, a, b)
}

// Await is for the sinks of works of several endpoints.
func Await(ctx context.Context, list []*Endpoint, a, b <-chan struct{}) error {
	if lookFor(list, a, b) {
		return nil
	}
	for _, e := range list {
		select { // the background asks for events now
		case e.asleep <- struct{}{}:
		default:
		}
	}
	select {
	case <-a:
		return nil
	case <-b:
		return nil
	case <-ctx.Done():
		return errs.Ended(ctx)
	}
}

// lookFor looks for completions until there is a value, or for a short time.
func lookFor(list []*Endpoint, a, b <-chan struct{}) bool {
	for _, e := range list {
		e.lookers.Add(1)
		e.looks.Add(1)
	}
	found := lookUntil(list, a, b)
	for _, e := range list {
		e.lookers.Add(-1)
	}
	return found
}

func lookUntil(list []*Endpoint, a, b <-chan struct{}) bool {
	for busy := (spin.Wait{}); ; {
		for _, e := range list {
			e.look()
		}
		if received(a) || b != nil && received(b) {
			return true
		}
		if busy.Over() {
			return false
		}
	}
}

// received takes a value of a channel, if there is one: a select of a single channel is cheap.
func received(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// look takes completions, unless another goroutine is doing that.
func (e *Endpoint) look() {
	for _, q := range e.queues.all() {
		if q.mu.TryLock() {
			q.take()
			q.mu.Unlock()
		}
	}
	e.held.post()
}

// Look takes completions from the NIC, as Poll does, for a caller with sinks.
func (e *Endpoint) Look() {
	e.looks.Add(1)
	e.look()
}

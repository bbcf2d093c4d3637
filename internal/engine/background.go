// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"github.com/gpurdma/gpurdma/internal/spin"
)

// An endpoint with Background makes progress without calls of the program: a goroutine sleeps
// until a NIC raises an event, and takes completions then. A goroutine that waits for an
// operation takes them itself for a short time, and then sleeps. While such goroutines take
// completions, the background does not ask for events: each would wake it for nothing. It
// looks every lookEvery whether somebody still does, and asks for events again if not.
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

// await waits until done says so, which signal also says: it looks for a short time, and then
// sleeps. If ctx ends first, it returns ctx's error. signal may have been sent before.
func (e *Endpoint) await(ctx context.Context, done func() bool, signal <-chan struct{}) error {
	e.lookers.Add(1)
	e.looks.Add(1)
	for busy := (spin.Wait{}); ; {
		e.look()
		if done() {
			e.lookers.Add(-1)
			return nil
		}
		if busy.Over() {
			break
		}
	}
	e.lookers.Add(-1)
	select { // the background asks for events now
	case e.asleep <- struct{}{}:
	default:
	}
	select {
	case <-signal:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitEither waits for a signal of one of two channels.
func (e *Endpoint) awaitEither(ctx context.Context, a, b <-chan struct{}) error {
	e.lookers.Add(1)
	e.looks.Add(1)
	for busy := (spin.Wait{}); ; {
		e.look()
		select {
		case <-a:
			e.lookers.Add(-1)
			return nil
		case <-b:
			e.lookers.Add(-1)
			return nil
		default:
		}
		if busy.Over() {
			break
		}
	}
	e.lookers.Add(-1)
	select {
	case e.asleep <- struct{}{}:
	default:
	}
	select {
	case <-a:
		return nil
	case <-b:
		return nil
	case <-ctx.Done():
		return ctx.Err()
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

// Await waits until done says so, which signal also says, or until ctx ends.
func (e *Endpoint) Await(ctx context.Context, done func() bool, signal <-chan struct{}) error {
	return e.await(ctx, done, signal)
}

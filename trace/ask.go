// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
	"github.com/gpurdma/gpurdma/trace/internal/fault"
)

// wakeAfter wakes all callers that wait for a change when ctx ends, so that each looks at its
// ctx. It takes the lock: a caller that looked at ctx before it ended is waiting by then.
func (t *Tracer) wakeAfter(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.changed.Broadcast()
	})
}

// AwaitRDMA returns when ib_uverbs is loaded and watched. Registrations before that are
// not seen. Its error is ctx's cause, or os.ErrClosed.
func (t *Tracer) AwaitRDMA(ctx context.Context) error {
	stop := t.wakeAfter(ctx)
	defer stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.rdma {
		if t.closed {
			return os.ErrClosed
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t.changed.Wait()
	}
	return nil
}

// Flush waits until the tracer has read all that happened before the call.
func (t *Tracer) Flush(ctx context.Context) error {
	stop := t.wakeAfter(ctx)
	defer stop()
	t.mu.Lock()
	t.asked++
	mine := t.asked
	t.mu.Unlock()
	// The round that this ends may have begun before t.asked was counted. Then the next round
	// answers, which does not wait for an event.
	if err := t.reader.Flush(); err != nil {
		return fault.New("ring buffer", "", "", fault.Errno(err))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for ; t.served < mine; t.changed.Wait() {
		if err := t.over(ctx); err != nil {
			return err
		}
	}
	return nil
}

// over returns the reason to stop waiting, nil while there is none.
func (t *Tracer) over(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case t.failed != nil:
		return t.failed
	case t.closed:
		return os.ErrClosed
	}
	return nil
}

// Events yields what happens, in the order of the kernel, until ctx ends or
// the tracer is closed. There is one queue: two loops share the events. The
// last value has the error, if there is one. The end of ctx is no error.
func (t *Tracer) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		stop := t.wakeAfter(ctx)
		defer stop()
		for {
			events, err := t.next(ctx)
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
			if err != nil {
				if !errors.Is(err, os.ErrClosed) && ctx.Err() == nil {
					yield(Event{}, err)
				}
				return
			}
		}
	}
}

// next waits for events. It returns queued events before the error that ended the tracer.
func (t *Tracer) next(ctx context.Context) ([]Event, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.queue) == 0 {
		if err := t.over(ctx); err != nil {
			return nil, err
		}
		t.changed.Wait()
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	events := t.queue[:1:1]
	t.queue = t.queue[1:]
	return events, nil
}

// Pending takes the events that wait for [Tracer.Events], and waits for no others.
// After [Tracer.Flush] it has all events of what happened before that call.
func (t *Tracer) Pending() []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	events := t.queue
	t.queue = nil
	return events
}

// Refusal explains the newest registration among [Tracer.Pending] that failed. It returns
// nil if there is none: a request that a library refuses never reaches the kernel.
// ibvfd asks what the device can do by registrations without a descriptor, before and after
// a real one. Refusal explains one of these only if no registration with a descriptor failed.
func (t *Tracer) Refusal(ctx context.Context) *Failure {
	if t.Flush(ctx) != nil {
		return nil
	}
	var found *Failure
	known := false
	for _, e := range t.Pending() {
		if e.Kind == Refused && (e.Record.FD >= 0 || !known) {
			f := e.Record.Explain()
			found, known = &f, e.Record.FD >= 0
		}
	}
	return found
}

// Prove returns where the bytes of a registration are: see [placement.Prover]. The error is
// EINVAL if the key has neither LKey, RKey nor Inode.
func (t *Tracer) Prove(ctx context.Context, key placement.Key) (placement.Placement, error) {
	if key.LKey == 0 && key.RKey == 0 && key.Inode == 0 {
		return placement.Placement{}, fault.New("placement key", "neither keys nor an inode", "name the MR or the dma-buf", unix.EINVAL)
	}
	flushed := t.Flush(ctx)
	if flushed != nil && ctx.Err() == nil {
		return placement.Placement{}, flushed
	}
	stop := t.wakeAfter(ctx)
	defer stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if e := t.join.find(key); e != nil {
			t.count(true)
			in := e.in
			if flushed != nil && in.Lost == "" {
				in.Lost = "the last events were not read in time"
			}
			return t.join.decide(in), nil
		}
		const unseen = "no live registration with this key was seen"
		if why := t.loader.Hides(key); why != "" { // no event will show it
			return placement.Placement{Reason: unseen + ": " + why}, nil
		}
		if err := t.over(ctx); err != nil {
			if ctx.Err() == nil {
				return placement.Placement{}, err
			}
			return placement.Placement{Reason: unseen + t.blind()}, nil
		}
		t.changed.Wait()
	}
}

// blind says why the tracer may not have seen a registration.
func (t *Tracer) blind() string {
	switch {
	case !t.rdma:
		return ": ib_uverbs is not loaded"
	case t.lost[abi.EventRecord] > 0:
		return fmt.Sprintf(": %d records were lost", t.lost[abi.EventRecord])
	}
	return "; it may be older than the tracer, or a filter leaves it out"
}

var _ placement.Prover = (*Tracer)(nil)

// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/spin"
)

// PollGood is Poll for callers that take completions with an error by PollFailed: it takes
// completions up to the first one with an error, and reports whether that one is the next.
func (e *Endpoint) PollGood(dst []operation.Completion) (n int, failed bool, err error) {
	if err := e.lookFor(len(dst)); err != nil {
		return 0, false, err
	}
	d := &e.done
	d.mu.Lock()
	for n < len(dst) && d.list.Len() > 0 && d.list.Front().Err == nil {
		dst[n] = d.list.Pop()
		n++
	}
	more := d.list.Len() > 0
	failed = more && d.list.Front().Err != nil
	d.mu.Unlock()
	if more {
		d.wakeSleeper() // the event may have woken this goroutine only
	}
	return n, failed, nil
}

// PollFailed takes the next completion if it has an error.
func (e *Endpoint) PollFailed() (c operation.Completion, ok bool, err error) {
	if err := e.lookFor(1); err != nil {
		return c, false, err
	}
	d := &e.done
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.list.Len() == 0 || d.list.Front().Err == nil {
		return c, false, nil
	}
	return d.list.Pop(), true, nil
}

// lookFor does what Poll does before it takes completions.
func (e *Endpoint) lookFor(want int) error {
	have, closed := e.done.state()
	switch {
	case closed:
		return e.isClosed()
	case have < want || want == 0:
		e.progress()
	default:
		e.held.post()
	}
	return nil
}

// WaitNext waits until there is a completion, and leaves it there. Another goroutine may take it
// first.
func (e *Endpoint) WaitNext(ctx context.Context) error {
	slept := false
	for busy := (spin.Wait{}); ; {
		err := e.lookFor(1)
		n, _ := e.done.state()
		if n == 0 && err == nil {
			err = errs.Ended(ctx)
		}
		if n > 0 || err != nil {
			if slept {
				e.done.wakeSleeper()
			}
			return err
		}
		if busy.Over() {
			slept = true
			e.sleep(ctx)
		}
	}
}

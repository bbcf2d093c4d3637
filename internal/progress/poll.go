// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"

	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/spin"
)

// Poll takes up to len(dst) completions, and returns their number, 0 if there are none. It
// also posts operations that wait in queues, as far as possible. If dst is empty it does only
// that.
func (p *Progress) Poll(dst []operation.Completion) (int, error) {
	have, closed := p.done.state()
	if closed {
		return 0, errs.Closed("endpoint")
	}
	if have < len(dst) || len(dst) == 0 {
		p.Make()
	} else {
		// There are enough completions. If the program takes them slowly, a poll would only add
		// more, and post more receives.
		p.held.post()
	}
	return p.done.take(dst)
}

// Wait waits until there is at least one completion, and takes up to len(dst) of them. If ctx
// ends first it returns ctx's error; operations under way continue. It polls for a short time,
// and then sleeps until a NIC raises an event. Several goroutines may wait; each completion is
// returned to one of them.
func (p *Progress) Wait(ctx context.Context, dst []operation.Completion) (int, error) {
	if len(dst) == 0 {
		return 0, nil
	}
	slept := false
	for busy := (spin.Wait{}); ; {
		n, err := p.Poll(dst)
		if n == 0 && err == nil {
			err = errs.Ended(ctx)
		}
		if n > 0 || err != nil {
			if slept {
				p.done.wakeSleeper() // this goroutine may have taken the event for which the queues were armed
			}
			return n, err
		}
		if busy.Over() {
			slept = true
			p.Sleep(ctx)
		}
	}
}

// PollGood is Poll for callers that take completions with an error by PollFailed: it takes
// completions before the first one with an error, and reports whether that one is the next.
func (p *Progress) PollGood(dst []operation.Completion) (n int, failed bool, err error) {
	if err := p.want(len(dst)); err != nil {
		return 0, false, err
	}
	d := &p.done
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
func (p *Progress) PollFailed() (c operation.Completion, ok bool, err error) {
	if err := p.want(1); err != nil {
		return c, false, err
	}
	d := &p.done
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.list.Len() == 0 || d.list.Front().Err == nil {
		return c, false, nil
	}
	return d.list.Pop(), true, nil
}

// want does what Poll does before it takes completions.
func (p *Progress) want(n int) error {
	have, closed := p.done.state()
	switch {
	case closed:
		return errs.Closed("endpoint")
	case have < n || n == 0:
		p.Make()
	default:
		p.held.post()
	}
	return nil
}

// WaitNext waits until there is a completion, and leaves it there. Another goroutine may take it
// first.
func (p *Progress) WaitNext(ctx context.Context) error {
	slept := false
	for busy := (spin.Wait{}); ; {
		err := p.want(1)
		n, _ := p.done.state()
		if n == 0 && err == nil {
			err = errs.Ended(ctx)
		}
		if n > 0 || err != nil {
			if slept {
				p.done.wakeSleeper()
			}
			return err
		}
		if busy.Over() {
			slept = true
			p.Sleep(ctx)
		}
	}
}

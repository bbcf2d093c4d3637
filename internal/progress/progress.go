// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gpurdma/gpurdma/internal/cqueue"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/spin"
)

// Progress has an endpoint's completions, and its completion queues. Its methods may be called
// from several goroutines at once.
//
// With Run it makes progress without calls of the program: Run sleeps until a NIC raises an
// event, and takes completions then. A goroutine that waits for an operation takes them itself
// for a short time, and then sleeps. While such goroutines take completions, Run does not ask for
// events, which would wake it for nothing. It checks every lookEvery whether such goroutines
// remain, and asks for events again if not.
type Progress struct {
	queues *cqueue.Set
	done   completions
	held   held

	looks   atomic.Uint64 // times that goroutines of the program have looked for completions
	lookers atomic.Int32  // goroutines that look for them now
	asleep  chan struct{} // signals that one has stopped looking
}

const lookEvery = 100 * time.Microsecond

// New returns the progress of an endpoint with that many connections of a NIC.
func New(n *memory.NIC, conns int) *Progress {
	p := &Progress{asleep: make(chan struct{}, 1)}
	p.done.wake = make(chan struct{}, 1)
	p.queues = cqueue.New(n, conns, p.done.event)
	return p
}

// Queues returns the completion queues.
func (p *Progress) Queues() *cqueue.Set { return p.queues }

// Push adds a completion for Poll and Wait.
func (p *Progress) Push(c operation.Completion) { p.done.push(c) }

// Wake wakes a sleeping goroutine, if there is one. Every change that a NIC does not report calls
// it, such as a connection whose queue is to be armed.
func (p *Progress) Wake() { p.done.wakeSleeper() }

// Stop drops all completions: Poll and Wait return errs.Closed("endpoint") from now on.
func (p *Progress) Stop() { p.done.close() }

// Hold makes the next Poll post the operations of a connection that wait for more.
func (p *Progress) Hold(c Holding) { p.held.add(c) }

// Sleepers returns the number of goroutines that sleep until there is a completion.
func (p *Progress) Sleepers() int { return int(p.done.sleepers.Load()) }

// Untaken returns the number of completions that the program has not taken.
func (p *Progress) Untaken() int {
	n, _ := p.done.state()
	return n
}

// Run makes progress until life ends.
func (p *Progress) Run(life context.Context) {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for life.Err() == nil {
		looks := p.looks.Load()
		p.Make()
		if p.lookers.Load() == 0 && p.looks.Load() == looks {
			p.Sleep(life)
			continue
		}
		timer.Reset(lookEvery)
		select {
		case <-timer.C:
		case <-p.asleep:
		case <-life.Done():
		}
	}
}

// Make takes completions from the NIC, and posts operations that waited for room or for more.
func (p *Progress) Make() {
	for _, q := range *p.queues.All() {
		q.Poll()
	}
	p.held.post()
}

// Look takes completions from the NIC, as Poll does, for a caller with sinks.
func (p *Progress) Look() {
	p.looks.Add(1)
	p.look()
}

// look takes completions, unless another goroutine is taking them.
func (p *Progress) look() {
	for _, q := range *p.queues.All() {
		q.TryPoll()
	}
	p.held.post()
}

// Await is Await for one endpoint.
func (p *Progress) Await(ctx context.Context, a, b <-chan struct{}) error {
	return Await(ctx, []*Progress{p}, a, b)
}

// Await waits for a value of one of two channels, which the completions of several endpoints
// give: it looks for completions for a short time, and then sleeps. If ctx ends first, it returns
// ctx's error. b may be nil.
func Await(ctx context.Context, list []*Progress, a, b <-chan struct{}) error {
	if Look(list, signals{a, b}) {
		return nil
	}
	Asleep(list)
	select {
	case <-a:
		return nil
	case <-b:
		return nil
	case <-ctx.Done():
		return errs.Ended(ctx)
	}
}

// Asleep makes the Run goroutines of endpoints ask for events again, because the caller stops
// looking.
func Asleep(list []*Progress) {
	for _, p := range list {
		select {
		case p.asleep <- struct{}{}:
		default:
		}
	}
}

// An End is what a goroutine waits for.
type End interface {
	Ended() bool // asked after each look for completions
}

// Look looks for completions until the end has come, or for a short time.
func Look(list []*Progress, end End) bool {
	for _, p := range list {
		p.lookers.Add(1)
		p.looks.Add(1)
	}
	found := lookUntil(list, end)
	for _, p := range list {
		p.lookers.Add(-1)
	}
	return found
}

func lookUntil(list []*Progress, end End) bool {
	for busy := (spin.Wait{}); ; {
		for _, p := range list {
			p.look()
		}
		if end.Ended() {
			return true
		}
		if busy.Over() {
			return false
		}
	}
}

// signals is the End that is a value of one of two channels; b may be nil.
type signals struct{ a, b <-chan struct{} }

// Ended takes a value.
func (s signals) Ended() bool { return received(s.a) || s.b != nil && received(s.b) }

// received takes a value of a channel, if there is one: a select of a single channel is cheap.
func received(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Sleep returns when there may be a completion, or when ctx has ended.
func (p *Progress) Sleep(ctx context.Context) {
	queues := p.queues.All()
	for _, q := range *queues {
		q.Arm()
	}
	p.Make() // a completion before arming raises no event
	p.done.sleepers.Add(1)
	defer p.done.sleepers.Add(-1)
	// For earlier changes other goroutines have woken no sleeper.
	if n, closed := p.done.state(); n > 0 || closed || p.held.some.Load() || p.queues.All() != queues {
		return
	}
	select {
	case <-p.done.wake:
	case <-ctx.Done():
	}
}

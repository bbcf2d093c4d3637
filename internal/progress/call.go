// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// Call is an operation that one goroutine waits for. It is reused.
type Call struct {
	state  atomic.Int32
	signal chan struct{} // gets one value when a call that sleeps has ended
	value  uint64
	err    error
}

// The states of a call.
const (
	looks     int32 = iota // the goroutine polls
	sleeps                 // it waits for the signal
	ended                  // the operation has completed
	abandoned              // the context has ended before
)

var calls = sync.Pool{New: func() any { return &Call{signal: make(chan struct{}, 1)} }}

// NewCall returns a call, which Result or Free recycles. Its operation's sink is Calls, and the
// operation's context is the call.
func NewCall() *Call { return calls.Get().(*Call) }

// Free recycles a call whose operation was not posted.
func (x *Call) Free() {
	x.state.Store(looks)
	x.value, x.err = 0, nil
	calls.Put(x)
}

// Ended reports whether the operation has completed.
func (x *Call) Ended() bool { return x.state.Load() == ended }

// Wait waits until the operation has completed. If ctx ends first, it returns ctx's error, and a
// call of Abandon must follow.
func (x *Call) Wait(ctx context.Context, list []*Progress) error {
	if Look(list, x) || !x.state.CompareAndSwap(looks, sleeps) {
		return nil
	}
	Asleep(list)
	select {
	case <-x.signal:
		return nil
	case <-ctx.Done():
		return errs.Ended(ctx)
	}
}

// Abandon gives up a call after an error of Wait: its completion recycles it. It returns false if
// the operation has completed meanwhile.
func (x *Call) Abandon() bool {
	if x.state.CompareAndSwap(sleeps, abandoned) {
		return true
	}
	<-x.signal
	return false
}

// Result returns the result of a call that has ended, and recycles it.
func (x *Call) Result() (value uint64, err error) {
	value, err = x.value, x.err
	x.Free()
	return value, err
}

// Calls is the sink of calls.
type Calls struct{}

// Complete ends a call.
func (Calls) Complete(c operation.Completion) {
	x := c.Context.(*Call)
	x.value, x.err = c.Value, c.Err
	switch x.state.Swap(ended) {
	case sleeps:
		x.signal <- struct{}{}
	case abandoned:
		x.Free()
	}
}

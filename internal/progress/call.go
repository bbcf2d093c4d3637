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
	looks     int32 = iota // its goroutine polls
	sleeps                 // its goroutine waits for the signal
	ended                  // the operation has completed
	abandoned              // the context has ended before the operation
)

// Calls are the calls of a connection, and the sink of their operations. The zero value is usable.
type Calls struct {
	spare atomic.Pointer[Call] // the call that was freed last; a connection mostly has one at a time
}

var calls = sync.Pool{New: func() any { return &Call{signal: make(chan struct{}, 1)} }}

// New returns a call, which Result or Free recycles. The context of its operation is the call.
func (c *Calls) New() *Call {
	if x := c.spare.Swap(nil); x != nil {
		return x
	}
	return calls.Get().(*Call)
}

// Free recycles a call whose operation was not posted.
func (c *Calls) Free(x *Call) {
	x.state.Store(looks)
	x.value, x.err = 0, nil
	if !c.spare.CompareAndSwap(nil, x) {
		calls.Put(x)
	}
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
func (c *Calls) Result(x *Call) (value uint64, err error) {
	value, err = x.value, x.err
	c.Free(x)
	return value, err
}

// Complete ends a call.
func (c *Calls) Complete(done operation.Completion) {
	x := done.Context.(*Call)
	x.value, x.err = done.Value, done.Err
	switch x.state.Swap(ended) {
	case sleeps:
		x.signal <- struct{}{}
	case abandoned:
		c.Free(x)
	}
}

// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"sync"
	"sync/atomic"

	"github.com/gpurdma/gpurdma/internal/operation"
)

// call is a blocking operation. It is reused.
type call struct {
	abandoned atomic.Bool   // set by the first of the two: the waiting goroutine that gives up, or the completion
	signal    chan struct{} // gets one value when it has ended, unless it was abandoned before
	value     uint64
	err       error
}

var callPool = sync.Pool{New: func() any { return &call{signal: make(chan struct{}, 1)} }}

func newCall() *call { return callPool.Get().(*call) }

// free recycles a call that was not posted, or has ended.
func (x *call) free() {
	x.abandoned.Store(false)
	x.value, x.err = 0, nil
	callPool.Put(x)
}

// abandon gives up a call whose context has ended; false if the call has ended.
func (x *call) abandon() bool { return x.abandoned.CompareAndSwap(false, true) }

// calls is the sink of calls.
type calls struct{}

// Complete ends a call.
func (calls) Complete(c operation.Completion) {
	x := c.Context.(*call)
	x.value, x.err = c.Value, c.Err
	if x.abandon() {
		x.signal <- struct{}{}
		return
	}
	x.free()
}

// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"os"
	"runtime"
	"time"
)

// Completion is an operation that has ended, well or not.
type Completion struct {
	Context any // as given to the operation
	Op      Op
	Peer    Peer
	Len     int64  // bytes moved; for a receive, as many as came
	Data    uint32 // the peer's data, if Flags has FlagRemoteCQData
	Flags   Flags
	Err     error // nil, or an *OpError
}

// Poll takes up to len(dst) completions, and drives what waits in queues. 0 if
// there are none.
func (e *Endpoint) Poll(dst []Completion) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return 0, os.ErrClosed
	}
	if e.done.len() < len(dst) {
		e.progress()
	}
	n := min(len(dst), e.done.len())
	for i := range dst[:n] {
		dst[i] = e.done.pop()
	}
	return n, nil
}

func (e *Endpoint) progress() {
	for _, p := range e.peers {
		if p != nil && p.conn != nil {
			p.conn.progress()
		}
	}
}

// How Wait waits: spinning for what comes at once, then with short sleeps.
const (
	waitSpin  = 200 * time.Microsecond
	waitSleep = 20 * time.Microsecond
)

// Wait polls until there is at least one completion, or ctx ends, whose error it
// then returns: what is under way goes on.
func (e *Endpoint) Wait(ctx context.Context, dst []Completion) (int, error) {
	if len(dst) == 0 {
		return 0, nil
	}
	var start time.Time
	for i := 0; ; i++ {
		n, err := e.Poll(dst)
		if n > 0 || err != nil {
			return n, err
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		switch {
		case i == 0:
			start = time.Now()
		case i%16 == 0 && time.Since(start) > waitSpin:
			time.Sleep(waitSleep)
		default:
			runtime.Gosched()
		}
	}
}

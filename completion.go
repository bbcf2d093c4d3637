// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"os"

	"github.com/gpurdma/gpurdma/internal/spin"
)

// Completion is an operation that has ended, well or not.
type Completion struct {
	Context any // as given to the operation
	Op      Op
	Peer    Peer
	Len     int64  // bytes moved; for a receive, as many as came; for OpRemoteWrite those of the last work request
	Data    uint32 // the peer's data, if Flags has FlagRemoteCQData
	Flags   Flags
	Err     error // nil, or an *OpError
}

// Poll takes up to len(dst) completions, and drives what waits in queues: what can
// be posted is posted. 0 if there are none. With no room in dst it only drives.
func (e *Endpoint) Poll(dst []Completion) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return 0, os.ErrClosed
	}
	if e.done.len() < len(dst) || len(dst) == 0 {
		e.progress()
	} else {
		// There are enough: more, and receives posted anew, would pile up before a
		// program that is slow to take them.
		e.kick()
	}
	n := min(len(dst), e.done.len())
	for i := range dst[:n] {
		dst[i] = e.done.pop()
	}
	return n, nil
}

func (e *Endpoint) progress() {
	for _, p := range e.peers {
		if p.conn != nil {
			p.conn.progress()
		}
	}
}

// kick posts what waits where there is room already.
func (e *Endpoint) kick() {
	for _, p := range e.peers {
		if p.conn != nil {
			p.conn.kick()
		}
	}
}

// Wait waits until there is at least one completion, or ctx ends, whose error it
// then returns: what is under way goes on. It polls for what comes at once, and
// then sleeps until a NIC raises an event. Several goroutines may wait; each
// completion goes to one of them.
func (e *Endpoint) Wait(ctx context.Context, dst []Completion) (int, error) {
	if len(dst) == 0 {
		return 0, nil
	}
	slept := false
	for busy := (spin.Wait{}); ; {
		n, err := e.Poll(dst)
		if n == 0 && err == nil {
			err = ctx.Err()
		}
		if n > 0 || err != nil {
			if slept {
				e.passOn()
			}
			return n, err
		}
		if busy.Over() {
			slept = true
			e.sleep(ctx)
		}
	}
}

// sleep returns when there may be a completion, or ctx has ended.
func (e *Endpoint) sleep(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.arm() {
		return
	}
	e.sleepers++
	e.mu.Unlock()
	select {
	case <-e.wake:
	case <-ctx.Done():
	}
	e.mu.Lock()
	e.sleepers--
}

// arm has whatever completes from here on wake a sleeper, and reports whether
// there is nothing so far.
func (e *Endpoint) arm() bool {
	for _, p := range e.peers {
		if p.conn == nil || p.conn.link == nil || p.conn.state == dead {
			continue
		}
		if err := p.conn.link.arm(); err != nil {
			p.conn.abort(err)
		}
	}
	if !e.closed {
		e.progress() // what completed before raises no event
	}
	return e.done.len() == 0 && !e.closed
}

// rouse wakes a sleeper, if there is one. Every change that a sleeper would not
// hear of from a NIC calls it: a completion that somebody else made, a
// connection that is to be armed, the end.
func (e *Endpoint) rouse() {
	if e.sleepers > 0 {
		e.event()
	}
}

// event wakes one sleeper, or the next one to be. It may be called without the
// endpoint's mutex.
func (e *Endpoint) event() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// lost ends the connection whose link is broken, also where nobody polls: who waits
// for an offer learns of it, and the peer does. It may be called without the
// endpoint's mutex.
func (e *Endpoint) lost() {
	go func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if !e.closed {
			e.progress()
		}
	}()
}

// passOn wakes another sleeper: who leaves may have taken the event for which
// the queues were armed.
func (e *Endpoint) passOn() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rouse()
}

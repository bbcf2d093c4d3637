// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
	"time"
)

// Answer is what one look at the machine found, in each form that is served.
type Answer struct {
	Metrics *Page  // for Prometheus
	Labels  string // for node-feature-discovery
	Err     error  // why the machine, or a part of it, was not read; the other fields have what was
}

// Look looks at the machine. It may end early when the context does: all callers have left then.
type Look func(context.Context) Answer

// Shared shares looks at a machine among those who ask.
type Shared struct {
	look  Look
	every time.Duration

	turn chan struct{} // held by the look that reads the machine

	mu      sync.Mutex
	last    Answer
	at      time.Time // when last was found; zero before the first look
	running *running
}

// running is a look for which callers wait.
type running struct {
	waiters int
	cancel  context.CancelFunc
	done    chan struct{}
	answer  Answer
}

// Share returns looks whose answers are good for the given time. With 0, each answer is of a look that
// had not ended when it was asked for.
func Share(look Look, every time.Duration) *Shared {
	return &Shared{look: look, every: every, turn: make(chan struct{}, 1)}
}

// Answer returns the last answer if it is good still. Otherwise it waits for the look that is under way, or
// begins one. The error is that of the context.
func (s *Shared) Answer(ctx context.Context) (Answer, error) {
	s.mu.Lock()
	if !s.at.IsZero() && time.Since(s.at) < s.every {
		defer s.mu.Unlock()
		return s.last, nil
	}
	r := s.running
	if r == nil {
		r = s.begin()
	}
	r.waiters++
	s.mu.Unlock()
	select {
	case <-r.done:
		return r.answer, nil
	case <-ctx.Done():
		s.leave(r)
		return Answer{}, ctx.Err()
	}
}

// begin starts a look. The caller holds the lock.
func (s *Shared) begin() *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{cancel: cancel, done: make(chan struct{})}
	s.running = r
	go func() {
		defer cancel()
		// A look that was left may not have ended yet. Two at once would cost twice the memory.
		select {
		case s.turn <- struct{}{}:
		case <-ctx.Done():
			return
		}
		answer := s.look(ctx)
		<-s.turn
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.running != r { // the last of those who waited has left
			return
		}
		s.running, s.last, s.at = nil, answer, time.Now()
		r.answer = answer
		close(r.done)
	}()
	return r
}

// leave ends a look when its last caller has left.
func (s *Shared) leave(r *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.waiters--; r.waiters == 0 && s.running == r {
		s.running = nil
		r.cancel()
	}
}

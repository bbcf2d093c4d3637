// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// held is a look that ends when the test lets it, or when its context ends.
type held struct {
	begun   chan int
	release chan struct{}
	n       atomic.Int64 // looks that began
	now     atomic.Int64 // looks that are under way
	most    atomic.Int64
	left    atomic.Int64 // looks whose context ended
}

func hold() *held { return &held{begun: make(chan int, 100), release: make(chan struct{})} }

func (h *held) look(ctx context.Context) Answer {
	n := h.n.Add(1)
	h.most.Store(max(h.most.Load(), h.now.Add(1)))
	defer h.now.Add(-1)
	h.begun <- int(n)
	select {
	case <-h.release:
	case <-ctx.Done():
		h.left.Add(1)
	}
	return Answer{Labels: fmt.Sprint("look ", n)}
}

// All who wait share one look.
func TestAllShareOneLook(t *testing.T) {
	h := hold()
	s := Share(h.look, 0)
	var all sync.WaitGroup
	for range 500 {
		all.Go(func() {
			answer, err := s.Answer(t.Context())
			if answer.Labels != "look 1" || err != nil {
				t.Errorf("%+v, %v", answer, err)
			}
		})
	}
	<-h.begun
	for waiting := 0; waiting < 500; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		waiting = s.running.waiters
		s.mu.Unlock()
	}
	close(h.release)
	all.Wait()
	if h.n.Load() != 1 {
		t.Errorf("%d looks", h.n.Load())
	}
	if answer, err := s.Answer(t.Context()); answer.Labels != "look 2" || err != nil {
		t.Errorf("%+v, %v", answer, err)
	}
}

// An answer is good for a while.
func TestAnswersAreKept(t *testing.T) {
	h := hold()
	close(h.release)
	s := Share(h.look, time.Hour)
	for range 3 {
		if answer, err := s.Answer(t.Context()); answer.Labels != "look 1" || err != nil {
			t.Errorf("%+v, %v", answer, err)
		}
	}
	s.at = s.at.Add(-2 * time.Hour)
	if answer, err := s.Answer(t.Context()); answer.Labels != "look 2" || err != nil {
		t.Errorf("%+v, %v", answer, err)
	}
}

// A look goes on while a caller waits, and ends when the last one leaves. The next one does not begin before.
func TestALookEndsWithTheLastWhoWaits(t *testing.T) {
	h := hold()
	s := Share(h.look, 0)
	ask := func() (leave context.CancelFunc, answered chan error) {
		ctx, cancel := context.WithCancel(t.Context())
		answered = make(chan error, 1)
		go func() {
			_, err := s.Answer(ctx)
			answered <- err
		}()
		return cancel, answered
	}
	leave1, answered1 := ask()
	<-h.begun
	leave2, answered2 := ask()
	for waiting := 0; waiting < 2; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		waiting = s.running.waiters
		s.mu.Unlock()
	}
	leave1()
	if err := <-answered1; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if h.left.Load() != 0 {
		t.Error("the look ended with the first of two")
	}
	leave2()
	if err := <-answered2; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for range 50 { // clients that come and go
		leave, answered := ask()
		leave()
		<-answered
	}
	leave3, answered3 := ask()
	defer leave3()
	close(h.release)
	if err := <-answered3; err != nil {
		t.Error(err)
	}
	if h.left.Load() == 0 || h.most.Load() != 1 {
		t.Errorf("%d looks ended early, %d at once", h.left.Load(), h.most.Load())
	}
}

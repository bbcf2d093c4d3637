// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/verbsstub"
)

// waitable is a scripted CQ with events.
func waitable(t *testing.T) (*script, *CQ, *scriptCQ) {
	t.Helper()
	s := newScript()
	pd := scripted(t, s, &kernel{reg: always(0)})
	cq, err := pd.Context().CreateCQWith(CQAttr{Depth: 64, Events: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cq.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, cq, cq.v.(*scriptCQ)
}

// complete adds completions as a NIC does.
func (q *scriptCQ) complete(t *testing.T, n int, solicited bool) {
	q.add(n)
	if err := q.raise(solicited); err != nil {
		t.Error(err)
	}
}

// A completion that comes between the last poll and the arming raises no event,
// and is not lost.
func TestWaitLosesNoCompletion(t *testing.T) {
	_, cq, q := waitable(t)
	wc := make([]WC, 8)
	q.beforeArm = func() { q.complete(t, 1, false) }
	if n, err := cq.Wait(t.Context(), wc); n != 1 || err != nil {
		t.Fatalf("%d, %v; want the completion from before the arming", n, err)
	}
	q.beforeArm = nil
	// Now it is armed: the next completion's event ends the next wait, at once
	// or after it began.
	var all sync.WaitGroup
	for i := range 3 * ackBatch {
		all.Go(func() { q.complete(t, 1, false) })
		if n, err := cq.Wait(t.Context(), wc[:1]); n != 1 || err != nil {
			t.Fatalf("completion %d: %d, %v", i, n, err)
		}
		all.Wait()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.taken-q.done >= ackBatch || q.done%ackBatch != 0 {
		t.Errorf("%d events acknowledged of %d; want batches of %d", q.done, q.taken, ackBatch)
	}
}

// Completions that are there already are taken without the channel.
func TestWaitTakesWhatIsThere(t *testing.T) {
	_, cq, q := waitable(t)
	q.complete(t, 5, false)
	wc := make([]WC, 8)
	if n, err := cq.Wait(t.Context(), wc); n != 5 || err != nil || q.arms != 0 {
		t.Errorf("%d, %v after arming %d times; want 5 without", n, err, q.arms)
	}
	if n, err := cq.Wait(t.Context(), nil); n != 0 || err != nil {
		t.Errorf("no room: %d, %v", n, err)
	}
}

// WaitSolicited arms for solicited completions, Wait for all; a queue that is armed
// for all is not armed for less.
func TestWaitSolicited(t *testing.T) {
	_, cq, q := waitable(t)
	wc := make([]WC, 8)
	// until lets a wait arm, and ends it.
	until := func(wait func(context.Context, []WC) (int, error), want notify) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := wait(ctx, wc)
			ended <- err
		}()
		for armed, _ := q.State(); armed != want; armed, _ = q.State() {
			runtime.Gosched()
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	until(cq.WaitSolicited, notifySolicited)
	q.complete(t, 2, false)
	if armed, _ := q.State(); armed != notifySolicited {
		t.Fatalf("an unsolicited completion raised an event: armed for %v", armed)
	}
	q.complete(t, 1, true)
	if n, err := cq.WaitSolicited(t.Context(), wc); n != 3 || err != nil {
		t.Errorf("%d, %v; want the solicited one and the two before it", n, err)
	}
	until(cq.WaitSolicited, notifySolicited) // past the event of those three
	until(cq.Wait, notifyAny)
	until(cq.WaitSolicited, notifyAny)
	if _, arms := q.State(); arms != 3 {
		t.Errorf("armed %d times, want 3", arms)
	}
}

// A wait ends with its context, and the next one is not harmed by that.
func TestWaitEndsWithContext(t *testing.T) {
	s, cq, q := waitable(t)
	wc := make([]WC, 1)
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := cq.Wait(ctx, wc)
			ended <- err
		}()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("%v, want Canceled", err)
		}
	}
	if _, arms := q.State(); arms > 1 {
		t.Errorf("armed %d times for one event", arms)
	}
	q.complete(t, 1, false)
	if n, err := cq.Wait(t.Context(), wc); n != 1 || err != nil {
		t.Errorf("after the cancelled ones: %d, %v", n, err)
	}
	s.failWith("arm", unix.EIO)
	q.complete(t, 1, false) // its event is for the arming before
	if n, err := cq.Wait(t.Context(), wc); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if _, err := cq.Wait(t.Context(), wc); !errors.Is(err, unix.EIO) {
		t.Errorf("arming fails: %v", err)
	}
	s.failWith("arm", nil)
	s.failWith("cq event", unix.EIO)
	if _, err := cq.Wait(t.Context(), wc); !errors.Is(err, unix.EIO) {
		t.Errorf("the channel fails: %v", err)
	}
	s.failWith("cq event", nil)
}

// Close ends every wait; a Close that fails ends none.
func TestWaitEndsWithClose(t *testing.T) {
	s, cq, q := waitable(t)
	const waiters = 8
	errs := make(chan error, waiters)
	for range waiters {
		go func() {
			_, err := cq.Wait(t.Context(), make([]WC, 1))
			errs <- err
		}()
	}
	s.failWith("destroyCQ", unix.EBUSY)
	for range 20 {
		if err := cq.Close(); !errors.Is(err, unix.EBUSY) {
			t.Fatal(err)
		}
	}
	s.failWith("destroyCQ", nil)
	q.complete(t, 1, false)
	if err := <-errs; err != nil {
		t.Errorf("a waiter after a Close that failed: %v", err)
	}
	if err := cq.Close(); err != nil {
		t.Fatal(err)
	}
	for range waiters - 1 {
		if err := <-errs; !errors.Is(err, os.ErrClosed) {
			t.Errorf("a waiter after Close: %v", err)
		}
	}
	if _, err := cq.WaitSolicited(t.Context(), make([]WC, 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Wait on a closed CQ: %v", err)
	}
}

// The steps of Wait by themselves: an event comes for what completes after the
// arming, once, and takes no completion.
func TestArmAndWaitEvent(t *testing.T) {
	s, cq, q := waitable(t)
	wc := make([]WC, 8)
	q.complete(t, 1, false)
	for range 2 {
		if err := cq.Arm(); err != nil {
			t.Fatal(err)
		}
	}
	if _, arms := q.State(); arms != 1 {
		t.Errorf("armed %d times for one event", arms)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := cq.WaitEvent(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("for what completed before the arming: %v", err)
	}
	for i := range 3 * ackBatch {
		if err := cq.Arm(); err != nil {
			t.Fatal(err)
		}
		q.complete(t, 1, false)
		if err := cq.WaitEvent(t.Context()); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
		if i%4 == 0 {
			if _, err := cq.Poll(wc); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A poll in between leaves an event without completions.
	if err := cq.Arm(); err != nil {
		t.Fatal(err)
	}
	q.complete(t, 1, false)
	for n := 1; n > 0; {
		var err error
		if n, err = cq.Poll(wc); err != nil {
			t.Fatal(err)
		}
	}
	if err := cq.WaitEvent(t.Context()); err != nil {
		t.Error(err)
	}
	s.failWith("arm", unix.EIO)
	if err := cq.Arm(); !errors.Is(err, unix.EIO) {
		t.Errorf("arming fails: %v", err)
	}
	s.failWith("arm", nil)

	ended := make(chan error)
	go func() { ended <- cq.WaitEvent(t.Context()) }()
	if err := cq.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := cq.Arm(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Arm after Close: %v", err)
	}
}

func TestWaitWithoutEvents(t *testing.T) {
	s := newScript()
	pd := scripted(t, s, &kernel{reg: always(0)})
	if _, err := pd.Context().CreateCQWith(CQAttr{Depth: 1, Vector: -1}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("vector -1: %v", err)
	}
	s.failWith("completion array", unix.ENOMEM)
	if _, err := pd.Context().CreateCQWith(CQAttr{Depth: 1, Events: true}); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("no array: %v", err)
	}
	s.failWith("completion array", nil)
	stub := verbsstub.NewCQ(0, 0, verbsstub.Completion{})
	defer stub.Free()
	q, err := newCompletionQueue(stub.Ptr(), verbsstub.NumberedPoll(), 3)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Free()
	cq := &CQ{ctx: pd.Context()}
	cq.poll.q = q
	_, err = cq.Wait(t.Context(), make([]WC, 1))
	for name, err := range map[string]error{"Wait": err, "Arm": cq.Arm(), "WaitEvent": cq.WaitEvent(t.Context())} {
		if !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("%s without a channel: %v", name, err)
		}
	}
}

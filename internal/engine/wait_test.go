// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/rma"
)

// asleep waits until that many goroutines sleep in e's Wait.
func asleep(e *Endpoint, n int) {
	for {
		if e.Sleepers() >= n {
			return
		}
		runtime.Gosched()
	}
}

// waited is the result of a Wait.
type waited struct {
	operation.Completion
	n   int
	err error
}

// waiting calls Wait in a goroutine.
func waiting(ctx context.Context, e *Endpoint) chan waited {
	ended := make(chan waited, 1)
	go func() {
		var c [1]operation.Completion
		n, err := e.Wait(ctx, c[:])
		ended <- waited{c[0], n, err}
	}()
	return ended
}

func (w *world) got(ended chan waited, op operation.Kind, context any) {
	w.t.Helper()
	if c := <-ended; c.n != 1 || c.err != nil || c.Err != nil || c.Op != op || c.Context != context {
		w.t.Fatalf("%+v, want a good %v with context %v", c, op, context)
	}
}

// While a goroutine sleeps in Wait, the operations of separate calls are posted one by one. A caller
// that posts on a connection posts the last one itself, and they go to the NIC together.
func TestPostTogether(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a.nic, 64), hostKind.make(t, w.b.nic, 64)
	rb := w.share(theirs.All(), allAccess)
	ended := waiting(limited(t), w.a)
	asleep(w.a, 1)
	w.ok(w.a.WriteMsg(rma.Msg{Local: []memory.Span{mine.All()}, Peer: w.ab, Remote: []memory.RemoteSpan{rb.All()}, Context: 1}, operation.FlagMore))
	w.got(ended, operation.Write, 1)

	c := w.a.connTo(w.ab)
	post := func(context any, flags operation.Flags) {
		o, err := c.NewWork(operation.Write, flags, context, nil)
		w.ok(err)
		from, to := mine.All(), rb.All()
		w.ok(o.AddLocal(&from))
		w.ok(o.AddRemote(&to))
		w.ok(o.Prepare())
		_, err = c.Works.Post(o)
		w.ok(err)
	}
	ended = waiting(limited(t), w.a)
	asleep(w.a, 1)
	post(2, operation.FlagMore)
	post(3, operation.FlagMore)
	if n := len(c.Works.State().Link.(*fakeLink).Posted(rc.WriteQueue)); n != 0 {
		t.Errorf("%d work requests are posted before the last", n)
	}
	select {
	case x := <-ended:
		t.Fatalf("%+v before the last is posted", x)
	default:
	}
	post(4, 0)
	w.got(ended, operation.Write, 2)
	w.done(w.a, operation.Write, 3)
	w.done(w.a, operation.Write, 4)
}

func TestWaitSleeps(t *testing.T) { testWaitSleeps(t, inMemory(t)) }

// Every event that Wait reports wakes a sleeping goroutine.
func testWaitSleeps(t *testing.T, s setting) {
	w := s.world(t, EndpointOptions{})
	ctx := limited(t)
	mine, theirs := hostKind.make(t, w.a.nic, 64), hostKind.make(t, w.b.nic, 64)
	rb := w.share(theirs.All(), allAccess)

	for i := range 20 {
		w.ok(w.b.Recv(theirs.All(), w.ba, i))
		ended := waiting(ctx, w.b)
		asleep(w.b, 1)
		w.ok(w.a.Send(mine.All(), w.ab, i))
		w.done(w.a, operation.Send, i)
		w.got(ended, operation.Recv, i)
	}

	// Operations that other goroutines post while one sleeps, with and without FlagMore.
	for i, flags := range []operation.Flags{0, operation.FlagMore} {
		ended := waiting(ctx, w.a)
		asleep(w.a, 1)
		w.ok(w.a.WriteMsg(rma.Msg{Local: []memory.Span{mine.All()}, Peer: w.ab, Remote: []memory.RemoteSpan{rb.All()}, Context: i}, flags))
		w.got(ended, operation.Write, i)
	}

	// A new connection.
	late := s.endpoint(t, EndpointOptions{AutoReceive: 4})
	ended := waiting(ctx, late)
	asleep(late, 1)
	peer := must(w.a.Connect(ctx, must(late.Listen("127.0.0.1:0"))(t).String()))(t)
	from := must(late.Accept(ctx))(t)
	to := must(late.Share(from, hostKind.make(t, late.nic, 64).All(), allAccess))(t)
	w.ok(late.Offer(ctx, from, to))
	w.ok(w.a.WriteData(mine.All(), 7, peer, must(w.a.Offered(ctx, peer))(t).All(), "data"))
	w.done(w.a, operation.Write, "data")
	if c := <-ended; c.n != 1 || c.err != nil || c.Err != nil || c.Op != operation.RemoteWrite || c.Data != 7 {
		t.Errorf("%+v", c)
	}

	// The end of the context, of the peer, and of the endpoint.
	gone, cancel := context.WithCancel(ctx)
	ended = waiting(gone, w.b)
	asleep(w.b, 1)
	cancel()
	if c := <-ended; c.n != 0 || !errors.Is(c.err, context.Canceled) {
		t.Errorf("cancelled: %+v", c)
	}
	w.ok(w.a.Recv(mine.All(), w.ab, "never"))
	ended = waiting(ctx, w.a)
	asleep(w.a, 1)
	several := []chan waited{waiting(ctx, w.b), waiting(ctx, w.b), waiting(ctx, w.b)}
	asleep(w.b, len(several))
	if err := w.b.Close(); err != nil {
		t.Error(err)
	}
	for _, ended := range several {
		if c := <-ended; !errors.Is(c.err, os.ErrClosed) {
			t.Errorf("a waiter of a closed endpoint: %+v", c)
		}
	}
	if c := <-ended; c.n != 1 || c.Context != "never" || !errors.Is(c.Err, ErrNotConnected) {
		t.Errorf("the peer is gone: %+v", c)
	}
}

func TestWaitOfMany(t *testing.T) { testWaitOfMany(t, inMemory(t), 400) }

// Several goroutines wait: each completion goes to one of them, and none is lost, however they
// sleep, poll and give up.
func testWaitOfMany(t *testing.T, s setting, n int) {
	w := s.world(t, EndpointOptions{RecvDepth: n})
	mine, theirs := hostKind.make(t, w.a.nic, 64), hostKind.make(t, w.b.nic, 64)
	ctx, enough := context.WithCancel(limited(t))
	defer enough()
	const waiters = 4
	got := make(chan int, n)
	var all sync.WaitGroup
	for i := range waiters {
		all.Go(func() {
			list := make([]operation.Completion, 1+i%2)
			for ctx.Err() == nil {
				// One goroutine gives up again and again.
				brief, cancel := context.WithCancel(ctx)
				if i == 0 {
					go cancel()
				}
				k, err := w.b.Wait(brief, list)
				cancel()
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				for _, c := range list[:k] {
					if c.Err != nil {
						t.Error(c.Err)
					}
					got <- c.Context.(int)
				}
			}
		})
	}
	seen := make([]bool, n)
	for i := range n {
		if i%20 == 0 {
			asleep(w.b, waiters-2) // all but the one that gives up, and one more that is between two sleeps
		}
		w.ok(w.b.Recv(theirs.All(), w.ba, i))
		w.ok(w.a.Send(mine.All(), w.ab, i))
		w.done(w.a, operation.Send, i)
	}
	for range n {
		if i := <-got; seen[i] {
			t.Errorf("completion %d came twice", i)
		} else {
			seen[i] = true
		}
	}
	enough()
	all.Wait()
}

// A queue that raises no more events ends its connection, and no goroutine waits for ever.
func TestWaitWithoutEvents(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	mine := hostKind.make(t, w.a.nic, 64)
	l := w.a.linkTo(w.ab)
	l.Queue().StopEvents(os.ErrInvalid)
	w.ok(w.a.Recv(mine.All(), w.ab, "never"))
	if c := w.wait(w.a); c.Context != "never" || !errors.Is(c.Err, ErrNotConnected) {
		t.Errorf("%+v", c)
	}
	if err := w.a.Recv(mine.All(), w.ab, nil); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("the cause: %v", err)
	}
}

// A sleeping goroutine does not poll.
func TestWaitDoesNotPoll(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	l := w.a.linkTo(w.ab)
	polls := l.Queue().Polls
	ctx, cancel := context.WithCancel(limited(t))
	ended := waiting(ctx, w.a)
	asleep(w.a, 1)
	before := polls()
	for range 1000 {
		runtime.Gosched()
	}
	if after := polls(); after != before {
		t.Errorf("polled %d times while asleep", after-before)
	}
	cancel()
	<-ended
}

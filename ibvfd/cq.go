// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
	"github.com/gpurdma/gpurdma/internal/eventfile"
	"github.com/gpurdma/gpurdma/internal/spin"
)

// CQAttr says what kind of completion queue to make.
type CQAttr struct {
	// Depth is how many completions the queue must hold at least: one for each work request that
	// is posted and whose completion is not polled yet. If the queue overruns, the NIC takes it and
	// its queue pairs to the error state.
	Depth int
	// Events makes a completion channel for the queue, which takes a descriptor. Wait needs it.
	Events bool
	// Vector chooses the interrupt of the events, from 0 on.
	Vector int
}

// CQ is a completion queue. A program has three ways to wait for completions. [CQ.PollUntil] polls:
// it has the lowest latency, and keeps a processor busy for the first 200 us. [CQ.Wait] sleeps in
// Go's poller until the NIC raises an event. A program that waits for several queues at once takes
// the steps of Wait: [CQ.Arm], a [CQ.Poll] of each queue, [CQ.WaitEvent].
type CQ struct {
	parent
	ctx  *Context
	v    libibverbs.CQ
	attr CQAttr

	serial uint64 // orders CQs where several are entered

	poll struct { // one poller at a time: the completions pass through one C array
		sync.Mutex
		q     *completionQueue // nil once the CQ is closed
		armed notify
	}
	events  *eventfile.File // nil without
	unacked int             // events; for the goroutine that has the turn of events
}

// notify is what the next event of a CQ is for.
type notify int

const (
	notifyNone notify = iota
	notifySolicited
	notifyAny
)

// ackBatch is how many events are acknowledged at once: each acknowledgement
// takes a lock (ibv_ack_cq_events(3)).
const ackBatch = 128

// cqSerial counts the CQs of the process.
var cqSerial atomic.Uint64

// CreateCQ makes a completion queue for at least depth completions, without
// events. See [Context.CreateCQWith].
func (c *Context) CreateCQ(depth int) (*CQ, error) {
	return c.CreateCQWith(CQAttr{Depth: depth})
}

// CreateCQWith makes a completion queue. The error is EINVAL for a depth or a vector that no device
// has, and otherwise that of ibv_create_cq. The caller closes the queue pairs first, then the queue.
func (c *Context) CreateCQWith(attr CQAttr) (*CQ, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	if attr.Depth < 1 || attr.Depth > 1<<30 || attr.Vector < 0 || attr.Vector > 1<<15 {
		e := failed("ibv_create_cq", c.name, unix.EINVAL)
		e.Detail = fmt.Sprintf("depth %d, vector %d", attr.Depth, attr.Vector)
		e.Remedy = "ask for 1 or more completions, and vector 0"
		return nil, e
	}
	v, err := c.v.CreateCQ(attr.Depth, attr.Vector, attr.Events)
	if err != nil {
		return nil, c.explainCreateCQ(attr, err)
	}
	cq := &CQ{ctx: c, v: v, attr: attr, serial: cqSerial.Add(1)}
	if attr.Events {
		if cq.events, err = eventfile.New(v.ChannelFD(), v.Event); err != nil {
			_ = v.Destroy()
			return nil, failed("poll the completion channel", c.name, err)
		}
	}
	q, err := v.Queue()
	if err != nil {
		if cq.events != nil {
			_ = cq.events.Close()
		}
		_ = v.Destroy()
		return nil, failed("allocate the completion array", c.name, err)
	}
	cq.poll.q = &completionQueue{q}
	c.hold(kindCQ)
	c.objects.add(v.Identity(), cq)
	return cq, nil
}

func (c *Context) explainCreateCQ(attr CQAttr, err error) error {
	e := failed("ibv_create_cq", c.name, err)
	e.Detail = fmt.Sprintf("depth %d", attr.Depth)
	if attr.Vector > 0 {
		e.Detail += fmt.Sprintf(", vector %d", attr.Vector)
		e.Remedy = "vector 0 is always there"
	}
	if a, qerr := c.v.QueryDevice(); qerr == nil && attr.Depth > a.MaxCQE {
		e.Remedy = fmt.Sprintf("the device allows at most %d", a.MaxCQE)
	}
	return e
}

// Poll takes up to len(wc) completions out of the queue, writes them to wc and returns how many
// there were: 0 if none. Each one's Status says whether its work request succeeded. Poll calls C
// once and allocates nothing. The error is os.ErrClosed, or EIO if the provider cannot poll.
func (cq *CQ) Poll(wc []WC) (int, error) {
	cq.poll.Lock()
	defer cq.poll.Unlock()
	if cq.poll.q == nil {
		return 0, os.ErrClosed
	}
	n := cq.poll.q.poll(wc)
	if n < 0 {
		return 0, failed("ibv_poll_cq", cq.ctx.name, unix.EIO)
	}
	return n, nil
}

// pollSleep is how long PollUntil sleeps between polls after the first 200 us, so that a
// kernel thread of a software NIC may run.
const pollSleep = 20 * time.Microsecond

// PollUntil polls until there is at least one completion, and returns as [CQ.Poll] does. If ctx ends
// first, the error is ctx's. PollUntil polls without a pause for 200 us, and then every 20 us, because
// the kernel thread of a software NIC may need the processor. A program that wants no pause calls
// Poll in a loop.
func (cq *CQ) PollUntil(ctx context.Context, wc []WC) (int, error) {
	if len(wc) == 0 {
		return 0, nil
	}
	for busy := (spin.Wait{}); ; {
		n, err := cq.Poll(wc)
		if n > 0 || err != nil {
			return n, err
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if busy.Over() {
			time.Sleep(pollSleep)
		}
	}
}

// Wait sleeps until there is at least one completion, and returns as [CQ.Poll] does. If ctx ends
// first, the error is ctx's; if the queue is closed, os.ErrClosed. A queue made without
// CQAttr.Events answers EOPNOTSUPP. Several goroutines may wait: each completion goes to one of
// them.
func (cq *CQ) Wait(ctx context.Context, wc []WC) (int, error) {
	return cq.waitFor(ctx, wc, notifyAny)
}

// WaitSolicited is Wait, but only a receive whose sender set SendSolicited, or a completion in
// error, wakes it. It then takes all kinds of completions.
func (cq *CQ) WaitSolicited(ctx context.Context, wc []WC) (int, error) {
	return cq.waitFor(ctx, wc, notifySolicited)
}

func (cq *CQ) waitFor(ctx context.Context, wc []WC, mode notify) (int, error) {
	if len(wc) == 0 {
		return 0, nil
	}
	if n, err := cq.Poll(wc); n > 0 || err != nil {
		return n, err // without waiting for the turn
	}
	for {
		if err := cq.turn(ctx); err != nil {
			return 0, err
		}
		n, err := cq.sleep(ctx, wc, mode)
		cq.events.Unlock()
		if n > 0 || !errors.Is(err, eventfile.ErrInterrupted) {
			return n, err
		}
	}
}

// turn takes the turn of events.
func (cq *CQ) turn(ctx context.Context) error {
	if cq.events == nil {
		return cq.noChannel()
	}
	return cq.events.Lock(ctx)
}

func (cq *CQ) noChannel() error {
	e := failed("wait for completions", cq.ctx.name, unix.EOPNOTSUPP)
	e.Detail = "the CQ has no completion channel"
	e.Remedy = "make it with CQAttr.Events, or use PollUntil"
	return e
}

// sleep is Wait for the goroutine that has the turn. A completion that comes before the
// arming raises no event: polling again finds it. A later one raises an event.
func (cq *CQ) sleep(ctx context.Context, wc []WC, mode notify) (int, error) {
	for {
		if err := cq.arm(mode); err != nil {
			return 0, err
		}
		if n, err := cq.Poll(wc); n > 0 || err != nil {
			return n, err // the queue stays armed for the next wait
		}
		if err := cq.event(ctx); err != nil {
			return 0, err
		}
	}
}

// Arm asks the NIC for an event at the next completion, for which [CQ.WaitEvent] waits. A
// completion that came before raises no event, so the caller polls after Arm. Arm leaves a queue
// that is armed as it is. A queue made without CQAttr.Events answers EOPNOTSUPP.
func (cq *CQ) Arm() error {
	if cq.events == nil {
		return cq.noChannel()
	}
	return cq.arm(notifyAny)
}

func (cq *CQ) arm(mode notify) error {
	cq.poll.Lock()
	defer cq.poll.Unlock()
	switch {
	case cq.poll.q == nil:
		return os.ErrClosed
	case cq.poll.armed >= mode:
		return nil
	}
	if err := cq.v.Arm(mode == notifySolicited); err != nil {
		return failed("ibv_req_notify_cq", cq.ctx.name, err)
	}
	cq.poll.armed = mode
	return nil
}

// WaitEvent sleeps until the queue raises an event. The queue is not armed any more then. WaitEvent
// takes no completion, and there may be none, because another goroutine may have polled. Only one
// goroutine sleeps at a time: calls of Wait queue up behind it. The error is ctx's, os.ErrClosed, or
// EOPNOTSUPP for a queue made without CQAttr.Events.
func (cq *CQ) WaitEvent(ctx context.Context) error {
	for {
		if err := cq.turn(ctx); err != nil {
			return err
		}
		err := cq.event(ctx)
		cq.events.Unlock()
		if !errors.Is(err, eventfile.ErrInterrupted) {
			return err
		}
	}
}

// event takes an event, when there is one. The caller has the turn.
func (cq *CQ) event(ctx context.Context) error {
	switch err := cq.events.Wait(ctx); {
	case err == nil:
		cq.poll.Lock()
		cq.poll.armed = notifyNone
		cq.poll.Unlock()
		if cq.unacked++; cq.unacked == ackBatch {
			cq.acknowledge()
		}
		return nil
	case errors.Is(err, eventfile.ErrInterrupted) || ctx.Err() != nil:
		return err
	default:
		return failed("ibv_get_cq_event", cq.ctx.name, err)
	}
}

// acknowledge tells libibverbs that the events were taken: ibv_destroy_cq waits for that.
func (cq *CQ) acknowledge() {
	if cq.unacked > 0 {
		cq.v.Ack(cq.unacked)
		cq.unacked = 0
	}
}

// Attr returns what the queue was made with.
func (cq *CQ) Attr() CQAttr { return cq.attr }

// Close destroys the queue. While queue pairs use it, Close destroys nothing and answers
// [failure.ErrInUse]. Closing again does nothing.
func (cq *CQ) Close() error {
	return cq.close("ibv_destroy_cq", cq.ctx.name, func() error {
		if cq.events != nil {
			cq.events.Interrupt()
		}
		err := cq.destroy()
		if cq.events != nil {
			cq.events.Resume(err == nil)
		}
		return err
	})
}

func (cq *CQ) destroy() error {
	cq.poll.Lock()
	defer cq.poll.Unlock()
	cq.acknowledge()
	if err := cq.v.Destroy(); err != nil {
		return failed("ibv_destroy_cq", cq.ctx.name, err)
	}
	cq.poll.q.Free()
	cq.poll.q = nil
	cq.ctx.objects.remove(cq.v.Identity(), cq)
	cq.ctx.drop(kindCQ)
	return nil
}

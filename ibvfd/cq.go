// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// CQ is a completion queue.
type CQ struct {
	parent
	ctx   *Context
	v     verbsCQ
	depth int

	serial uint64 // orders CQs where several are entered

	poll struct { // one poller at a time: the completions pass through one C array
		sync.Mutex
		q *completionQueue // nil once the CQ is closed
	}
}

// cqSerial counts the CQs of the process.
var cqSerial atomic.Uint64

// CreateCQ makes a completion queue for at least depth completions. A queue
// that overruns kills the queue pairs on it: depth must cover everything
// posted and not yet polled.
func (c *Context) CreateCQ(depth int) (*CQ, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	if depth < 1 || depth > 1<<30 {
		e := failed("ibv_create_cq", c.name, unix.EINVAL)
		e.Detail = fmt.Sprintf("depth %d", depth)
		e.Remedy = "ask for 1 or more completions"
		return nil, e
	}
	v, err := c.v.createCQ(depth)
	if err != nil {
		e := failed("ibv_create_cq", c.name, err)
		e.Detail = fmt.Sprintf("depth %d", depth)
		if a, qerr := c.v.queryDevice(); qerr == nil && depth > a.MaxCQE {
			e.Remedy = fmt.Sprintf("the device allows at most %d", a.MaxCQE)
		}
		return nil, e
	}
	q, err := v.queue()
	if err != nil {
		_ = v.destroy()
		return nil, failed("allocate the completion array", c.name, err)
	}
	c.hold(kindCQ)
	cq := &CQ{ctx: c, v: v, depth: depth, serial: cqSerial.Add(1)}
	cq.poll.q = q
	return cq, nil
}

// Poll takes up to len(wc) completions and returns how many there were, 0 if
// none. It crosses into C once and allocates nothing. Completions come back in
// wc; their Status says whether the work request succeeded.
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

// How PollUntil waits: spinning for the completions that come at once, then
// with short sleeps, so that a kernel thread of a software NIC gets its turn.
const (
	pollSpin  = 200 * time.Microsecond
	pollSleep = 20 * time.Microsecond
)

// PollUntil polls until there is at least one completion, or ctx ends, whose
// error it then returns.
func (cq *CQ) PollUntil(ctx context.Context, wc []WC) (int, error) {
	if len(wc) == 0 {
		return 0, nil
	}
	var start time.Time
	for i := 0; ; i++ {
		n, err := cq.Poll(wc)
		if n > 0 || err != nil {
			return n, err
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		switch {
		case i == 0:
			start = time.Now()
		case i%16 == 0 && time.Since(start) > pollSpin:
			time.Sleep(pollSleep)
		default:
			runtime.Gosched()
		}
	}
}

// Close destroys the queue. It answers [dmabuf.ErrInUse], and destroys
// nothing, while queue pairs use it. Closing again does nothing.
func (cq *CQ) Close() error {
	return cq.close("ibv_destroy_cq", cq.ctx.name, func() error {
		cq.poll.Lock()
		defer cq.poll.Unlock()
		if err := cq.v.destroy(); err != nil {
			return failed("ibv_destroy_cq", cq.ctx.name, err)
		}
		cq.poll.q.free()
		cq.poll.q = nil
		cq.ctx.drop(kindCQ)
		return nil
	})
}

// SPDX-License-Identifier: Apache-2.0

package memnic

import (
	"math"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// wake wakes the goroutine of the queue pair.
func (q *pair) wake() {
	select {
	case q.kicked <- struct{}{}:
	default:
	}
}

// serve carries out the work requests of a queue pair until its link is closed.
func (q *pair) serve() {
	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	for {
		wait, open := q.turn()
		if !open {
			return
		}
		if wait == 0 {
			continue
		}
		timer.Reset(wait)
		select {
		case <-q.kicked:
		case <-timer.C:
		}
	}
}

// forEver is until the goroutine is woken.
const forEver = time.Duration(math.MaxInt64)

// turn carries out at most one work request, and returns how long to wait before the next
// turn. It reports false when the link is closed.
func (q *pair) turn() (wait time.Duration, open bool) {
	q.link.net.mu.Lock()
	defer q.link.net.mu.Unlock()
	if q.link.closed {
		return 0, false
	}
	if q.failed {
		q.flush()
		return forEver, true
	}
	if len(q.sends) == 0 || q.link.end != nil || q.stuck || q.to == 0 {
		return forEver, true
	}
	if left := time.Until(q.until); left > 0 {
		return left, true
	}
	if wait := q.pace(); wait > 0 {
		return q.again(wait), true
	}
	switch o := q.attempt(); o {
	case noAnswer:
		return q.retry(), true
	case noReceive:
		return q.wait(), true
	default:
		q.ended(ibvfd.WCStatus(o))
		return 0, true
	}
}

// retry handles an attempt without an answer.
func (q *pair) retry() time.Duration {
	t := &q.link.times
	if t.timeout == 0 {
		q.stuck = true
		return forEver
	}
	if q.tries++; q.tries > t.retries+1 {
		q.ended(ibvfd.WCRetryExcErr)
		return 0
	}
	return q.again(t.timeout)
}

// wait handles an attempt that found no receive.
func (q *pair) wait() time.Duration {
	t := &q.link.times
	q.tries = 0
	if q.notReady++; t.notReady != retryForEver && q.notReady > t.notReady {
		q.ended(ibvfd.WCRNRRetryExcErr)
		return 0
	}
	peer := q.link.net.pairs[q.to]
	return q.again(peer.link.times.minRNR)
}

func (q *pair) again(d time.Duration) time.Duration {
	q.until = time.Now().Add(d)
	return max(d, 1)
}

// retryForEver is the RNRRetry that stands for no limit.
const retryForEver = 7

// times are the attributes of a connection that concern retries, in the network's time scale.
type times struct {
	timeout  time.Duration // until a retry; 0: there is none
	retries  int
	minRNR   time.Duration // how long a peer waits that found no receive
	notReady int
}

// times returns a connection's, with the defaults of ibvfd.ConnectAttr.
func (n *Network) times(a *ibvfd.ConnectAttr) times {
	value := func(v, instead uint8) int {
		switch v {
		case 0:
			return int(instead)
		case ibvfd.Zero:
			return 0
		}
		return int(v)
	}
	scaled := func(d time.Duration) time.Duration { return max(1, time.Duration(float64(d)*n.opt.scale)) }
	t := times{retries: value(a.RetryCount, 6), notReady: value(a.RNRRetry, retryForEver)}
	if e := value(a.Timeout, 14); e > 0 {
		t.timeout = scaled(tick << min(e, 31))
	}
	t.minRNR = scaled(rnrTimers[value(a.MinRNRTimer, 12)%len(rnrTimers)] * 10 * time.Microsecond)
	return t
}

// tick is the unit of ConnectAttr.Timeout.
const tick = time.Nanosecond << 12

// rnrTimers are the times of enum ib_rnr_timeout (include/rdma/ib_verbs.h), in 10 us.
var rnrTimers = [...]time.Duration{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 1 << 12, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// SPDX-License-Identifier: Apache-2.0

package memnic

import (
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// Queue is a completion queue. It implements rc.CompletionQueue.
type Queue struct {
	net      *Network
	links    []*Link
	depth    int
	wcs      []ibvfd.WC
	event    func()
	armed    bool
	noEvents error
	polls    int
	closed   bool
}

// Queue makes a completion queue. It calls event while it holds the network's mutex. Its events
// do not end before the queue, so it never calls broke.
func (d *Device) Queue(depth int, event func(), _ func(why error)) (rc.CompletionQueue, error) {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if err := d.lost(); err != nil {
		return nil, err
	}
	d.net.open++
	return &Queue{net: d.net, depth: depth, event: event}, nil
}

// Poll takes completions. In manual mode it first carries out the work requests of the links
// on the queue. In live mode a call that finds nothing lets other goroutines run: the program
// may poll in a loop, and the queue pairs may need its processor.
func (q *Queue) Poll(wc []ibvfd.WC) (int, error) {
	n := q.take(wc)
	if n == 0 && !q.net.opt.manual {
		runtime.Gosched()
	}
	return n, nil
}

func (q *Queue) take(wc []ibvfd.WC) int {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	q.polls++
	if q.net.opt.manual {
		for _, l := range slices.Clone(q.links) {
			l.slow--
			for _, p := range l.pairs {
				if l.end == nil && l.slow <= 0 || p.failed {
					p.run()
				}
			}
		}
	}
	k := copy(wc, q.wcs)
	q.wcs = q.wcs[k:]
	return k
}

// Arm makes the next completion raise an event.
func (q *Queue) Arm() error {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	q.armed = q.noEvents == nil
	return q.noEvents
}

// Close closes the queue. It returns EBUSY while there are links on it.
func (q *Queue) Close() error {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	switch {
	case len(q.links) > 0:
		return unix.EBUSY
	case !q.closed:
		q.closed = true
		q.net.open--
	}
	return nil
}

// Depth returns the number of completions that the queue holds.
func (q *Queue) Depth() int { return q.depth }

// Polls returns the number of calls of Poll so far.
func (q *Queue) Polls() int {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	return q.polls
}

// StopEvents makes Arm fail with an error.
func (q *Queue) StopEvents(why error) {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	q.noEvents = why
}

// complete adds a completion, and raises an event if the queue is armed. If the queue overruns,
// the program has made it too short.
func (q *Queue) complete(wc ibvfd.WC) {
	if q.wcs = append(q.wcs, wc); len(q.wcs) > q.depth {
		panic("the completion queue overruns")
	}
	if q.armed {
		q.armed = false
		q.event()
	}
}

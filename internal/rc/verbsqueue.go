// SPDX-License-Identifier: Apache-2.0

package rc

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// verbsQueue is a completion queue of a device of this machine, with a goroutine that waits
// for its events.
type verbsQueue struct {
	cq       *ibvfd.CQ
	event    func()
	broke    func(error)
	listener sync.WaitGroup
}

// Queue makes a completion queue, with a goroutine that waits for its events.
func (d *Verbs) Queue(depth int, event func(), broke func(error)) (CompletionQueue, error) {
	cq, err := d.ctx.CreateCQWith(ibvfd.CQAttr{Depth: depth, Events: true})
	if err != nil {
		return nil, err
	}
	q := &verbsQueue{cq: cq, event: event, broke: broke}
	q.listener.Go(q.listen)
	return q, nil
}

// QueueDepth returns depth, or the device's maximum if that is smaller. Some drivers leave the
// maximum at 0.
func (d *Verbs) QueueDepth(depth int) int {
	if d.attr.MaxCQE > 0 {
		return min(depth, d.attr.MaxCQE)
	}
	return depth
}

// listen passes events on until the queue is closed.
func (q *verbsQueue) listen() {
	for {
		err := q.cq.WaitEvent(context.Background())
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			q.broke(err)
			return
		}
		q.event()
	}
}

func (q *verbsQueue) Poll(wc []ibvfd.WC) (int, error) { return q.cq.Poll(wc) }
func (q *verbsQueue) Arm() error                      { return q.cq.Arm() }

func (q *verbsQueue) Close() error {
	if err := q.cq.Close(); err != nil {
		return err
	}
	q.listener.Wait()
	return nil
}

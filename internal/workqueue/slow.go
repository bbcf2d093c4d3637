// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"context"
	"fmt"
	"sync"

	"github.com/gpurdma/gpurdma/internal/fifo"
)

// slowWorks does the parts of operations that take long. One goroutine copies between staged
// memory and its source, and registers memory into which messages are packed; other goroutines
// wait until sources are ready. Until then the operation waits, and so do the operations posted
// after it. The Queue's mutex guards the fields, and is not held during the slow work.
type slowWorks struct {
	q      *Queue
	list   fifo.Queue[slowWork]
	atWork bool      // a goroutine does the slow work
	waits  int       // works whose sources are not ready
	idle   sync.Cond // signals that there is no goroutine any more
}

// slowWork is a part of an operation that takes long.
type slowWork struct {
	op *Work
	do func(*Work) error
}

// later starts slow work in a goroutine. The caller holds the Queue's mutex.
func (s *slowWorks) later(o *Work, do func(*Work) error) {
	o.busy = true
	s.list.Push(slowWork{o, do})
	if !s.atWork {
		s.atWork = true
		go s.run()
	}
}

// run does the queued work, and ends. The connection's end waits for it.
func (s *slowWorks) run() {
	q := s.q
	q.mu.Lock()
	defer q.mu.Unlock()
	for s.list.Len() > 0 {
		w := s.list.Pop()
		q.mu.Unlock()
		err := w.do(w.op)
		q.mu.Lock()
		w.op.busy = false
		if w.op.err == nil {
			w.op.err = err
		}
		q.deliver()
		q.recv.kick()
		q.send.kick()
	}
	s.atWork = false
	s.idle.Broadcast()
}

// await waits, in a goroutine, until a work's sources may be read.
func (s *slowWorks) await(o *Work) {
	q := s.q
	o.busy = true
	ctx, cancel := context.WithCancel(q.life)
	o.cancel = cancel
	s.waits++
	go func() {
		var err error
		for _, ready := range o.Ready() {
			if err == nil {
				err = ready(ctx)
			}
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		s.waits--
		o.busy = false
		if err != nil && o.err == nil {
			o.err = fmt.Errorf("the source is not ready: %w", err)
		}
		if o.err == nil && o.Staged() && q.state != dead {
			s.later(o, (*Work).Stage)
		}
		q.send.kick()
		q.deliver()
		if s.waits == 0 {
			s.idle.Broadcast()
		}
	}()
}

// rest waits until no slow work is under way. The caller holds the Queue's mutex.
func (s *slowWorks) rest() {
	for s.atWork || s.waits > 0 {
		s.idle.Wait()
	}
}

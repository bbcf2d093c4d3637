// SPDX-License-Identifier: Apache-2.0

package levelzero

import "sync"

// queue is a synchronous command list. Lists are not for several threads at
// once. It is destroyed when its last user lets it go: buffers outlive
// allocators.
type queue struct {
	s  *session
	on string

	mu    sync.Mutex
	list  listHandle
	users int
}

// newQueue makes a list with one user.
func (s *session) newQueue(ctx contextHandle, d Device) (*queue, error) {
	on := d.String()
	l, r := s.drv.list(ctx, d.handle)
	if r != Success {
		return nil, failed("zeCommandListCreateImmediate", on, r, "", "")
	}
	return &queue{s: s, on: on, list: l, users: 1}, nil
}

func (q *queue) get() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.users++
}

func (q *queue) put() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.users--; q.users > 0 {
		return nil
	}
	return failed("zeCommandListDestroy", q.on, q.s.drv.destroyList(q.list), "", "")
}

func (q *queue) do(fn func(listHandle) Result) Result {
	q.mu.Lock()
	defer q.mu.Unlock()
	return fn(q.list)
}

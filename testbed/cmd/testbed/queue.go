// SPDX-License-Identifier: Apache-2.0

package main

import "sync"

// queue has the jobs of one kind of machine, of which several machines may take the next.
type queue struct {
	mu   sync.Mutex
	jobs []job // that no machine has begun
}

// aBoot is how many jobs a further machine has to get, so that it takes off more work than its boot is.
const aBoot = 4

// machines returns how many machines share the jobs, at most split.
func (q *queue) machines(split int) int { return max(1, min(split, len(q.jobs)/aBoot)) }

// next takes the first job. ok is false if none is left.
func (q *queue) next() (j job, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.jobs) == 0 {
		return job{}, false
	}
	j, q.jobs = q.jobs[0], q.jobs[1:]
	return j, true
}

// SPDX-License-Identifier: Apache-2.0

package schedule

import "slices"

// Queue starts pairs in the order of their rounds, each as soon as both NICs are free: a pair that takes
// long delays only its own NICs. It is not for several goroutines at once.
type Queue struct {
	pairs []Pair  // in order
	of    [][]int // by NIC: its pairs that have not begun, in order
	busy  []bool  // by NIC
	begun []bool  // by pair
	next  int     // pairs before it have begun
	left  int
	most  int // pairs at once
	now   int
}

// NewQueue makes a queue of all pairs of the rounds. most bounds the pairs at once; 0 is no bound.
func NewQueue(nics int, rounds [][]Pair, most int) *Queue {
	q := &Queue{pairs: slices.Concat(rounds...), of: make([][]int, nics), busy: make([]bool, nics), most: most}
	q.begun, q.left = make([]bool, len(q.pairs)), len(q.pairs)
	for i, p := range q.pairs {
		q.of[p.A], q.of[p.B] = append(q.of[p.A], i), append(q.of[p.B], i)
	}
	return q
}

// Start begins pairs until the bound is reached or no pair has two free NICs. It is called first.
func (q *Queue) Start() (list []Pair) {
	free := len(q.busy)
	for _, b := range q.busy {
		if b {
			free--
		}
	}
	for i := q.next; i < len(q.pairs) && free > 1 && !q.full(); i++ {
		if p := q.pairs[i]; !q.begun[i] && !q.busy[p.A] && !q.busy[p.B] {
			list = append(list, q.begin(i))
			free -= 2
		}
	}
	return list
}

// Done ends a pair, and returns those that begin now.
func (q *Queue) Done(p Pair) (list []Pair) {
	q.busy[p.A], q.busy[p.B] = false, false
	q.now--
	if q.most > 0 {
		return q.Start() // NICs of other pairs may be free, too
	}
	for _, nic := range []int{p.A, p.B} {
		if i := q.ready(nic); i >= 0 {
			list = append(list, q.begin(i))
		}
	}
	return list
}

// Drop takes out all pairs of a NIC that have not begun, and returns them.
func (q *Queue) Drop(nic int) (list []Pair) {
	for _, i := range q.of[nic] {
		if !q.begun[i] {
			q.take(i)
			list = append(list, q.pairs[i])
		}
	}
	q.of[nic] = nil
	return list
}

// ready returns the first pair of a NIC that can begin, -1 if there is none.
func (q *Queue) ready(nic int) int {
	if q.busy[nic] || q.full() {
		return -1
	}
	q.of[nic] = slices.DeleteFunc(q.of[nic], func(i int) bool { return q.begun[i] })
	for _, i := range q.of[nic] {
		if p := q.pairs[i]; !q.busy[p.A] && !q.busy[p.B] {
			return i
		}
	}
	return -1
}

func (q *Queue) full() bool { return q.most > 0 && q.now >= q.most }

func (q *Queue) begin(i int) Pair {
	q.take(i)
	q.now++
	p := q.pairs[i]
	q.busy[p.A], q.busy[p.B] = true, true
	return p
}

func (q *Queue) take(i int) {
	q.begun[i] = true
	q.left--
	for q.next < len(q.pairs) && q.begun[q.next] {
		q.next++
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

func TestQueue(t *testing.T) {
	const n = 1000
	q := &queue{}
	for i := range n {
		q.jobs = append(q.jobs, job{group: fmt.Sprintf("%04d", i)})
	}
	taken := make([][]string, 4)
	var wg sync.WaitGroup
	for i := range taken {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for j, ok := q.next(); ok; j, ok = q.next() {
				taken[i] = append(taken[i], j.group)
			}
		}()
	}
	wg.Wait()
	all := map[string]bool{}
	for _, names := range taken {
		if !slices.IsSorted(names) {
			t.Errorf("not in order: %q", names)
		}
		for _, name := range names {
			all[name] = true
		}
	}
	if len(all) != n {
		t.Errorf("%d jobs were taken, of %d", len(all), n)
	}
	if _, ok := q.next(); ok {
		t.Error("an empty queue has a job")
	}
}

func TestMachinesOfAQueue(t *testing.T) {
	for _, test := range []struct{ jobs, split, want int }{
		{1, 1, 1}, {20, 1, 1}, {1, 2, 1}, {7, 2, 1}, {8, 2, 2}, {20, 3, 3}, {8, 3, 2},
	} {
		q := &queue{jobs: make([]job, test.jobs)}
		if got := q.machines(test.split); got != test.want {
			t.Errorf("%d jobs, split %d: %d machines, want %d", test.jobs, test.split, got, test.want)
		}
	}
}

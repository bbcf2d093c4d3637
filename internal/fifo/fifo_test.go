// SPDX-License-Identifier: Apache-2.0

package fifo

import (
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// A queue has the items of a slice that the same calls change, and keeps none that were removed.
func TestQueue(t *testing.T) {
	r := testenv.Seeded(t)
	var q Queue[*int]
	var want []*int
	for range 100_000 {
		switch n := r.IntN(10); {
		case n < 5 && len(want) < 200:
			v := new(int)
			q.Push(v)
			want = append(want, v)
		case len(want) == 0:
		case n < 9:
			if v := q.Pop(); v != want[0] {
				t.Fatal("not the oldest")
			}
			want = want[1:]
		default:
			i := r.IntN(len(want))
			q.RemoveAt(i)
			want = slices.Delete(slices.Clone(want), i, i+1)
		}
		if q.Len() != len(want) {
			t.Fatalf("%d items, want %d", q.Len(), len(want))
		}
		for i, v := range want {
			if *q.At(i) != v {
				t.Fatalf("another item at %d", i)
			}
		}
		held := 0
		for _, v := range q.items[:cap(q.items)] {
			if v != nil {
				held++
			}
		}
		if held != len(want) {
			t.Fatalf("%d items are kept, want %d", held, len(want))
		}
	}
}

// A queue that has had its greatest length allocates nothing.
func TestQueueDoesNotAllocate(t *testing.T) {
	var q Queue[int]
	run := func() {
		for i := range 100 {
			q.Push(i)
			q.Push(i)
			q.Pop()
		}
		for q.Len() > 0 {
			q.Pop()
		}
	}
	run()
	if n := testing.AllocsPerRun(10, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

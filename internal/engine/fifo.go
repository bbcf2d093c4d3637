// SPDX-License-Identifier: Apache-2.0

package engine

// fifo is a queue that reuses its memory.
type fifo[T any] struct {
	items []T
	head  int
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }

func (f *fifo[T]) push(v T) {
	// Only if that frees much room: otherwise each push would move all items.
	if len(f.items) == cap(f.items) && f.head > len(f.items)/2 {
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	f.items = append(f.items, v)
}

// front returns the oldest item; there must be one. at counts from it.
func (f *fifo[T]) front() *T   { return f.at(0) }
func (f *fifo[T]) at(i int) *T { return &f.items[f.head+i] }

// removeAt removes the item at i, counted from the oldest.
func (f *fifo[T]) removeAt(i int) {
	i += f.head
	copy(f.items[i:], f.items[i+1:])
	n := len(f.items) - 1
	clear(f.items[n:])
	if f.items = f.items[:n]; f.head == n {
		f.items, f.head = f.items[:0], 0
	}
}

func (f *fifo[T]) pop() T {
	var zero T
	v := f.items[f.head]
	f.items[f.head] = zero
	f.head++
	if f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
	return v
}

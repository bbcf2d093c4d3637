// SPDX-License-Identifier: Apache-2.0

package fifo

// Queue is a queue that reuses its memory. The zero Queue is empty.
type Queue[T any] struct {
	items []T
	head  int
}

// Len returns the number of items.
func (f *Queue[T]) Len() int { return len(f.items) - f.head }

// Push adds an item.
func (f *Queue[T]) Push(v T) {
	// Only if that frees much room: otherwise each push would move all items.
	if len(f.items) == cap(f.items) && f.head > len(f.items)/2 {
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	f.items = append(f.items, v)
}

// Front returns the oldest item; there must be one.
func (f *Queue[T]) Front() *T { return f.At(0) }

// At returns the item at i, counted from the oldest.
func (f *Queue[T]) At(i int) *T { return &f.items[f.head+i] }

// RemoveAt removes the item at i, counted from the oldest.
func (f *Queue[T]) RemoveAt(i int) {
	i += f.head
	copy(f.items[i:], f.items[i+1:])
	n := len(f.items) - 1
	clear(f.items[n:])
	if f.items = f.items[:n]; f.head == n {
		f.items, f.head = f.items[:0], 0
	}
}

// Pop removes the oldest item, and returns it; there must be one.
func (f *Queue[T]) Pop() T {
	var zero T
	v := f.items[f.head]
	f.items[f.head] = zero
	f.head++
	if f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
	return v
}

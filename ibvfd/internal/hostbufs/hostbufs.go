// SPDX-License-Identifier: Apache-2.0

package hostbufs

import (
	"slices"
	"sync"

	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
)

// List is the memory that the provider has allocated for one PD. The zero value is empty.
type List struct {
	mu   sync.RWMutex
	bufs []libibverbs.Buf
}

// Add adds a buffer.
func (l *List) Add(b libibverbs.Buf) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bufs = append(l.bufs, b)
}

// Remove removes a buffer, before it is freed.
func (l *List) Remove(b libibverbs.Buf) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bufs = slices.DeleteFunc(l.bufs, func(o libibverbs.Buf) bool { return o == b })
}

// Of returns the buffer that holds all of a range, nil if none does.
func (l *List) Of(addr, length uint64) libibverbs.Buf {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, b := range l.bufs {
		start, size := hostmem.AddrOf(b.Bytes()), uint64(len(b.Bytes()))
		if addr >= start && addr-start <= size && length <= size-(addr-start) {
			return b
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package lkeys

import (
	"sync"
	"sync/atomic"
)

// Set are the local keys of memory that the CPU does not reach by an SGE's
// address: of dma-bufs and device pointers. Inline data are copied by the CPU,
// from the process's own memory at that address.
//
// Most devices count MRs in a key's upper 24 bits. These bits index a table without a
// lock, because every registration adds a key and only inline sends look one up. Keys
// with equal upper bits are in a map, with how often they were added: the kernel may
// give a key to a new MR before Remove for the old one. Pages of the table, 16 KiB for
// 4096 places, are never freed.
type Set struct {
	pages atomic.Pointer[[1 << 12]atomic.Pointer[keyPage]]
	more  atomic.Int64 // how many are in met
	mu    sync.RWMutex
	met   map[uint32]int
}

// keyPage has a key in each place, or 0.
type keyPage [1 << 12]atomic.Uint32

// place returns a key's place in the table, nil if its page does not exist.
func (f *Set) place(lkey uint32) *atomic.Uint32 {
	pages := f.pages.Load()
	if pages == nil {
		return nil
	}
	page := pages[lkey>>20].Load()
	if page == nil {
		return nil
	}
	return &page[lkey>>8&(1<<12-1)]
}

// room returns a key's place, and makes the page if it does not exist.
func (f *Set) room(lkey uint32) *atomic.Uint32 {
	if at := f.place(lkey); at != nil {
		return at
	}
	if f.pages.Load() == nil {
		f.pages.CompareAndSwap(nil, new([1 << 12]atomic.Pointer[keyPage]))
	}
	f.pages.Load()[lkey>>20].CompareAndSwap(nil, new(keyPage))
	return f.place(lkey)
}

// Add adds a key; 0 is none.
func (f *Set) Add(lkey uint32) {
	if lkey == 0 || f.room(lkey).CompareAndSwap(0, lkey) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.met == nil {
		f.met = map[uint32]int{}
	}
	f.met[lkey]++
	f.more.Store(int64(len(f.met)))
}

// Remove undoes one Add of the key.
func (f *Set) Remove(lkey uint32) {
	if at := f.place(lkey); lkey == 0 || at == nil || at.CompareAndSwap(lkey, 0) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.met[lkey]; n > 1 {
		f.met[lkey] = n - 1
	} else {
		delete(f.met, lkey)
	}
	f.more.Store(int64(len(f.met)))
}

// Empty reports whether no key was ever added.
func (f *Set) Empty() bool { return f.pages.Load() == nil }

// Has reports whether the key is in the set.
func (f *Set) Has(lkey uint32) bool {
	if lkey == 0 {
		return false
	}
	if at := f.place(lkey); at != nil && at.Load() == lkey {
		return true
	}
	if f.more.Load() == 0 {
		return false
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	_, ok := f.met[lkey]
	return ok
}

// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"sync"
	"sync/atomic"
)

// foreignKeys are the local keys of memory that the CPU does not reach by an SGE's
// address: of dma-bufs and device pointers. What is sent inline is copied by the CPU,
// from whatever the process has at that address.
//
// Most devices count MRs in a key's upper 24 bits, so that these say where to look,
// without a lock: a registration is not to pay for what few ask. Keys that meet there
// are in a map, with how often they were added: the kernel may hand a key out again
// before its last owner is done with it here. Pages, of 16 KiB for 4096 places, stay.
type foreignKeys struct {
	pages atomic.Pointer[[1 << 12]atomic.Pointer[keyPage]]
	more  atomic.Int64 // how many are in met
	mu    sync.RWMutex
	met   map[uint32]int
}

// keyPage has a key in each place, or 0.
type keyPage [1 << 12]atomic.Uint32

// place is where a key is, nil where none of its neighbours has been.
func (f *foreignKeys) place(lkey uint32) *atomic.Uint32 {
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

// room is that, made where there is none.
func (f *foreignKeys) room(lkey uint32) *atomic.Uint32 {
	if at := f.place(lkey); at != nil {
		return at
	}
	if f.pages.Load() == nil {
		f.pages.CompareAndSwap(nil, new([1 << 12]atomic.Pointer[keyPage]))
	}
	f.pages.Load()[lkey>>20].CompareAndSwap(nil, new(keyPage))
	return f.place(lkey)
}

func (f *foreignKeys) add(lkey uint32) {
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

func (f *foreignKeys) remove(lkey uint32) {
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

// has reports whether one of the SGEs has such a key. An SGE without a key, or of no
// bytes, is nobody's.
func (f *foreignKeys) has(sges []SGE) bool {
	if f == nil || f.pages.Load() == nil {
		return false
	}
	for i := range sges {
		if key := sges[i].LKey; key != 0 && sges[i].Length > 0 && f.foreign(key) {
			return true
		}
	}
	return false
}

func (f *foreignKeys) foreign(lkey uint32) bool {
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

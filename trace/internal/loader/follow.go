// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"

	"github.com/cilium/ebpf"

	"github.com/gpurdma/gpurdma/trace/internal/abi"
	"github.com/gpurdma/gpurdma/trace/internal/fault"
)

// Follow makes the programs report what happens to an attachment from now on.
// It is false for one that they follow already.
func (l *Loader) Follow(w *abi.Record) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Counted first, as the programs do.
	if err := errors.Join(l.countKey(abi.KeysAttaches, w.Attach), l.countKey(abi.KeysBufs, w.DMABuf)); err != nil {
		return false, err
	}
	err := l.core.Maps["attaches"].Update(w.Attach, abi.AttachState{ID: w.Head.ID, DMABuf: w.DMABuf, Inode: w.Inode}, ebpf.UpdateNoExist)
	if errors.Is(err, ebpf.ErrKeyExist) {
		return false, nil
	}
	if err != nil {
		return false, fault.Errno(err)
	}
	// What the programs have put there is newer: another buffer, at the same address.
	err = l.core.Maps["bufs"].Update(w.DMABuf, w.Inode, ebpf.UpdateNoExist)
	if errors.Is(err, ebpf.ErrKeyExist) {
		err = nil
	}
	return true, fault.Errno(err)
}

// Follows reports whether the programs have the attachment as Follow put it there: they
// have seen no end of it, and no other one begin at its address.
func (l *Loader) Follows(w *abi.Record) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var now abi.AttachState
	err := l.core.Maps["attaches"].Lookup(w.Attach, &now)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return false, nil
	}
	return now.ID == w.Head.ID, fault.Errno(err)
}

// Unfollow undoes Follow.
func (l *Loader) Unfollow(w *abi.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.core.Maps["attaches"]
	var was abi.AttachState
	err := m.LookupAndDelete(w.Attach, &was)
	if err == nil && was.ID != w.Head.ID { // another one began there just now
		err = m.Update(w.Attach, was, ebpf.UpdateNoExist)
	}
	if errors.Is(err, ebpf.ErrKeyNotExist) || errors.Is(err, ebpf.ErrKeyExist) {
		return nil
	}
	return fault.Errno(err)
}

// countKey makes the programs look into a map for a key that is inserted from
// here. They go on looking when it is gone: that they take it out they count as
// if they had put it in, which is wrong by one, and only that we have counted it
// keeps them from believing it.
func (l *Loader) countKey(kind uint32, key uint64) error {
	const ours = uint32(1)
	var counts [abi.KeyGroups]uint32
	m := l.core.Maps["keys"]
	if err := m.Lookup(ours, &counts); err != nil {
		return fault.Errno(err)
	}
	if i := kind<<8 | uint32(key*0x9e3779b97f4a7c15>>56); counts[i] == 0 {
		counts[i] = 1
		return fault.Errno(m.Put(ours, &counts))
	}
	return nil
}

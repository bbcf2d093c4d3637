// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"

	"github.com/cilium/ebpf"

	"github.com/gpurdma/gpurdma/trace/internal/abi"
	"github.com/gpurdma/gpurdma/trace/internal/fault"
)

// Follow makes the programs report the events of an attachment from now on.
// It returns false if they follow it already.
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
	// An entry that the programs have put there is newer: another buffer at the same address.
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

// countKey counts a key that the loader inserts into one of the programs' maps. The programs
// look up a key only where the count of its group is not 0, their own or the loader's. When
// they delete an entry of the loader's, their own count becomes too small by 1. The loader
// never takes its count back, so the programs go on looking up the keys of that group.
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

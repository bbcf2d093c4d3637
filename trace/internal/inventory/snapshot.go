// SPDX-License-Identifier: Apache-2.0

package inventory

import "github.com/gpurdma/gpurdma/trace/internal/abi"

const unknown = ^uint32(0)

// Snapshot is what one list shows of all buffers.
type Snapshot struct {
	attached map[uint64]*abi.Record // by the attachment's address
	bufs     map[uint64]uint32      // how many attachments a buffer has, by inode; or unknown
	listed   map[uint64]uint32      // how many of them the list has
	all      bool                   // the list has every buffer that exists
	Kernel   map[uint64]bool        // all buffers that exist, by inode, where all is false; nil: not known
}

// TakeSnapshot sorts what Passes has listed. all: the list has every buffer, else those that
// descriptors lead to.
func TakeSnapshot(found []*abi.Record, all bool) *Snapshot {
	s := &Snapshot{attached: map[uint64]*abi.Record{}, bufs: map[uint64]uint32{}, listed: map[uint64]uint32{}, all: all}
	for _, w := range found {
		switch {
		case w.Have&abi.HaveAttach == 0 && w.Have&abi.HaveWalkCut != 0: // an attachment ended, and the rest of the list was not read
			s.bufs[w.Inode] = unknown
		case w.Have&abi.HaveAttach == 0:
			n := w.NOthers
			if before, again := s.bufs[w.Inode]; again && before != n { // some came or went between two passes
				n = unknown
			}
			s.bufs[w.Inode] = n
		case s.attached[w.Attach] == nil:
			s.attached[w.Attach] = w
			s.listed[w.Inode]++
		}
	}
	return s
}

// Find returns an attachment as it is now, nil if it is not in the list. gone reports that it
// has ended.
func (s *Snapshot) Find(w *abi.Record) (now *abi.Record, gone bool) {
	if now := s.attached[w.Attach]; now != nil {
		if now.Inode == w.Inode && now.DMABuf == w.DMABuf {
			return now, false
		}
		return nil, true // its address has another one now
	}
	if n, ok := s.bufs[w.Inode]; ok {
		return nil, s.listed[w.Inode] == n
	}
	// Its descriptors may have been closed: it lives as long as it is attached.
	return nil, s.all || s.Kernel != nil && !s.Kernel[w.Inode]
}

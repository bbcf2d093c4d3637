// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"

	"github.com/gpurdma/gpurdma/dmabuf"
)

// stillThere leaves out what went between the list and the moment from which it was
// followed, of which no event would ever come, and has the others as they are now:
// they are looked for once more, as they are followed. whole: nothing was said yet of
// what cannot be listed.
func (t *Tracer) stillThere(look *lister, followed []*wireRecord, whole bool) (there []*wireRecord) {
	if len(followed) == 0 {
		return nil
	}
	if t.cfg.followed != nil {
		t.cfg.followed()
	}
	found, err := look.list()
	s := takeSight(found, look.all && err == nil)
	if list, err := dmabuf.KernelBufs(t.cfg.Debug); err == nil {
		s.kernel = map[uint64]bool{}
		for _, b := range list {
			s.kernel[b.Inode] = true
		}
	}
	for _, w := range followed {
		now, gone := s.find(w)
		ours, err := t.loader.follows(w)
		if err == nil && ours && gone {
			err = t.loader.unfollow(w)
		}
		switch {
		case err != nil:
			t.unread = append(t.unread, &dmabuf.Error{Op: "inventory", Device: fmt.Sprintf("dma-buf %d", w.Inode), Err: err})
		case !ours, gone: // or another one is at its address, and in its buffer's list
			continue
		}
		if now != nil {
			now.Head.ID = w.Head.ID
			w = now
		}
		there = append(there, w)
	}
	if err != nil && whole {
		t.unread = append(t.unread, &dmabuf.Error{Op: "inventory", Device: "BPF iterator", Err: err,
			Detail: "what ended while it was listed is not known: it may be reported as if it lived", Remedy: "open another tracer"})
	}
	return there
}

const unknown = ^uint32(0)

// sight is what one list shows.
type sight struct {
	attached map[uint64]*wireRecord // by the attachment's address
	bufs     map[uint64]uint32      // how many attachments a buffer has, by inode; or unknown
	listed   map[uint64]uint32      // how many of them the list has
	all      bool                   // a buffer that is not in it is gone
	kernel   map[uint64]bool        // else: all that there are, by inode; nil: not known
}

func takeSight(found []*wireRecord, all bool) *sight {
	s := &sight{attached: map[uint64]*wireRecord{}, bufs: map[uint64]uint32{}, listed: map[uint64]uint32{}, all: all}
	for _, w := range found {
		switch {
		case w.Have&haveAttach == 0 && w.Have&haveWalkCut != 0: // what went took the rest of the list along
			s.bufs[w.Inode] = unknown
		case w.Have&haveAttach == 0:
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

// find is an attachment as it is now; if it is nil, gone says whether that is because
// there is none any more.
func (s *sight) find(w *wireRecord) (now *wireRecord, gone bool) {
	if now := s.attached[w.Attach]; now != nil {
		if now.Inode == w.Inode && now.DMABuf == w.DMABuf {
			return now, false
		}
		return nil, true // another one's address now
	}
	if n, ok := s.bufs[w.Inode]; ok {
		return nil, s.listed[w.Inode] == n
	}
	// Its descriptors may have been closed: it lives as long as it is attached.
	return nil, s.all || s.kernel != nil && !s.kernel[w.Inode]
}

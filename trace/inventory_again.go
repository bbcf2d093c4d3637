// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
	"github.com/gpurdma/gpurdma/trace/internal/inventory"
	"github.com/gpurdma/gpurdma/trace/internal/loader"
)

// stillThere lists all buffers once more, now that their attachments are followed. It
// returns the followed attachments that still exist, as they are now. It leaves out those
// that ended after the first list and before they were followed, because the programs have
// sent no event of their end. whole: the first list succeeded, so Unreadable says nothing of
// the list yet.
func (t *Tracer) stillThere(look *loader.Lister, followed []*abi.Record, whole bool) (there []*abi.Record) {
	if len(followed) == 0 {
		return nil
	}
	if t.cfg.followed != nil {
		t.cfg.followed()
	}
	found, err := inventory.Passes(look.Pass)
	s := inventory.TakeSnapshot(found, look.All && err == nil)
	if list, err := dmabuf.KernelBufs(t.cfg.Debug); err == nil {
		s.Kernel = map[uint64]bool{}
		for _, b := range list {
			s.Kernel[b.Inode] = true
		}
	}
	for _, w := range followed {
		now, gone := s.Find(w)
		ours, err := t.loader.Follows(w)
		if err == nil && ours && gone {
			err = t.loader.Unfollow(w)
		}
		switch {
		case err != nil:
			t.unread = append(t.unread, &failure.Error{Op: "inventory", Device: fmt.Sprintf("dma-buf %d", w.Inode), Err: err})
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
		t.unread = append(t.unread, &failure.Error{Op: "inventory", Device: "BPF iterator", Err: err,
			Detail: "what ended while it was listed is not known: it may be reported as if it lived", Remedy: "open another tracer"})
	}
	return there
}

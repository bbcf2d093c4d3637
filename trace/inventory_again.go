// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
	"github.com/gpurdma/gpurdma/trace/internal/inventory"
	"github.com/gpurdma/gpurdma/trace/internal/loader"
)

// stillThere leaves out what went between the list and the moment from which it was
// followed, of which no event would ever come, and has the others as they are now:
// they are looked for once more, as they are followed. whole: nothing was said yet of
// what cannot be listed.
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

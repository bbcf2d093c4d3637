// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"fmt"
)

// The kernel hands an iterator's program 32 KiB for what it writes of one object, and
// ends the list with an object that is larger (E2BIG). A buffer with many
// attachments is therefore listed in passes, each of which begins with the last one
// of the pass before.
const (
	atOnce         = 13 // AT_ONCE of bpf/iter.bpf.c
	maxAttachments = 1 + 21*(atOnce-1)
	maxRounds      = 3 // from the beginning again
)

// listing is what a pass shows of one buffer.
type listing struct {
	buffer *wireRecord // NOthers is how many attachments it has
	list   []*wireRecord
}

// listings takes apart what the programs write: a buffer's attachments, and then
// the buffer.
func listings(found []*wireRecord) (out []listing) {
	var l listing
	for _, w := range found {
		if w.Have&haveAttach != 0 {
			l.list = append(l.list, w)
			continue
		}
		l.buffer = w
		out = append(out, l)
		l = listing{}
	}
	return out
}

// passes lists the attachments of all buffers. list answers with those from the
// first on, up to atOnce of each buffer; what was listed comes with an error.
//
// Nothing holds a buffer's attachments meanwhile. New ones come at the end, and the
// programs see them; where one goes, others move up to where it was and may be passed
// over. All is then listed once more.
func passes(list func(first uint32) ([]*wireRecord, error)) (all []*wireRecord, err error) {
	moved := true
	for round := 0; moved && round < maxRounds; round++ {
		moved = false
		last := map[uint64]uint64{} // attachments that the next pass begins with, by the buffer's inode
		for first := uint32(0); first == 0 || len(last) > 0 && first+1 < maxAttachments; first += atOnce - 1 {
			found, err := list(first)
			all = append(all, found...)
			if err != nil {
				return all, err
			}
			next := map[uint64]uint64{}
			for _, l := range listings(found) {
				ino, n := l.buffer.Inode, len(l.list)
				if want, ok := last[ino]; ok && n > 0 && l.list[0].Attach == want {
					delete(last, ino)
				}
				if n > 0 && l.buffer.NOthers > first+atOnce {
					next[ino] = l.list[n-1].Attach
				}
			}
			moved = moved || len(last) > 0
			last = next
		}
	}
	if moved {
		err = fmt.Errorf("attachments went while they were listed, %d times: some may be missing", maxRounds)
	}
	return all, errors.Join(err, beyond(all))
}

// beyond says which buffers have more attachments than are listed.
func beyond(all []*wireRecord) (err error) {
	said := map[uint64]bool{}
	for _, w := range all {
		if w.Have&haveAttach == 0 && w.NOthers > maxAttachments && !said[w.Inode] {
			said[w.Inode] = true
			err = errors.Join(err, fmt.Errorf("dma-buf %d has %d attachments, of which %d are listed and followed", w.Inode, w.NOthers, maxAttachments))
		}
	}
	return err
}

// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"fmt"

	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// The kernel gives an iterator's program 32 KiB of output for one object, and ends the
// list (E2BIG) at an object that needs more. A buffer with many attachments is therefore
// listed in passes, each of which begins with the last attachment of the pass before.
const (
	atOnce         = 13 // AT_ONCE of bpf/iter.bpf.c
	MaxAttachments = 1 + 21*(atOnce-1)
	maxRounds      = 3 // how often all buffers are listed
)

// listing is what a pass shows of one buffer.
type listing struct {
	buffer *abi.Record // NOthers is how many attachments it has
	list   []*abi.Record
}

// listings groups the records that the programs write: first a buffer's attachments,
// then the buffer.
func listings(found []*abi.Record) (out []listing) {
	var l listing
	for _, w := range found {
		if w.Have&abi.HaveAttach != 0 {
			l.list = append(l.list, w)
			continue
		}
		l.buffer = w
		out = append(out, l)
		l = listing{}
	}
	return out
}

// Passes lists the attachments of all buffers. list returns those from number first
// on, up to atOnce of each buffer. With an error, Passes returns the attachments that
// it has listed so far.
//
// A buffer's attachments may change between two passes. The kernel adds new ones at the
// end, and the programs report them. When one is removed, the later ones move up by one
// place, and a pass may skip one of them. Passes then lists all buffers once more.
func Passes(list func(first uint32) ([]*abi.Record, error)) (all []*abi.Record, err error) {
	moved := true
	for round := 0; moved && round < maxRounds; round++ {
		moved = false
		last := map[uint64]uint64{} // attachments that the next pass begins with, by the buffer's inode
		for first := uint32(0); first == 0 || len(last) > 0 && first+1 < MaxAttachments; first += atOnce - 1 {
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
func beyond(all []*abi.Record) (err error) {
	said := map[uint64]bool{}
	for _, w := range all {
		if w.Have&abi.HaveAttach == 0 && w.NOthers > MaxAttachments && !said[w.Inode] {
			said[w.Inode] = true
			err = errors.Join(err, fmt.Errorf("dma-buf %d has %d attachments, of which %d are listed and followed", w.Inode, w.NOthers, MaxAttachments))
		}
	}
	return err
}

// SPDX-License-Identifier: Apache-2.0

package mrcache

import (
	"math/bits"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// known has the regions that are their view's only one, by their buffer's inode
// number: what most hits are of. With 100,000 buffers a hit waits for memory, and
// this way it reads two lines of the cache's, a bucket and an entry. What it does not
// have is looked for in the views, which are complete: a bucket may overflow.
type known struct {
	buckets []bucket // a power of two, or none
	shift   int      // of a hash, to the number of a bucket
	used    int
	turn    uint // of the places, which is overwritten next
}

// bucket is a line of memory. A place without an entry is free.
type bucket struct {
	inodes  [4]uint64
	entries [4]*entry
}

func (k *known) bucket(inode uint64) *bucket {
	return &k.buckets[inode*0x9e3779b97f4a7c15>>k.shift]
}

// find returns the region that contains the range, or nil.
func (k *known) find(inode uint64, pd *ibvfd.PD, access ibvfd.Access, start, end uint64) *entry {
	if k.buckets == nil {
		return nil
	}
	b := k.bucket(inode)
	for i, at := range &b.inodes {
		if at != inode {
			continue
		}
		if e := b.entries[i]; e != nil && e.start <= start && end <= e.end && e.access == access && e.pd == pd {
			return e
		}
	}
	return nil
}

// add takes in e, which it does not have, and maybe out another.
func (k *known) add(e *entry) {
	if k.used >= 2*len(k.buckets) {
		k.grow()
	}
	b := k.bucket(e.view.inode)
	at := -1
	for i, other := range &b.entries {
		if other == nil {
			at = i
		}
	}
	if at < 0 {
		at = int(k.turn % uint(len(b.entries)))
		k.turn++
		k.used--
	}
	b.inodes[at], b.entries[at] = e.view.inode, e
	k.used++
}

// drop takes e out, if it is there.
func (k *known) drop(e *entry) {
	if k.buckets == nil {
		return
	}
	b := k.bucket(e.view.inode)
	for i, other := range &b.entries {
		if other == e {
			b.inodes[i], b.entries[i] = 0, nil
			k.used--
		}
	}
}

func (k *known) grow() {
	old := k.buckets
	n := max(2*len(old), 16)
	*k = known{buckets: make([]bucket, n), shift: 64 - bits.Len(uint(n-1))}
	for i := range old {
		for _, e := range &old[i].entries {
			if e != nil {
				k.add(e)
			}
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package mrcache

import (
	"math/bits"
	"slices"
)

// index holds a view's regions, of which none contains another. So their ends
// are ordered as their starts are, and if the last one that starts at or before
// a range does not contain it, none does.
type index struct {
	count int
	only  *entry // if count is 1: then there are no chunks
	start uint64 // of only
	end   uint64

	heads  []uint64 // the first start of each chunk
	chunks []*chunk
}

// chunk is a sorted run of regions: small enough to be moved about, large
// enough to make the list of chunks short. The starts lie beside the regions,
// so that a search reads few cache lines.
type chunk struct {
	starts  []uint64
	entries []*entry
}

const chunkSize = 256

// last is the place of the last element that is not above x, -1 if there is
// none.
func last(sorted []uint64, x uint64) int {
	if len(sorted) == 0 || sorted[0] > x {
		return -1
	}
	at := 0
	for n := len(sorted); n > 1; {
		half := n / 2
		// Without a branch, which in a search cannot be predicted.
		_, above := bits.Sub64(x, sorted[at+half], 0)
		at += half & (int(above) - 1)
		n -= half
	}
	return at
}

// find returns the region that contains the range, or nil.
func (x *index) find(start, end uint64) *entry {
	if x.count == 1 {
		if x.start <= start && end <= x.end {
			return x.only
		}
		return nil
	}
	i := last(x.heads, start)
	if i < 0 {
		return nil
	}
	c := x.chunks[i]
	e := c.entries[last(c.starts, start)]
	if e.end < end {
		return nil
	}
	return e
}

// add takes e in, and out what it contains, which is returned. It refuses what
// is contained itself.
func (x *index) add(e *entry) (covered []*entry, ok bool) {
	if x.find(e.start, e.end) != nil {
		return nil, false
	}
	for next := x.from(e.start); next != nil && next.end <= e.end; next = x.from(e.start) {
		x.remove(next)
		covered = append(covered, next)
	}
	x.insert(e)
	return covered, true
}

// from is the first region that starts at or after start, or nil.
func (x *index) from(start uint64) *entry {
	if x.count == 1 && x.start >= start {
		return x.only
	}
	i := max(last(x.heads, start), 0)
	for ; i < len(x.chunks); i++ {
		c := x.chunks[i]
		if at, _ := slices.BinarySearch(c.starts, start); at < len(c.starts) {
			return c.entries[at]
		}
	}
	return nil
}

func (x *index) insert(e *entry) {
	switch x.count++; x.count {
	case 1:
		x.only, x.start, x.end = e, e.start, e.end
		return
	case 2:
		x.heads, x.chunks = []uint64{x.start}, []*chunk{{[]uint64{x.start}, []*entry{x.only}}}
		x.only = nil
	}
	i := max(last(x.heads, e.start), 0)
	c := x.chunks[i]
	at := last(c.starts, e.start) + 1
	c.starts = slices.Insert(c.starts, at, e.start)
	c.entries = slices.Insert(c.entries, at, e)
	x.heads[i] = c.starts[0]
	if half := chunkSize / 2; len(c.starts) > chunkSize {
		x.heads = slices.Insert(x.heads, i+1, c.starts[half])
		x.chunks = slices.Insert(x.chunks, i+1, &chunk{slices.Clone(c.starts[half:]), slices.Clone(c.entries[half:])})
		clear(c.entries[half:])
		c.starts, c.entries = c.starts[:half], c.entries[:half]
	}
}

// remove takes e out, which is in the index.
func (x *index) remove(e *entry) {
	if x.count--; x.count == 0 {
		x.only = nil
		return
	}
	i := last(x.heads, e.start)
	c := x.chunks[i]
	at := last(c.starts, e.start)
	c.starts = slices.Delete(c.starts, at, at+1)
	c.entries = slices.Delete(c.entries, at, at+1)
	if len(c.starts) == 0 {
		x.heads = slices.Delete(x.heads, i, i+1)
		x.chunks = slices.Delete(x.chunks, i, i+1)
	} else {
		x.heads[i] = c.starts[0]
	}
	if x.count == 1 {
		x.only = x.chunks[0].entries[0]
		x.start, x.end = x.only.start, x.only.end
		x.heads, x.chunks = nil, nil
	}
}

// all calls each for every region, in order. each must not change the index.
func (x *index) all(each func(*entry)) {
	if x.count == 1 {
		each(x.only)
		return
	}
	for _, c := range x.chunks {
		for _, e := range c.entries {
			each(e)
		}
	}
}

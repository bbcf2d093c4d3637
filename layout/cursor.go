// SPDX-License-Identifier: Apache-2.0

package layout

import "sort"

// Cursor walks over the blocks of a part of a layout. It allocates nothing. The zero
// Cursor has no blocks.
type Cursor struct {
	left  int64 // bytes to go
	cut   int64 // bytes of the next block that were skipped
	top   int   // the frame in use
	stack [maxDepth]frame
}

// frame is where the walk is within one node.
type frame struct {
	n    *node
	next int64 // block, repetition or kid
	disp int64 // how far the repetitions above have moved the node
}

// Start puts the cursor on the byte at off of the layout's run; Next then returns
// the blocks of length bytes. The caller must have checked that the layout has these
// bytes.
func (c *Cursor) Start(l Layout, off, length int64) {
	c.left, c.top, c.cut = length, -1, 0
	if length > 0 {
		c.descend(l.root, 0, off)
	}
}

// descend pushes n and the nodes below it, down to the block that holds the byte at
// offset of n's run.
func (c *Cursor) descend(n *node, disp, offset int64) {
	for {
		c.top++
		f := &c.stack[c.top]
		f.n, f.disp = n, disp
		switch n.kind {
		case kindList:
			i := part(n.ends, offset)
			f.next, c.cut = int64(i), offset-n.begin(i)
			return
		case kindWeave:
			turn := offset / n.turn
			f.next, c.cut = turn*int64(len(n.strands)), offset%n.turn
			for _, s := range n.strands {
				if c.cut < s.Len {
					break
				}
				c.cut -= s.Len
				f.next++
			}
			return
		case kindRepeat:
			kid := n.kids[0]
			i := offset / kid.size
			f.next = i + 1
			n, disp, offset = kid, disp+i*n.stride, offset%kid.size
		case kindConcat:
			i := part(n.ends, offset)
			f.next = int64(i) + 1
			n, offset = n.kids[i], offset-n.begin(i)
		}
	}
}

// part is the index of the part that holds the byte at offset.
func part(ends []int64, offset int64) int {
	if offset == 0 {
		return 0
	}
	return sort.Search(len(ends), func(i int) bool { return ends[i] > offset })
}

// begin is where part i begins in the run.
func (n *node) begin(i int) int64 {
	if i == 0 {
		return 0
	}
	return n.ends[i-1]
}

// Next returns the next block. The first and the last block are cut if the part
// begins or ends inside of them. ok is false after the last one.
func (c *Cursor) Next() (_ Extent, ok bool) {
	if c.left == 0 {
		return Extent{}, false
	}
	for {
		f := &c.stack[c.top]
		n := f.n
		var r Extent
		switch n.kind {
		case kindList:
			if f.next == int64(len(n.extents)) {
				c.top--
				continue
			}
			r = n.extents[f.next]
		case kindWeave:
			turn, i := f.next, int64(0)
			if k := int64(len(n.strands)); k > 1 {
				turn, i = f.next/k, f.next%k
			}
			if turn == n.count {
				c.top--
				continue
			}
			s := &n.strands[i]
			r = s.Extent
			r.Off += turn * s.Stride
		case kindRepeat:
			if f.next == n.count {
				c.top--
				continue
			}
			f.next++
			c.descend(n.kids[0], f.disp+(f.next-1)*n.stride, 0)
			continue
		case kindConcat:
			if f.next == int64(len(n.kids)) {
				c.top--
				continue
			}
			f.next++
			c.descend(n.kids[f.next-1], f.disp, 0)
			continue
		}
		f.next++
		r.Off += f.disp + c.cut
		r.Len = min(r.Len-c.cut, c.left)
		c.left -= r.Len
		c.cut = 0
		return r, true
	}
}

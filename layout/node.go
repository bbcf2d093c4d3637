// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"
)

// A layout is a tree of nodes. Leaves are lists and weaves.
type nodeKind uint8

const (
	kindList   nodeKind = 1 + iota // extents
	kindWeave                      // count turns of the strands
	kindRepeat                     // count times the one kid, stride apart
	kindConcat                     // the kids
)

type node struct {
	kind   nodeKind
	depth  int      // nodes on the longest way down
	size   int64    // bytes
	blocks int64    // saturates
	bounds []bounds // by source; not empty

	extents []Extent // of a list
	strands []Strand // of a weave
	turn    int64    // of a weave: bytes of one turn
	kids    []*node
	ends    []int64 // of a list or a concat: where each part ends in the run
	count   int64
	stride  int64

	err error // of a layout that cannot be; such a node has no bytes
}

// bounds are where in a source all bytes lie.
type bounds struct {
	source    int
	low, high int64
}

// layout finishes n and returns the layout that it is the root of.
func (n *node) layout() (Layout, error) {
	if len(n.extents)+len(n.strands)+len(n.kids) == 0 {
		return Layout{}, nil
	}
	if err := n.finish(); err != nil {
		return Layout{}, err
	}
	return Layout{n}, nil
}

// finish computes the fields that follow from the others. It refuses a node that makes no
// sense.
func (n *node) finish() error {
	switch n.kind {
	case kindList:
		return n.finishList()
	case kindWeave:
		return n.finishWeave()
	case kindRepeat:
		return n.finishRepeat()
	}
	return n.finishConcat()
}

func (r Extent) sound() error {
	switch {
	case r.Source < 0 || r.Source >= maxSources:
		return badLayout("source %d; there are at most %d", r.Source, maxSources)
	case r.Off < 0:
		return badLayout("offset %d", r.Off)
	case r.Len <= 0:
		return badLayout("a block of %d bytes", r.Len)
	case r.Len > math.MaxInt64-r.Off:
		return badLayout("%d bytes at offset %d end beyond 2^63", r.Len, r.Off)
	}
	return nil
}

func (n *node) finishList() error {
	n.depth, n.blocks = 1, int64(len(n.extents))
	n.ends = make([]int64, len(n.extents))
	u := union{}
	for i, r := range n.extents {
		if err := r.sound(); err != nil {
			return err
		}
		if r.Len > math.MaxInt64-n.size {
			return badLayout("more than 2^63 bytes")
		}
		n.size += r.Len
		n.ends[i] = n.size
		u.add(bounds{r.Source, r.Off, r.Off + r.Len})
	}
	n.bounds = u.list()
	return nil
}

func (n *node) finishWeave() error {
	n.depth = 1
	if n.count < 1 {
		return badLayout("%d repetitions", n.count)
	}
	if len(n.strands) == 1 {
		n.join()
	}
	u := union{}
	for _, s := range n.strands {
		if err := s.sound(); err != nil {
			return err
		}
		if s.Len > math.MaxInt64-n.turn {
			return badLayout("more than 2^63 bytes")
		}
		n.turn += s.Len
		e, ok := bounds{s.Source, s.Off, s.Off + s.Len}.repeated(n.count, s.Stride)
		if !ok {
			return badLayout("%d repetitions of offset %d, %d apart, leave 0 to 2^63", n.count, s.Off, s.Stride)
		}
		u.add(e)
	}
	var ok bool
	if n.size, ok = product(n.turn, n.count); !ok {
		return badLayout("more than 2^63 bytes")
	}
	n.blocks, _ = product(n.count, int64(len(n.strands)))
	n.bounds = u.list()
	return nil
}

// join makes one block of a strand whose blocks touch: a peer may send a strand of
// single bytes, and a walk over its blocks would take too long.
func (n *node) join() {
	s := &n.strands[0]
	if s.Stride != s.Len || s.Len <= 0 {
		return
	}
	if size, ok := product(s.Len, n.count); ok {
		n.count, s.Len, s.Stride = 1, size, 0
	}
}

func (n *node) finishRepeat() error {
	kid := n.kids[0]
	n.depth = kid.depth + 1
	if n.count < 1 {
		return badLayout("%d repetitions", n.count)
	}
	if n.depth > maxDepth {
		return badLayout("nested more than %d deep", maxDepth)
	}
	var ok bool
	if n.size, ok = product(kid.size, n.count); !ok {
		return badLayout("more than 2^63 bytes")
	}
	n.blocks, _ = product(kid.blocks, n.count)
	n.bounds = make([]bounds, len(kid.bounds))
	for i, e := range kid.bounds {
		if n.bounds[i], ok = e.repeated(n.count, n.stride); !ok {
			return badLayout("%d repetitions of offset %d, %d apart, leave 0 to 2^63", n.count, e.low, n.stride)
		}
	}
	return nil
}

func (n *node) finishConcat() error {
	n.ends = make([]int64, len(n.kids))
	u := union{}
	for i, kid := range n.kids {
		n.depth = max(n.depth, kid.depth+1)
		if n.depth > maxDepth {
			return badLayout("nested more than %d deep", maxDepth)
		}
		if kid.size > math.MaxInt64-n.size {
			return badLayout("more than 2^63 bytes")
		}
		n.size += kid.size
		n.ends[i] = n.size
		n.blocks = min(n.blocks, math.MaxInt64-kid.blocks) + kid.blocks
		for _, e := range kid.bounds {
			u.add(e)
		}
	}
	n.bounds = u.list()
	return nil
}

// source is [Layout.FindSource]; -1 if there is none. n may be nil if length is 0.
func (n *node) source(off, length int64, want func(source int) bool) int {
	switch {
	case length == 0:
		return -1
	case length == n.size:
		return n.anySource(want)
	}
	switch n.kind {
	case kindList:
		for i := part(n.ends, off); i < len(n.extents) && n.begin(i) < off+length; i++ {
			if want(n.extents[i].Source) {
				return n.extents[i].Source
			}
		}
	case kindWeave:
		if length >= n.turn {
			return n.anySource(want)
		}
		at, begin := off%n.turn, int64(0)
		for _, s := range n.strands {
			// In this turn, or in the next one.
			if (at < begin+s.Len && begin < at+length || begin < at+length-n.turn) && want(s.Source) {
				return s.Source
			}
			begin += s.Len
		}
	case kindRepeat:
		kid := n.kids[0]
		if length >= kid.size {
			return n.anySource(want)
		}
		at := off % kid.size
		first := min(length, kid.size-at)
		if i := kid.source(at, first, want); i >= 0 {
			return i
		}
		return kid.source(0, length-first, want)
	case kindConcat:
		for i := part(n.ends, off); i < len(n.kids) && n.begin(i) < off+length; i++ {
			begin := n.begin(i)
			low, high := max(off, begin), min(off+length, n.ends[i])
			if k := n.kids[i].source(low-begin, high-low, want); k >= 0 {
				return k
			}
		}
	}
	return -1
}

// anySource is source for the whole run.
func (n *node) anySource(want func(source int) bool) int {
	for _, e := range n.bounds {
		if want(e.source) {
			return e.source
		}
	}
	return -1
}

// weight is [Layout.Weight] of a node, with those below it.
func (n *node) weight() int {
	w := 256 + 24*len(n.bounds) + 32*len(n.extents) + 32*len(n.strands) + 8*len(n.ends)
	for _, kid := range n.kids {
		w += 8 + kid.weight()
	}
	return w
}

// repeated are the bounds of count repetitions; false if it leaves the numbers.
func (e bounds) repeated(count, stride int64) (bounds, bool) {
	if stride == math.MinInt64 {
		return e, count == 1
	}
	way, ok := product(max(stride, -stride), count-1)
	switch {
	case !ok:
		return e, false
	case stride < 0:
		e.low -= way
		return e, e.low >= 0
	case way > math.MaxInt64-e.high:
		return e, false
	}
	e.high += way
	return e, true
}

// product multiplies numbers that are not negative, and saturates.
func product(a, b int64) (int64, bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64, false
	}
	return int64(lo), true
}

// union joins bounds, by source. Most layouts have one source, for which no
// map is made.
type union struct {
	one  bounds
	some bool
	more map[int]bounds
}

func (u *union) add(e bounds) {
	switch {
	case !u.some:
		u.one, u.some = e, true
	case u.one.source == e.source:
		u.one = u.one.with(e)
	default:
		if u.more == nil {
			u.more = map[int]bounds{}
		}
		if old, ok := u.more[e.source]; ok {
			e = old.with(e)
		}
		u.more[e.source] = e
	}
}

func (e bounds) with(o bounds) bounds {
	return bounds{e.source, min(e.low, o.low), max(e.high, o.high)}
}

func (u *union) list() []bounds {
	list := append(slices.Collect(maps.Values(u.more)), u.one)
	slices.SortFunc(list, func(a, b bounds) int { return cmp.Compare(a.source, b.source) })
	return list
}

// period returns the length of the one block that a node repeats, and the greatest common divisor of
// the distances. The length is 0 if there are several blocks.
func (n *node) period() (length, stride int64) {
	switch {
	case n.kind == kindWeave && len(n.strands) == 1:
		if n.count > 1 {
			stride = commonDivisor(n.strands[0].Stride, 0)
		}
		return n.strands[0].Len, stride
	case n.kind == kindRepeat:
		length, stride = n.kids[0].period()
		return length, commonDivisor(stride, n.stride)
	case n.kind == kindList && len(n.extents) == 1:
		return n.extents[0].Len, 0
	}
	return 0, 0
}

// commonDivisor returns the greatest common divisor of two distances, without a sign.
func commonDivisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return max(a, -a)
}

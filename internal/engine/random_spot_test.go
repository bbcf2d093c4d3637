// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/internal/layouttest"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/layout"
)

// spot is a set of bytes that an operation reads or writes.
type spot struct {
	parts []stretch
	at    []int // of each byte
}

// stretch is a run of bytes of one source, or a part of a layout's run.
type stretch struct {
	layout  *layout.Layout
	source  int
	off, n  int64
	spanned bool // take the run by a view of its source alone
}

// String lists the parts: "1[510:696] layout[0:94]".
func (p spot) String() string {
	var list []string
	for _, x := range p.parts {
		name := fmt.Sprint(x.source)
		if x.layout != nil {
			name = "layout"
		}
		list = append(list, fmt.Sprintf("%s[%d:%d]", name, x.off, x.off+x.n))
	}
	return strings.Join(list, " ")
}

const mostParts = 3

// choose finds memory for n bytes. A target takes none of them twice.
func (c *contest) choose(n int, target bool) spot {
	for {
		p := spot{at: make([]int, 0, n)}
		shaped := false
		for left := n; left > 0; {
			k := left
			if len(p.parts) < mostParts-1 && c.r.IntN(3) == 0 {
				k = 1 + c.r.IntN(left)
			}
			x := stretch{n: int64(k)}
			if !shaped && c.r.IntN(2) == 0 {
				if l, m := c.layout(); l.Size() >= x.n {
					shaped = true
					x.layout, x.off = &l, c.r.Int64N(l.Size()-x.n+1)
					p.at = c.appendPart(p.at, m, x.off, x.n)
				}
			}
			if x.layout == nil {
				x.source, x.off, x.spanned = c.r.IntN(c.shape.Sources), c.r.Int64N(c.shape.Room-x.n+1), c.r.IntN(2) == 0
				p.at = c.appendPart(p.at, layouttest.Model{{Source: x.source, Off: x.off, Len: x.n}}, 0, x.n)
			}
			p.parts = append(p.parts, x)
			left -= k
		}
		if !target || !c.twice(p.at) {
			return p
		}
	}
}

// layout returns a random layout, or one of all bytes: across the end of a source, too.
func (c *contest) layout() (layout.Layout, layouttest.Model) {
	if c.r.IntN(4) > 0 {
		return c.shape.Layout(c.t, c.r, 3)
	}
	var m layouttest.Model
	for i := range c.shape.Sources {
		m = append(m, layout.Extent{Source: i, Len: c.shape.Room})
	}
	return must(layout.SG(m...))(c.t), m
}

func (c *contest) flat(source int, off int64) int { return source*int(c.shape.Room) + int(off) }

func (c *contest) size() int { return c.shape.Sources * int(c.shape.Room) }

func (c *contest) twice(at []int) bool {
	seen := make(set, (c.size()+63)/64)
	for _, i := range at {
		if seen.has(i) {
			return true
		}
		seen[i/64] |= 1 << (i % 64)
	}
	return false
}

// appendPart adds the positions of n bytes of a layout.
func (c *contest) appendPart(at []int, m layouttest.Model, off, n int64) []int {
	for _, b := range m {
		for i := off; i < b.Len && n > 0; i++ {
			at = append(at, c.flat(b.Source, b.Off+i))
			n--
		}
		off = max(0, off-b.Len)
	}
	return at
}

func (c *contest) set(p spot) set { return set(nil).with(p.at, c.size()) }

// spans returns the local memory of a spot.
func (c *contest) spans(by int, p spot) (list []memory.Span) {
	s := c.side[by]
	for _, x := range p.parts {
		if x.layout == nil {
			list = append(list, memory.Span{Buf: s.mine[x.source], Offset: x.off, Length: x.n})
			continue
		}
		v := must(memory.NewView(*x.layout, s.mine...))(c.t)
		list = append(list, memory.Span{View: v, Offset: x.off, Length: x.n})
	}
	return list
}

// remote returns the remote memory of a spot. several reports more than one buffer.
func (c *contest) remote(by int, p spot) (list []memory.RemoteSpan, several bool) {
	far := c.side[by].far
	for _, x := range p.parts {
		switch {
		case x.layout != nil:
			list = append(list, must(far.View(*x.layout))(c.t).Part(x.off, x.n))
			several = several || x.layout.DistinctSources() > 1
		case x.spanned:
			run := must(layout.SG(layout.Extent{Source: x.source, Len: c.shape.Room}))(c.t)
			list = append(list, must(far.View(run))(c.t).Part(x.off, x.n))
		default:
			list = append(list, far.Part(int64(x.source)*c.shape.Room+x.off, x.n))
			several = true
		}
	}
	return list, several || len(list) > 1
}

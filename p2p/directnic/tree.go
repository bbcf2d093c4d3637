// SPDX-License-Identifier: Apache-2.0

package directnic

import (
	"cmp"
	"slices"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// tree has the functions of a machine, each linked to the bridge above it and to the
// functions below it.
type tree struct {
	at  map[pciaddr.Addr]*node
	all []*node // by address
}

type node struct {
	Function
	kind  kind
	up    *node // nil of a root port, and where the list lacks the bridge above
	below []*node
}

func grow(functions []Function) *tree {
	t := &tree{at: make(map[pciaddr.Addr]*node, len(functions))}
	for _, f := range functions {
		if t.at[f.Addr] == nil {
			n := &node{Function: f, kind: kindOf(f)}
			t.at[f.Addr] = n
			t.all = append(t.all, n)
		}
	}
	slices.SortFunc(t.all, func(a, b *node) int { return compare(a.Addr, b.Addr) })
	for _, n := range t.all {
		if len(n.Upstream) == 0 {
			continue
		}
		// A bridge has one bridge less above it than the functions below it have.
		// A list that contradicts this could close a circle.
		if up := t.at[n.Upstream[0]]; up != nil && len(up.Upstream) == len(n.Upstream)-1 {
			n.up = up
			up.below = append(up.below, n)
		}
	}
	return t
}

func compare(a, b pciaddr.Addr) int {
	return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Bus, b.Bus), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Function, b.Function))
}

func (t *tree) of(k kind) []*node {
	var out []*node
	for _, n := range t.all {
		if n.kind == k {
			out = append(out, n)
		}
	}
	return out
}

// above is the bridge above n if it is of that kind, and nil otherwise. A nil n gives
// nil, so that calls can be chained.
func (n *node) above(k kind) *node {
	if n == nil || n.up == nil || n.up.kind != k {
		return nil
	}
	return n.up
}

// descendants are all functions below.
func (n *node) descendants() []*node {
	var out []*node
	for _, b := range n.below {
		out = append(append(out, b), b.descendants()...)
	}
	return out
}

func (n *node) has(k kind) bool {
	return slices.ContainsFunc(n.descendants(), func(d *node) bool { return d.kind == k })
}

// fits reports whether the port can be of a type: it is, or its type was not read.
func (n *node) fits(want pci.Port) bool {
	switch n.Port {
	case pci.PortRoot, pci.PortUpstream, pci.PortDownstream:
		return n.Port == want
	}
	return true
}

func addrs(nodes []*node) []pciaddr.Addr {
	var out []pciaddr.Addr
	for _, n := range nodes {
		out = append(out, n.Addr)
	}
	return out
}

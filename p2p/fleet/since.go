// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"crypto/sha256"
	"io"
	"slices"

	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/p2p/terminal"
)

// since has earlier runs of the nodes, and what became different.
type since struct {
	nodes  map[string]before
	files  map[sum]before
	drifts map[between][]result.Drift
}

// before is an earlier run: its facts, or why it could not be read.
type before struct {
	facts *indexed
	why   string
}

// between is an earlier run and the shape of a later one.
type between struct {
	facts *indexed
	shape *shape
}

// Since reads an earlier run of a node. The caller calls it before it adds the node of that name. Node.Since then
// has the differences, or Node.SinceError says why the earlier run could not be read.
func (m *Merge) Since(name string, r io.Reader) {
	m.keepEarlier(name, m.earlier(r))
}

// SinceUnread is Since for an earlier run whose file could not be opened, with the reason.
func (m *Merge) SinceUnread(name string, why error) {
	m.keepEarlier(name, before{why: terminal.Line(why.Error())})
}

func (m *Merge) keepEarlier(name string, b before) {
	if m.since.nodes == nil {
		m.since.nodes = map[string]before{}
	}
	m.since.nodes[terminal.Line(name)] = b
}

func (m *Merge) earlier(r io.Reader) before {
	data, err := whole(r)
	if err != nil {
		return before{why: terminal.Line(err.Error())}
	}
	of := sha256.Sum256(data)
	if b, ok := m.since.files[of]; ok {
		return b
	}
	b := before{}
	if run, err := decode(data); err != nil {
		b.why = terminal.Line(err.Error())
	} else {
		x := m.index(m.factsOf(run))
		b.facts = &x
	}
	if m.since.files == nil {
		m.since.files, m.since.drifts = map[sum]before{}, map[between][]result.Drift{}
	}
	m.since.files[of] = b
	return b
}

// differsSince completes a node that is added, of which s are the facts: nil if it could not be read.
func (m *Merge) differsSince(n *Node, s *shape) {
	b, ok := m.since.nodes[n.Node]
	switch {
	case !ok || s == nil:
		return
	case b.facts == nil:
		n.SinceError = b.why
		return
	}
	k := between{b.facts, s}
	d, ok := m.since.drifts[k]
	if !ok {
		d, _ = m.compare(*b.facts, s.facts)
		m.since.drifts[k] = d
	}
	n.Since = d
}

// gone are the nodes with an earlier run that were not added.
func (m *Merge) gone() []string {
	added := map[string]bool{}
	for _, n := range m.nodes {
		added[n.Node] = true
	}
	var out []string
	for name := range m.since.nodes {
		if !added[name] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

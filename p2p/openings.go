// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"slices"

	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// Openings has the lists of ports that the remedies of a machine name. The kernel uses one list, so that lists of
// single pairs would undo each other. There are two: one for the pairs that do not work without it, and one for all
// pairs that gain by it, which contains the first and says so.
type Openings struct {
	machine     *machine.Machine
	ports       [2][]string // of the lists of needed and all
	needed, all chain.Remedy
}

// NewOpenings returns the lists for pairs, of which only those of GPUs with memory of their own count.
func NewOpenings(m *machine.Machine, pairs []Pair) Openings {
	var needed, all []Pair
	for _, p := range pairs {
		switch {
		case p.GPU.Exporter.Class == drivers.ClassSystem:
		case p.Opens():
			needed, all = append(needed, p), append(all, p)
		case Gains(m, p):
			all = append(all, p)
		}
	}
	o := Openings{machine: m, ports: [2][]string{Redirecting(needed), Redirecting(all)}}
	o.needed, o.all = OpenPorts(m, o.ports[0]), OpenPorts(m, o.ports[1])
	if len(needed) > 0 && o.all.Command != o.needed.Command {
		o.all.Change += "; it contains the ports of the shorter list, which is for the pairs that do not work without it, and replaces that"
	}
	return o
}

// Of returns the remedy that opens ports for a pair; nil if that does not help the pair. The caller owns it.
func (o Openings) Of(p Pair) *chain.Remedy {
	r := o.all
	switch {
	case p.Opens():
		r = o.needed
	case !Gains(o.machine, p):
		return nil
	}
	return &r
}

// With returns the remedy that opens ports which the kernel proposes: the shorter list that has them, or else one
// that has them beside the ports for all pairs.
func (o Openings) With(ports []string) chain.Remedy {
	for i, list := range []chain.Remedy{o.needed, o.all} {
		if !slices.ContainsFunc(ports, func(p string) bool { return !slices.Contains(o.ports[i], p) }) {
			return list
		}
	}
	ports = slices.Concat(o.ports[1], ports)
	slices.Sort(ports)
	return OpenPorts(o.machine, slices.Compact(ports))
}

// Combine replaces the lists of single pairs in the remedies of pairs, and of their links, by those of [Openings].
func Combine(m *machine.Machine, pairs []Pair) {
	o := NewOpenings(m, slices.Clone(pairs))
	for i, p := range pairs {
		list := o.Of(p)
		if list == nil {
			continue
		}
		for l, a := range p.Verdict.Chain() {
			if opensPorts(a.Remedy) {
				r := *list
				r.Direct = a.Remedy.Direct
				pairs[i].Verdict = pairs[i].Verdict.WithRemedy(chain.Link(l), &r)
			}
		}
		if p.Opens() {
			list.Direct = p.Remedy.Direct
			pairs[i].Remedy = list
		}
	}
}

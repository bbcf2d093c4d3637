// SPDX-License-Identifier: Apache-2.0

package directnic

import (
	"slices"

	"github.com/gpurdma/gpurdma/pciaddr"
)

// numa plans a machine whose GPUs are on root ports of Grace or Vera. The NICs and
// GPUs of a NUMA node belong together, and every node that any function names must
// have both.
func (p *Plan) numa() {
	var nodes []int
	for _, n := range p.tree.all {
		if n.Node >= 0 && !slices.Contains(nodes, n.Node) {
			nodes = append(nodes, n.Node)
		}
	}
	slices.Sort(nodes)
	if len(nodes) == 0 {
		p.unsupported("no function names its NUMA node, which says what NICs and GPUs belong together")
		return
	}
	for _, number := range nodes {
		on := func(k kind) []*node { return p.tree.onNode(k, number) }
		nics, gpus := on(nicKind), on(gpuKind)
		if len(nics) == 0 || len(gpus) == 0 {
			p.unsupported("NUMA node %d has %d NICs of ConnectX-7 or later and %d GPUs: each node needs both", number, len(nics), len(gpus))
			return
		}
		members := slices.Concat(nics, gpus)
		groups := Rule{Kind: GroupRule, Functions: addrs(members), Want: "NICs and GPUs are in IOMMU groups of their own"}
		groups.OK, groups.Why = unique(members)
		c := Complex{NICs: addrs(nics), NICsOK: Yes, GPUs: addrs(gpus), Node: number, Rules: []Rule{groups}}
		for _, nic := range nics {
			c.Rules = append(c.Rules, capability(Rule{Kind: ATSRule, Functions: []pciaddr.Addr{nic.Addr}}, nic, false))
		}
		for _, member := range members {
			c.Ports = append(c.Ports, member.portsAbove(c.Ports)...)
		}
		p.add(c)
	}
	p.Shape = NUMA
	p.Why = "GPUs are on root ports of Grace or Vera"
	p.others(kernelDefault)
}

func (t *tree) onNode(k kind, number int) []*node {
	return slices.DeleteFunc(t.of(k), func(n *node) bool { return n.Node != number })
}

// portsAbove are the ports above a function that have a value and are not in a list yet.
func (n *node) portsAbove(there []PortPlan) (out []PortPlan) {
	for up := n.up; up != nil; up = up.up {
		listed := slices.ContainsFunc(there, func(p PortPlan) bool { return p.Addr == up.Addr })
		if listed || !up.kind.planned() || up.ACSErr == nil && !up.ACS.Present {
			continue
		}
		role := OtherPort
		if up.kind.root() {
			role = RootPort
		}
		out = append(out, up.port(role, kernelDefault(up.kind)))
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package nicplan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/matching"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// Make makes the plan of a node: from a run of p2pcheck on it, its files, and the device files of its GPUs in
// Slurm's order. An earlier plan may be nil. InUse reports whether a job has a GPU, by Slurm's number of it: it keeps
// the NICs of the earlier plan. It may be nil if no job runs.
func Make(run result.Run, m *machine.Machine, files []string, before *Plan, inUse func(int) bool) (*Plan, error) {
	devices := Devices(run, m)
	nics, err := drivers.NICs(m)
	if err != nil {
		return nil, fmt.Errorf("the NICs of this machine: %w", err)
	}
	ports := map[string][]int{}
	for _, n := range nics {
		ports[n.Name] = nil
		for _, p := range n.Ports {
			if p.State == ibdev.PortActive {
				ports[n.Name] = append(ports[n.Name], p.Num)
			}
		}
	}
	p := &Plan{Schema: Schema, Boot: Boot(m)}
	gres := map[string]bool{} // the GPUs that Slurm gives away, by name
	for _, file := range files {
		g := GPU{File: file, NICs: []NIC{}}
		d, err := devices.of(file)
		if err != nil {
			g.Why = err.Error()
		} else {
			g.PCI, g.Vendor = d.Name, d.Vendor
			gres[d.Name] = true
		}
		p.GPUs = append(p.GPUs, g)
	}
	held := map[string][]string{}
	if inUse != nil && before != nil && before.Boot == p.Boot { // no job outlives the machine's start
		for i, g := range p.GPUs {
			if nics := before.began(g.PCI); g.PCI != "" && len(nics) > 0 && inUse(i) {
				held[g.PCI] = nics
			}
		}
	}
	given := Assign(usable(run, gres, ports), before.nics(), held)
	takers := map[string]int{}
	for _, names := range given {
		for _, n := range names {
			takers[n]++
		}
	}
	for i := range p.GPUs {
		g := &p.GPUs[i]
		names := slices.Sorted(slices.Values(given[g.PCI]))
		for _, n := range names {
			g.NICs = append(g.NICs, NIC{n, ports[n]})
			g.Shared = g.Shared || takers[n] > 1
		}
		if began := slices.Sorted(slices.Values(held[g.PCI])); !slices.Equal(began, names) {
			g.Held = began
		}
		if len(names) == 0 && g.Why == "" {
			g.Why = whyNone(run, g.PCI, ports)
		}
	}
	p.Order, p.Unordered = devices.order(p.GPUs, m)
	return p, nil
}

// Boot is the boot_id of a machine's kernel; "" if it cannot be read.
func Boot(m *machine.Machine) string {
	return strings.TrimSpace(m.Read("proc/sys/kernel/random/boot_id").Text)
}

// began are the NICs that a job with a GPU of an earlier plan began with, if a job has it.
func (p *Plan) began(pci string) (names []string) {
	i := slices.IndexFunc(p.GPUs, func(g GPU) bool { return g.PCI == pci })
	if i < 0 {
		return nil
	}
	if g := p.GPUs[i]; len(g.Held) > 0 {
		return g.Held
	}
	for _, n := range p.GPUs[i].NICs {
		names = append(names, n.Name)
	}
	return names
}

// nics are the NICs of each GPU of an earlier plan, and those that its jobs began with.
func (p *Plan) nics() map[string][]string {
	out := map[string][]string{}
	if p == nil {
		return out
	}
	for _, g := range p.GPUs {
		for _, n := range g.NICs {
			out[g.PCI] = append(out[g.PCI], n.Name)
		}
		out[g.PCI] = append(out[g.PCI], g.Held...)
	}
	return out
}

// usable are the pairs that are direct, of GPUs that Slurm gives away and NICs with a port that is up.
func usable(run result.Run, gres map[string]bool, ports map[string][]int) (out []matching.Pair) {
	for _, p := range run.Pairs {
		if gres[p.GPU] && p.Outcome == chain.Direct.String() && len(ports[p.NIC]) > 0 && hardware(run, p.NIC) {
			out = append(out, matching.Pair{GPU: p.GPU, NIC: p.NIC, Cost: cost(p)})
		}
	}
	slices.SortStableFunc(out, func(p, q matching.Pair) int { return cmp.Compare(p.GPU, q.GPU) })
	return out
}

// hardware reports whether a NIC does its work itself.
func hardware(run result.Run, nic string) bool {
	return slices.ContainsFunc(run.NICs, func(n result.NIC) bool { return n.Name == nic && n.PCI != nil && !n.Software })
}

// distances are NCCL's names, the nearest first.
var distances = []string{"LOC", "PIX", "PXB", "PHB", "SYS"}

// cost is lower for a pair that is nearer, and as fast as it can be.
func cost(p result.Pair) int {
	at := slices.Index(distances, p.NCCL)
	if at < 0 {
		at = len(distances)
	}
	if p.Slow() {
		return 2*at + 1
	}
	return 2 * at
}

// whyNone says why a GPU has no NIC.
func whyNone(run result.Run, gpu string, ports map[string][]int) string {
	var down, others []string
	for _, p := range run.Pairs {
		if p.GPU != gpu {
			continue
		}
		if p.Outcome == chain.Direct.String() && len(ports[p.NIC]) == 0 {
			down = append(down, p.NIC)
		}
		if p.Outcome != chain.Direct.String() && !slices.Contains(others, p.Outcome) {
			others = append(others, p.Outcome)
		}
	}
	switch {
	case len(down) > 0:
		return "no port is up of the NICs that reach it directly: " + strings.Join(down, ", ")
	case len(others) > 0:
		return "no NIC is known to reach it directly: its pairs are " + strings.Join(others, ", ") + "; see p2pcheck why " + gpu + " NIC"
	}
	return "p2pcheck has no pair of it"
}

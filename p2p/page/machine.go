// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"

	"github.com/gpurdma/gpurdma/p2p/fleet"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/p2p/topo"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Machine returns the page of one machine: its run, and its PCI tree with the same devices. The name is that of the
// machine or of the file that it was read from; "" leaves it out.
func Machine(name string, run result.Run, tree topo.Topology) *Page {
	p := newPool("machine")
	status := run.Status()
	if len(run.Unread) > 0 {
		status = result.Worse(status, result.StatusUnknown)
	}
	m := &machine{
		Name:   p.text(name),
		Result: result.Verdict(&run, status), Headline: p.text(run.Headline()), Summary: counts(run.Summary),
		Unread: p.list(run.Unread, maxNames), Since: -1, Baseline: p.text(run.Baseline), Tree: []function{}, Checks: []finding{}, Ways: []way{},
	}
	var merge fleet.Merge
	merge.Add("", run)
	report := merge.Report()
	all := []cause{}
	for _, c := range report.Causes {
		all = append(all, p.cause(c))
	}
	p.causes(all, report.ByRemedy())
	if run.Baseline != "" {
		m.Since = p.drifts(run.Drift)
	}
	var order []int
	shown := p.shown(run)
	m.Kind, order = p.kind(shown, maxShown)
	ways := map[[2]string]*topo.Way{}
	slowest := map[pciaddr.Addr]bool{}
	for _, q := range tree.Pairs {
		ways[[2]string{q.GPU, q.NIC}] = q.Way
		if q.Counts && q.Way != nil && q.Way.BytesPerS < q.Way.EndsBytesPerS {
			slowest[q.Way.Slowest] = true
		}
	}
	for _, i := range order {
		w := way{none, none}
		if its := ways[[2]string{shown.Pairs[i].GPU, shown.Pairs[i].NIC}]; its != nil {
			w.Text = p.text(its.String())
			if its.BytesPerS < its.EndsBytesPerS {
				w.Slow = p.text(its.Slowest.String())
			}
		}
		m.Ways = append(m.Ways, w)
	}
	p.tree(m, tree, slowest)
	p.findings(m, run.Checks)
	for _, f := range []struct{ name, value string }{
		{"kernel", run.Machine.Kernel}, {"processor", run.Machine.CPU},
		{"CONFIG_PCI_P2PDMA", fmt.Sprintf("%v (%s)", run.Machine.P2PDMA, run.Machine.Config)},
	} {
		m.Facts = append(m.Facts, fact{f.name, p.text(f.value)})
	}
	if run.Process != nil {
		m.Facts = append(m.Facts, fact{"process", p.text(run.Process.String())})
	}
	for _, note := range run.Machine.Notes[:min(len(run.Machine.Notes), maxNames)] {
		m.Facts = append(m.Facts, fact{"note", p.text(note)})
	}
	p.out.Machine = m
	return &Page{p.out}
}

// shown is the run without the pairs that the page has no room for. A GPU is shown with all its NICs or not at
// all; GPUs with a pair that is not direct come first.
func (p *pool) shown(run result.Run) result.Run {
	counted := run.Summary.Total()
	if counted <= maxShown {
		return run
	}
	of, bad := map[string]int{}, map[string]bool{}
	for _, q := range run.Pairs {
		if q.Counts {
			of[q.GPU]++
			bad[q.GPU] = bad[q.GPU] || q.Outcome != "direct"
		}
	}
	room, takes := maxShown, map[string]bool{}
	for _, first := range []bool{true, false} {
		for _, g := range run.GPUs {
			if n := of[g.Name]; n > 0 && bad[g.Name] == first && n <= room {
				room -= n
				takes[g.Name] = true
			}
		}
	}
	out := run
	out.Pairs = nil
	for _, q := range run.Pairs {
		if takes[q.GPU] {
			out.Pairs = append(out.Pairs, q)
		}
	}
	p.out.Left.Pairs = counted - len(out.Pairs)
	return out
}

// tree writes the functions in the order of the tree.
func (p *pool) tree(m *machine, tree topo.Topology, slowest map[pciaddr.Addr]bool) {
	at := map[pciaddr.Addr]int{}
	for i, f := range tree.Functions {
		if i == maxTree {
			p.out.Left.Tree = len(tree.Functions) - i
			break
		}
		at[f.PCI] = i
		x := function{
			PCI: p.text(f.PCI.String()), Bus: p.text(f.Bus), Path: []int{}, Role: f.Role, Title: p.text(f.Kind()), Name: p.text(f.Name),
			Devices: p.list(f.Names, maxNames), Facts: p.list(f.Facts(false), maxNames), Redirect: f.ACS.Redirecting(), Hidden: !f.ACS.Known,
			Slow: f.Link.Less() || slowest[f.PCI], Link: p.text(linkOf(f.Link)),
		}
		if f.Name == "" {
			x.Name = p.text(f.Vendor + ":" + f.Device)
		}
		for n := len(f.Above) - 1; n >= 0; n-- {
			x.Path = append(x.Path, placeOf(at, f.Above[n]))
		}
		if f.PF != nil {
			x.Path = append(x.Path, placeOf(at, *f.PF))
		}
		m.Tree = append(m.Tree, x)
	}
}

// placeOf is -1 for a function that is not in the tree.
func placeOf(at map[pciaddr.Addr]int, a pciaddr.Addr) int {
	if i, ok := at[a]; ok {
		return i
	}
	return -1
}

func linkOf(l topo.Link) string {
	if l.Speed == "" {
		return ""
	}
	return l.Speed + " x" + l.Width
}

func (p *pool) findings(m *machine, all []result.Finding) {
	for i, f := range all {
		if i == maxChecks {
			p.out.Left.Checks = len(all) - i
			return
		}
		m.Checks = append(m.Checks, finding{
			ID: p.text(f.ID), Result: f.Result, Title: p.text(f.Title), Scope: p.list(f.Scope, maxNames), Scopes: len(f.Scope), Read: p.text(f.Read),
			Where: p.list(f.Where, maxNames), Expected: p.text(f.Expected), Decides: f.Decides, Remedy: p.fix(f.Remedy), Ref: p.text(f.Ref),
		})
	}
}

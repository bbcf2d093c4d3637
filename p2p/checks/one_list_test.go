// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// The kernel uses one list of ports. So the remedies of a machine have at most two: one for the pairs that need it, and
// one for all that gain by it, which contains the other and says so.
func TestOneListOfPorts(t *testing.T) {
	testenv.Exhaustive(t)
	trees := map[string]testenv.Tree{}
	for _, c := range testenv.Corpus(t) {
		trees[c.Name] = c.Tree
	}
	redirects := swap("acs=0x00", "acs=0x1d")
	for name, written := range testenv.Machines {
		for how, edits := range map[string][]edit{
			"redirects":           {redirects},
			"redirects, Xeon":     {redirects, cpu(machinetest.Xeon)},
			"redirects, NVIDIA's": {redirects, swap("driver:amdgpu", "driver:nvidia")},
		} {
			tree := written()
			for _, e := range edits {
				e(&tree)
			}
			trees[name+", "+how] = tree
		}
	}
	proposed := testenv.Machines["small-mi300"]()
	redirects(&proposed)
	log("amdgpu 0000:13:00.0: to disable ACS redirect for this path, add the kernel parameter: pci=disable_acs_redir=0000:12:00.0")(&proposed)
	trees["the kernel's log proposes one of the ports"] = proposed
	mixed := testenv.Machines["small-mi300"]()
	redirects(&mixed)
	cpu(machinetest.Xeon)(&mixed)
	swap("vendor=0x1022 device=0x14a4", "vendor=0x8086 device=0x1")(&mixed)
	put("sys/module/nvidia/version", "570.1")(&mixed)
	second := strings.LastIndex(mixed.Functions, "driver:amdgpu")
	mixed.Functions = mixed.Functions[:second] + strings.Replace(mixed.Functions[second:], "driver:amdgpu", "driver:nvidia", 1)
	trees["a GPU whose driver asks the kernel, and one whose does not"] = mixed
	lists, nested := 0, 0
	for name, tree := range trees {
		m := machine.Open(tree.Write(t))
		s := subject(m)
		p2p.Combine(m, s.Pairs)
		found := map[string]chain.Remedy{}
		add := func(r *chain.Remedy) {
			if r != nil && strings.HasPrefix(r.Command, p2p.OpenParameter) {
				found[r.Command] = *r
			}
		}
		for _, p := range s.Pairs {
			add(p.Remedy)
			for _, a := range p.Verdict.Chain() {
				add(a.Remedy)
			}
		}
		for _, f := range Run(m, s) {
			add(f.Remedy)
		}
		var commands []string
		for command := range found {
			commands = append(commands, command)
		}
		slices.SortFunc(commands, func(a, b string) int { return len(a) - len(b) })
		lists += len(commands)
		if len(commands) > 2 {
			t.Errorf("%s: %q", name, commands)
		}
		if len(commands) != 2 {
			continue
		}
		nested++
		for port := range strings.SplitSeq(strings.TrimPrefix(commands[0], p2p.OpenParameter), ";") {
			if !strings.Contains(commands[1], port) {
				t.Errorf("%s: %q has no %s", name, commands[1], port)
			}
		}
		if change := found[commands[1]].Change; !strings.Contains(change, "contains the ports of the shorter list") {
			t.Errorf("%s: %s: %s", name, commands[1], change)
		}
	}
	if lists < 10 || nested != 1 {
		t.Errorf("%d lists, %d machines with two", lists, nested)
	}
}

// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// concerned are the pairs that a finding is about: those it names, those of a GPU or NIC that
// it names, or all pairs that count if it is about the machine.
func concerned(f check.Finding, pairs []p2p.Pair) []p2p.Pair {
	var out []p2p.Pair
	for _, p := range pairs {
		if len(f.Scope) == 0 || slices.Contains(f.Scope, p.Name()) || slices.Contains(f.Scope, p.GPU.Name) || slices.Contains(f.Scope, p.NIC.Name) {
			out = append(out, p)
		}
	}
	return out
}

// contradicts says how a failure denies a pair that is direct: the links that its check answers
// are all good, of the pair that it names or of each pair of the device that it names.
func contradicts(f check.Finding, pairs []p2p.Pair) string {
	if f.Result != fail || len(f.Check.Links) == 0 {
		return ""
	}
	about := concerned(f, pairs)
	direct := slices.DeleteFunc(slices.Clone(about), func(p p2p.Pair) bool { return p.Verdict.Outcome() != chain.Direct })
	for _, p := range direct {
		if slices.Contains(f.Scope, p.Name()) {
			return fmt.Sprintf("%s fails about %s, which is direct: %s", f.Check.ID, p.Name(), f.Read)
		}
	}
	if len(about) > 0 && len(direct) == len(about) {
		return fmt.Sprintf("%s fails about %v, and all %d pairs are direct: %s", f.Check.ID, f.Scope, len(about), f.Read)
	}
	return ""
}

// told are the devices of a machine with what its libraries and drivers said, as the command has
// them before it judges.
func told(m *machine.Machine, live check.Live) check.Subject {
	s, _ := inventory(m)
	for i := range s.GPUs {
		e := &s.GPUs[i].Exporter
		if e.Driver != "nvidia" {
			continue
		}
		if live.Confidential != nil {
			if on, err := live.Confidential(); err == nil && on {
				e.Withheld = "confidential computing"
			}
		}
		if live.DMABuf != nil {
			said, _ := live.DMABuf()
			if x, ok := said[*e.PCI]; ok && !x.OK && !e.Proprietary {
				e.Withheld = x.Why
			}
		}
	}
	for i := range s.NICs {
		if live.Imports != nil {
			if said, err := live.Imports(s.NICs[i].Name); err == nil && said.DMABufKernel == ibvfd.No {
				s.NICs[i].Importer.Kind = drivers.NoImporter
			}
		}
	}
	s.Pairs, s.Live = nil, live
	for _, g := range s.GPUs {
		for _, n := range s.NICs {
			s.Pairs = append(s.Pairs, p2p.Judge(m, g, n))
		}
	}
	return s
}

// denied are cases in which a check fails about pairs that the chain holds direct, and why that
// is no contradiction.
var denied = map[string]string{
	"PCIE-BAR-ASSIGNED/3": "a BAR that is gone is in the log alone, and drivers do not take such a GPU",
}

// No check contradicts the chain: a failure is never about a pair that is direct. The test runs on all
// machines, the corpus, and the machines of all cases of checks.
func TestNoFailureOfADirectPair(t *testing.T) {
	testenv.Exhaustive(t)
	judge := func(name, root string, live check.Live) {
		t.Helper()
		m := machine.Open(root)
		s := told(m, live)
		for _, f := range Run(m, s) {
			if why := contradicts(f, s.Pairs); why != "" && denied[name] == "" {
				t.Errorf("%s: %s", name, why)
			}
		}
	}
	for name, tree := range testenv.Machines {
		judge(name, tree().Write(t), check.Live{})
	}
	for _, c := range testenv.Corpus(t) {
		judge(c.Name, c.Tree.Write(t), check.Live{})
	}
	for id, list := range checkCases() {
		for i, c := range list {
			if c.want == fail {
				judge(fmt.Sprintf("%s/%d", id, i), written(t, machineNamed(t, c.on), c.edits), c.live)
			}
		}
	}
}

// A failure about a pair that a proof shows to be direct is a warning: the proof decides.
func TestProofOverrulesAFailure(t *testing.T) {
	m := machine.Open(written(t, testenv.Machines["xe"](), nil))
	s := subject(m)
	for i := range s.Pairs {
		proof := p2p.NewProof()
		proof.Outcome, proof.Why = chain.Direct, "the bytes were in the GPU"
		for r := range proof.Steps {
			proof.Steps[r].Result = pass
		}
		s.Pairs[i].Prove(m, proof)
	}
	warned := 0
	for _, f := range Run(m, s) {
		if f.Check.ID == "P2P-VERDICT" && f.Result == warn && strings.Contains(f.Read, "a live proof shows") {
			warned++
		}
		if why := contradicts(f, s.Pairs); why != "" && f.Check.ID != "ACT-PREDICTION" {
			t.Error(why)
		}
	}
	if warned == 0 {
		t.Error("P2P-VERDICT does not warn")
	}
}

// pairScopes are checks without a link that tell of pairs, and why none of them decides.
var pairScopes = map[string]string{
	"LIB-PERFTEST":   "it names a command for a pair",
	"ISO-GIVEN-AWAY": "a guest has both: they are no pair of this machine",
}

// A check that tells of pairs says which links it answers.
func TestChecksOfPairsHaveLinks(t *testing.T) {
	testenv.Exhaustive(t)
	for _, c := range All() {
		for _, one := range checkCases()[c.ID] {
			if len(c.Links) > 0 || pairScopes[c.ID] != "" {
				break
			}
			for _, f := range checked(t, machineNamed(t, one.on), one.live, c.ID, one.edits...) {
				if slices.ContainsFunc(f.Scope, func(s string) bool { return strings.Contains(s, " -> ") }) {
					t.Errorf("%s tells of %v, and answers no link", c.ID, f.Scope)
				}
			}
		}
		for i, l := range c.Links {
			if l < 0 || l >= chain.Links || slices.Contains(c.Links[:i], l) {
				t.Errorf("%s: links %v", c.ID, c.Links)
			}
		}
	}
}

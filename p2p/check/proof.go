// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
)

// TraceAgain is the command by which a person traces a pair that failed. GPU and NIC stand for
// names.
const TraceAgain = "dmabuf-reg verify --trace --gpu GPU --nic NIC"

// OfProof reports whether the check with an ID only judges proofs.
func OfProof(id string) bool {
	return strings.HasPrefix(id, "ACT-") || id == "GPU-EXPORT" || id == "GPU-BO-LOCATION" || id == "NET-LOOPBACK"
}

// answered are the checks that only predict the outcome of a registration. If a proof shows a pair to be
// direct, their unknown findings about it become passes. Unknown findings of other checks, about
// registers or kinds that could not be read, stay.
var answered = []string{"P2P-VERDICT", "P2P-NV-GATE", "GPU-DRIVER", "GPU-EXPORTER-OPS", "NIC-DRIVER-DMABUF"}

// Answer changes an unknown finding into a pass if a proof shows all pairs of the finding to be
// direct, and the check is one that a proof answers.
func Answer(l *Look, f *Finding) {
	if f.Result != p2p.ResultUnknown || !slices.Contains(answered, f.Check.ID) || len(f.Scope) == 0 {
		return
	}
	for _, scope := range f.Scope {
		tried := 0
		for _, p := range l.Pairs {
			if p.Name() != scope && p.GPU.Name != scope && p.NIC.Name != scope {
				continue
			}
			if p.Proof == nil || p.Proof.Outcome != chain.Direct || p.Proof.Failed() {
				return
			}
			tried++
		}
		if tried == 0 {
			return
		}
	}
	f.Result, f.Remedy = p2p.ResultPass, nil
	f.Read += "; the proof says: direct"
}

// unproven is the reason of skipped checks of proofs.
const unproven = "nothing was allocated or registered: --live does that"

// PerProof calls f for each pair that was tried. If none was tried, or if f adds no finding, PerProof
// skips the check; in the second case why is the reason.
func PerProof(l *Look, why string, f func(name string, p p2p.Pair)) {
	tried := false
	for _, p := range l.Pairs {
		if p.Proof != nil {
			tried = true
			f(p.Name(), p)
		}
	}
	switch {
	case !tried:
		l.Skip(unproven)
	case len(l.Found) == 0:
		l.Skip("%s", why)
	}
}

// Climbed adds a finding for each proof that has reached the rung. If no proof has reached it, Climbed
// skips the check. The reason is that of a proof that has left the rung out; without one it is why.
func Climbed(l *Look, r p2p.Rung, why string) {
	for _, p := range l.Pairs {
		if p.Proof != nil && p.Proof.Steps[r].Result == p2p.ResultSkip && p.Proof.Steps[r] != p2p.NotReached {
			why = p.Proof.Steps[r].Detail
		}
	}
	PerProof(l, why, func(name string, p p2p.Pair) {
		s := p.Proof.Steps[r]
		if s.Result != p2p.ResultSkip {
			l.Say(s.Result, name, nil, "%s", s.Detail).forPair(p)
		}
	})
}

// forPair writes the names of the pair's devices into the remedy's command, in place of GPU and NIC.
func (f *Finding) forPair(p p2p.Pair) {
	if f.Remedy == nil {
		return
	}
	gpu := p.GPU.Name
	if p.GPU.Exporter.PCI != nil {
		gpu = "drm:" + gpu
	}
	f.Remedy.Command = strings.NewReplacer("GPU", gpu, "NIC", p.NIC.Name).Replace(f.Remedy.Command)
}

// ProveExport reports the steps of a proof up to the export.
func ProveExport(l *Look) {
	PerProof(l, "nothing was allocated", func(name string, p p2p.Pair) {
		made, out := p.Proof.Steps[p2p.RungAllocate], p.Proof.Steps[p2p.RungExport]
		switch {
		case made.Result == p2p.ResultFail:
			l.Fail(name, nil, "%s", made.Detail)
		case made.Result == p2p.ResultUnknown:
			l.Unknown(name, nil, "%s", made.Detail)
		case out.Result == p2p.ResultFail:
			l.Fail(name, nil, "%s", out.Detail)
		case out.Result == p2p.ResultPass:
			l.Pass(name, nil, "%s", out.Detail)
		default:
			l.Unknown(name, nil, "%s", out.Detail)
		}
	})
}

// ProveRegister reports the registration of a proof.
func ProveRegister(l *Look) { Climbed(l, p2p.RungRegister, "nothing was exported") }

// Cut returns the first three elements of a list in one line, and the number of the others.
func Cut(all []string) string {
	if more := len(all) - shownLines; more > 0 {
		return fmt.Sprintf("%s; and %d more", strings.Join(all[:shownLines], "; "), more)
	}
	return strings.Join(all, "; ")
}

// PerPair calls f for each pair that counts. Without such a pair it skips the check.
func PerPair(l *Look, f func(p2p.Pair)) {
	if len(l.Pairs) == 0 {
		l.Skip("no pair of a GPU and a NIC")
	}
	for _, p := range l.Pairs {
		f(p)
	}
}

// Registered reports whether a NIC has registered the memory of some GPU in a proof.
func Registered(l *Look, n drivers.NIC) bool {
	return slices.ContainsFunc(l.Pairs, func(p p2p.Pair) bool {
		return p.NIC.Name == n.Name && p.Proof != nil && p.Proof.Steps[p2p.RungRegister].Result == p2p.ResultPass
	})
}

// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"slices"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/check/gpucheck"
	"github.com/gpurdma/gpurdma/p2p/check/hostcheck"
	"github.com/gpurdma/gpurdma/p2p/check/libcheck"
	"github.com/gpurdma/gpurdma/p2p/check/niccheck"
	"github.com/gpurdma/gpurdma/p2p/check/paircheck"
	"github.com/gpurdma/gpurdma/p2p/check/pciecheck"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// families are all checks, in the order in which they are told.
var families = [][]check.Check{
	hostcheck.Kernel, hostcheck.Environment, paircheck.Decision, pciecheck.Isolation, pciecheck.Link, gpucheck.General, gpucheck.NVIDIA, gpucheck.AMD,
	gpucheck.Intel, gpucheck.Others, niccheck.NIC, niccheck.Network, hostcheck.Limits, hostcheck.Containers, hostcheck.Guest, libcheck.Libraries,
	paircheck.Proof,
}

// All lists all checks there are.
func All() []*check.Check {
	var out []*check.Check
	for _, family := range families {
		for i := range family {
			out = append(out, &family[i])
		}
	}
	return out
}

// Run carries out all checks, in the order of [All].
func Run(m *machine.Machine, s check.Subject) []check.Finding {
	l := &check.Look{Machine: m, Subject: s, Functions: map[pciaddr.Addr]*check.Function{}, Memo: map[string]any{}}
	for _, g := range s.GPUs {
		if g.Exporter.Class != drivers.ClassSystem {
			l.GPUs = append(l.GPUs, g)
		}
	}
	for _, p := range s.Pairs {
		if p.GPU.Exporter.Class != drivers.ClassSystem {
			l.Pairs = append(l.Pairs, p)
		}
	}
	alone := check.WithoutGPU(l)
	var out []check.Finding
	for _, c := range All() {
		if s.Wanted != nil && s.Wanted.Err() != nil {
			return out
		}
		if slices.ContainsFunc(s.Skip, func(skip string) bool { return skip == c.ID || skip == c.Family() || skip == "all" }) {
			continue
		}
		l.Check, l.Found = c, nil
		c.Run(l)
		for _, f := range l.Found {
			check.Guest(l, f)
			check.Answer(l, f)
			check.Proven(l, f)
			check.Settled(l, f)
			if alone && f.Result == p2p.ResultFail {
				f.Excuse()
			}
			out = check.Join(out, *f)
		}
	}
	return out
}

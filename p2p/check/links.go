// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// AllDirect reports whether there are pairs, and each of them is direct.
func AllDirect(pairs []p2p.Pair) bool {
	return len(pairs) > 0 && !slices.ContainsFunc(pairs, func(p p2p.Pair) bool { return p.Verdict.Outcome() != chain.Direct })
}

// AllCoherent reports whether there are pairs, and the CPU caches the GPU's memory in each of them: NVIDIA's
// driver maps such memory in the IOMMU like system memory.
func AllCoherent(pairs []p2p.Pair) bool {
	return len(pairs) > 0 && !slices.ContainsFunc(pairs, func(p p2p.Pair) bool { return p.GPU.Exporter.Class != drivers.ClassNVIDIACoherent })
}

// Breaking returns the pairs whose link is known not to hold.
func Breaking(pairs []p2p.Pair, link chain.Link) []p2p.Pair {
	return Select(pairs, func(p p2p.Pair) bool { return p.Verdict.Link(link).State == chain.Breaks })
}

// Select returns the pairs for which is returns true.
func Select(pairs []p2p.Pair, is func(p2p.Pair) bool) []p2p.Pair {
	var out []p2p.Pair
	for i, p := range pairs {
		if is(p) {
			if out == nil {
				out = make([]p2p.Pair, 0, len(pairs)-i)
			}
			out = append(out, p)
		}
	}
	return out
}

// OfGPU returns the pairs of a GPU.
func (l *Look) OfGPU(g drivers.GPU) []p2p.Pair {
	return Select(l.Pairs, func(p p2p.Pair) bool { return p.GPU.Name == g.Name })
}

// OfDriver returns the pairs of all GPUs that one of the drivers drives.
func (l *Look) OfDriver(names ...string) []p2p.Pair {
	return Select(l.Pairs, func(p p2p.Pair) bool { return slices.Contains(names, p.GPU.Exporter.Driver) })
}

// Common returns the nearest bridge above both functions of a pair, whatever the kernel decides; nil if
// there is none or if it is not known.
func Common(l *Look, p p2p.Pair) *pciaddr.Addr {
	if p.GPU.Exporter.PCI == nil || p.NIC.Importer.PCI == nil {
		return nil
	}
	return p2pdma.Path(l.Machine, *p.GPU.Exporter.PCI, *p.NIC.Importer.PCI).Common
}

// concerned returns the pairs that a finding is about: the pairs that it names, and all pairs of the
// devices that it names. For a finding about the machine these are all pairs.
func concerned(l *Look, f *Finding) []*p2p.Pair {
	named := pairsByName(l)
	if len(f.Scope) == 0 {
		return named[""]
	}
	var out []*p2p.Pair
	for _, name := range f.Scope {
		out = append(out, named[name]...)
	}
	return out
}

// pairsByName returns the pairs by their own name, and by the names of their GPU and NIC. The key ""
// has all pairs.
func pairsByName(l *Look) map[string][]*p2p.Pair {
	return Once(l, "pairs by name", func() map[string][]*p2p.Pair {
		out := map[string][]*p2p.Pair{}
		for i := range l.Pairs {
			p := &l.Pairs[i]
			for _, name := range []string{"", p.Name(), p.GPU.Name, p.NIC.Name} {
				out[name] = append(out[name], p)
			}
		}
		return out
	})
}

// Settled sets aside an unknown finding if all its pairs are direct: the links that the check answers
// hold without the finding. The links Library, Log and Proof are not settled in this way.
func Settled(l *Look, f *Finding) {
	if f.Result != p2p.ResultUnknown || len(f.Check.Links) == 0 || slices.ContainsFunc(f.Check.Links, func(link chain.Link) bool { return link == chain.Library || link > chain.Fabric }) {
		return
	}
	about := concerned(l, f)
	if len(about) > 0 && !slices.ContainsFunc(about, func(p *p2p.Pair) bool { return p.Verdict.Outcome() != chain.Direct }) {
		f.SetAside()
	}
}

// Proven makes a failure a warning if a proof shows the pair of the finding to be direct: the proof
// decides, and ACT-PREDICTION reports the contradiction.
func Proven(l *Look, f *Finding) {
	if f.Result != p2p.ResultFail || slices.Contains(f.Check.Links, chain.Proof) || slices.Contains(f.Check.Links, chain.Log) || len(f.Check.Links) == 0 {
		return
	}
	about := 0
	for _, name := range f.Scope {
		for _, p := range pairsByName(l)[name] {
			if p.Name() != name { // a finding about a device is no finding about a pair
				continue
			}
			if by, ok := p.Verdict.Decides(); !ok || by != chain.Proof || p.Verdict.Outcome() != chain.Direct {
				return
			}
			about++
		}
	}
	if about > 0 {
		f.Result = p2p.ResultWarn
		f.Read += "; a live proof shows that the pair is direct (ACT-PREDICTION)"
	}
}

// LostBehindIOMMU returns the pairs whose traffic the IOMMU blocks, although the vendor's library exports
// the memory.
func LostBehindIOMMU(pairs []p2p.Pair) []p2p.Pair {
	return Select(Breaking(pairs, chain.Addresses), func(p p2p.Pair) bool {
		return p.Verdict.Link(chain.Addresses).Outcome == chain.Lost && p.Verdict.Link(chain.Library).State != chain.Breaks
	})
}

// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"slices"

	"github.com/gpurdma/gpurdma/placement"
)

// Way is how fast bytes get from a GPU to a NIC at most: as fast as the slowest
// link between the two lets them. What is beside links (a root complex, sockets, the
// devices) can be slower still.
type Way struct {
	Rate    uint64 // bytes a second in each direction; 0 if no link's is known
	Slowest Addr   // the link from this function upwards
	Ends    uint64 // what the links of GPU and NIC can carry both; 0 if not known
	// Narrow reports that a link between those two carries less than they can,
	// although it is as fast as its own ends.
	Narrow bool
}

// Way follows the links of a pair, by functions that read returns. It is false
// where no link is known or may be believed: off PCI, in a guest, where the kind of
// a port is not known, as without root, and where whether a port redirects is not
// known and makes a difference.
func (m *Machine) Way(p Pair, read func(Addr) (Function, error)) (Way, bool) {
	return m.way(p, read, false)
}

// bestWay is Way with all links as fast as both of their ends could have them.
func (m *Machine) bestWay(p Pair, read func(Addr) (Function, error)) (Way, bool) {
	return m.way(p, read, true)
}

func (m *Machine) way(p Pair, read func(Addr) (Function, error), best bool) (Way, bool) {
	if !p.real() || m.virtual.is == placement.Yes {
		return Way{}, false
	}
	g, err1 := read(*p.GPU.Exporter.PCI)
	n, err2 := read(*p.NIC.Importer.PCI)
	if err1 != nil || err2 != nil {
		return Way{}, false
	}
	up, down := append([]Addr{g.PCI}, g.Upstream...), append([]Addr{n.PCI}, n.Upstream...)
	whole := wayOver(g, n, up, down, read, best)
	i, j, ok := common(up, down)
	translates, _ := m.translationOf(&n.PCI)
	// Addresses that only the root knows.
	if !ok || p.Prediction.Address == AddressIOVA || p.Prediction.Address == AddressUnknown && translates == translated {
		return whole, whole.Rate > 0
	}
	short := wayOver(g, n, up[:i], down[:j], read, best)
	redirects, known := false, p.Prediction.Address != AddressUnknown || translates != translationUnknown
	for _, a := range append(up[1:i+1:i+1], down[1:max(j, 1)]...) {
		f, err := read(a)
		redirects = redirects || f.ACS.Redirects() != 0
		known = known && err == nil && f.ACSErr == nil
	}
	switch {
	case redirects:
		return whole, whole.Rate > 0
	case known || short == whole:
		return short, short.Rate > 0
	}
	return Way{}, false
}

// wayOver looks for the slowest of the links above functions. It finds none where one
// of them may have a link above it, and nobody knows.
func wayOver(g, n Function, up, down []Addr, read func(Addr) (Function, error), best bool) Way {
	var w Way
	ends := map[Addr]uint64{}
	atBest := false
	for _, a := range slices.Concat(up, down) {
		f, err := read(a)
		switch {
		case err != nil, f.Bridge && f.Port == "" && len(f.Upstream) > 0:
			return Way{}
		case f.Bridge && f.Port != portUpstream:
			continue // the link of a port below others is that of what is below it
		}
		s, ok := linkAbove(f, read)
		if !ok {
			continue
		}
		if a == g.PCI || a == n.PCI {
			ends[a] = s.best().rate()
		}
		if best {
			s = s.best()
		} else if f.inside(g) {
			s.speed = s.maxSpeed // it is slow while the GPU is idle, and only then
		}
		if r := s.rate(); w.Rate == 0 || r < w.Rate {
			w.Rate, w.Slowest, atBest = r, a, s == s.best()
		}
	}
	if len(ends) == 2 {
		w.Ends = min(ends[g.PCI], ends[n.PCI])
	}
	_, end := ends[w.Slowest]
	w.Narrow = w.Rate < w.Ends && !end && atBest
	return w
}

// inside reports the GPU itself, or a port of the switch that some GPUs have
// inside: it has their vendor, and slows down with them.
func (f Function) inside(g Function) bool {
	return f.PCI == g.PCI || f.Vendor == g.Vendor && slices.Contains(g.Upstream, f.PCI)
}

// best is the link as its two ends could have it.
func (s linkState) best() linkState {
	s.speed, s.width = s.maxSpeed, s.maxWidth
	return s
}

// rate is how many bytes a second the link carries in each direction, after what
// its encoding takes. Packets take some more.
func (s linkState) rate() uint64 {
	coding := 128.0 / 130
	switch {
	case s.speed <= 5:
		coding = 8.0 / 10
	case s.speed >= 64:
		coding = 236.0 / 256 // flits
	}
	return uint64(s.speed * 1e9 * coding * float64(s.width) / 8)
}

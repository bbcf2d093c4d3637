// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"slices"

	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// Way is the highest rate between a GPU and a NIC that the links between the two allow. A root complex,
// the link between sockets or the devices themselves may be slower.
type Way struct {
	Rate    uint64       // bytes a second in each direction; 0 if no link's is known
	Slowest pciaddr.Addr // the PCI function below the slowest link
	Ends    uint64       // the lower of the two rates of the GPU's and the NIC's own links; 0 if not known
	// Narrow says that a link between those two carries less than they do, although it is as fast as
	// its own ends allow.
	Narrow bool
}

// WayOf follows the links between the two devices of a pair; read returns the PCI functions on the way.
// It returns false if the links are not known: for a device that is on no PCI bus, in a guest, if the
// kind of a port cannot be read, as without root, or if it is not known whether a port redirects and
// the rate depends on it.
func WayOf(m *machine.Machine, p Pair, read func(pciaddr.Addr) (machine.Function, error)) (Way, bool) {
	return wayOf(m, p, read, false)
}

// BestWay is WayOf for links at the highest speed and width that both of their ends support.
func BestWay(m *machine.Machine, p Pair, read func(pciaddr.Addr) (machine.Function, error)) (Way, bool) {
	return wayOf(m, p, read, true)
}

func wayOf(m *machine.Machine, p Pair, read func(pciaddr.Addr) (machine.Function, error), best bool) (Way, bool) {
	if !p.Real() || m.Virtual.Is == placement.Yes {
		return Way{}, false
	}
	g, err1 := read(*p.GPU.Exporter.PCI)
	n, err2 := read(*p.NIC.Importer.PCI)
	if err1 != nil || err2 != nil {
		return Way{}, false
	}
	up, down := append([]pciaddr.Addr{g.PCI}, g.Upstream...), append([]pciaddr.Addr{n.PCI}, n.Upstream...)
	whole := wayOver(g, n, up, down, read, best)
	i, j, ok := machine.Common(up, down)
	translates, _ := m.TranslationOf(&n.PCI)
	// The IOMMU's addresses: the traffic goes to the root.
	if !ok || p.Prediction.Address == drivers.AddressIOVA || p.Prediction.Address == drivers.AddressUnknown && translates == machine.Translated {
		return whole, whole.Rate > 0
	}
	short := wayOver(g, n, up[:i], down[:j], read, best)
	redirects, known := false, p.Prediction.Address != drivers.AddressUnknown || translates != machine.TranslationUnknown
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

// wayOver finds the slowest of the links above functions. It finds none where it is not known
// whether one of them has a link above it.
func wayOver(g, n machine.Function, up, down []pciaddr.Addr, read func(pciaddr.Addr) (machine.Function, error), best bool) Way {
	var w Way
	ends := map[pciaddr.Addr]uint64{}
	atBest := false
	for _, a := range slices.Concat(up, down) {
		f, err := read(a)
		switch {
		case err != nil, f.Bridge && f.Port == "" && len(f.Upstream) > 0:
			return Way{}
		case f.Bridge && f.Port != machine.PortUpstream:
			continue // the link below a port is that of the function below it
		}
		s, ok := machine.LinkAbove(f, read)
		if !ok {
			continue
		}
		if a == g.PCI || a == n.PCI {
			ends[a] = s.Best().Rate()
		}
		if best {
			s = s.Best()
		} else if f.Inside(g) {
			s.Speed = s.MaxSpeed // it is slow while the GPU is idle, and only then
		}
		if r := s.Rate(); w.Rate == 0 || r < w.Rate {
			w.Rate, w.Slowest, atBest = r, a, s == s.Best()
		}
	}
	if len(ends) == 2 {
		w.Ends = min(ends[g.PCI], ends[n.PCI])
	}
	_, end := ends[w.Slowest]
	w.Narrow = w.Rate < w.Ends && !end && atBest
	return w
}

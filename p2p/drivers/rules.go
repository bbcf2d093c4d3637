// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// rules has the state of one prediction while it is made.
type rules struct {
	m *machine.Machine
	e Exporter
	i Importer
	p Prediction
}

// predict answers the links one after the other, by a dma-buf or by a peer-memory client. The
// links after the last answered one stay unknown.
func predict(m *machine.Machine, e Exporter, i Importer, byPeerMem bool) Prediction {
	r := rules{m: m, e: e, i: i, p: Prediction{ByPeerMem: byPeerMem, Chain: &chain.Chain{}}}
	r.decide()
	c := r.p.Chain
	c[chain.Route] = r.route()
	if c[chain.Route].State.Good() {
		c[chain.Attach], c[chain.Decision] = r.attach()
	}
	if c[chain.Attach].State.Good() && c[chain.Decision].State.Good() {
		c[chain.Addresses] = r.addresses()
	}
	p := r.p.conclude()
	if p.Outcome == chain.Staged {
		p.Address = r.mapped()
	}
	return p
}

// decide computes the kernel's decision. Output shows it even if the exporter does not ask for it.
func (r *rules) decide() {
	if r.e.Class == ClassSystem || r.e.PCI == nil {
		r.p.Decision = p2pdma.Decision{Type: p2pdma.MapNone, Supported: placement.No, Steps: -1, Why: []string{"the memory is no PCI device's"}}
		return
	}
	r.p.Decision = p2pdma.Decide(r.m, *r.e.PCI, r.i.PCI)
	r.p.Notes = append(r.p.Notes, r.p.Decision.Notes...)
}

// attach answers two links: whether the exporter lets the importer attach and leaves the buffer
// in the GPU, and the kernel's decision if the exporter asks for it.
func (r *rules) attach() (attach, decision chain.Answer) {
	e, notAsked := r.e, chain.Skip("the exporter does not ask it")
	if a, ok := r.silent(); ok && e.Class != ClassSystem {
		return chain.Break(chain.Broken, "%v does not answer: its configuration space reads as ones", a).
			With("/sys/bus/pci/devices/"+a.String()+"/config", "all ones"), notAsked
	}
	switch {
	case e.Class == ClassSystem:
		return chain.Break(chain.Staged, "the exporter has system memory only"), notAsked
	case e.OutOfTree && e.Class == ClassUnknown && e.Driver == "":
		return chain.Break(chain.Broken, "no driver is bound to the GPU"), notAsked
	case e.Driver == UnknownDriver:
		return chain.Open("which driver the GPU has is not known"), notAsked
	case r.i.Unplaced:
		return chain.Open("the NIC's PCI function is not known: /sys/class/infiniband does not have it as a link"), notAsked
	case r.p.ByPeerMem && e.Driver == "amdgpu":
		return chain.Hold("amdgpu's peer-memory client leaves the buffer in the GPU's memory"), notAsked
	case r.p.ByPeerMem && e.Class != ClassNVIDIACoherent:
		return r.nvidia(), notAsked
	case e.OutOfTree && !e.ofNVIDIA():
		return chain.Open("%q may not be the kernel's own driver, and has rules of its own", e.Driver).
			With("/sys/module/"+machine.ModuleOf(e.Driver)+"/taint", ""), notAsked
	case e.Class == ClassI915 && e.VRAMOnly:
		return chain.Refuse(unix.EOPNOTSUPP, chain.StageAttach, "i915 moves a buffer to system memory for any importer, and this one may not go there"), notAsked
	case e.Class == ClassI915:
		return chain.Break(chain.Staged, "i915 moves a buffer to system memory for any importer"), notAsked
	case e.Class == ClassStaged:
		return chain.Break(chain.Staged, "%s: %s", e.Driver, NoExporters[e.Driver]), notAsked
	case e.Class == ClassNVIDIACoherent:
		return r.coherent(), notAsked
	case e.Class == ClassUnknown:
		return chain.Open("how the driver %q exports is not known", e.Driver), notAsked
	case e.PCI == nil:
		return chain.Open("which PCI function has the memory is not known"), notAsked
	case e.Class == ClassNVIDIA:
		return r.nvidia(), notAsked
	case e.Class == ClassVFIO:
		return r.vfio()
	case e.Class == ClassHabana:
		return r.habana()
	}
	return r.ttm()
}

// silent is a function that does not answer: GPU, NIC, or a port above one of them.
func (r *rules) silent() (pciaddr.Addr, bool) {
	for _, a := range []*pciaddr.Addr{r.e.PCI, r.i.PCI} {
		if a == nil {
			continue
		}
		for _, b := range append([]pciaddr.Addr{*a}, r.m.Node(*a).Up...) {
			if r.m.Silent(b) {
				return b, true
			}
		}
	}
	return pciaddr.Addr{}, false
}

// ofNVIDIA reports a GPU of NVIDIA's open modules. Their rules are known, although they are
// never part of the kernel.
func (e Exporter) ofNVIDIA() bool { return e.Class == ClassNVIDIA || e.Class == ClassNVIDIACoherent }

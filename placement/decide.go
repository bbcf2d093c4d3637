// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"strings"
)

// Inputs has what a watcher has seen of one mapping. The zero value of a field means
// that the watcher has not seen it.
type Inputs struct {
	Mapped bool // the kernel has returned a scatter list
	Errno  int  // if not Mapped: the kernel's error, as a positive number

	DMA   View // the addresses that the kernel has given to the device
	Pages View // physical addresses of the pages in the scatter list
	// PagesOpaque is the number of bytes whose pages have addresses that the watcher
	// could not read.
	PagesOpaque uint64
	Resources   View // physical addresses given to dma_map_resource, or in the exporter's vector

	BusFlag     bool    // an entry has SG_DMA_BUS_ADDRESS
	SwiotlbFlag bool    // an entry has SG_DMA_SWIOTLB
	Displaced   uint64  // bytes whose DMA address is not that of their page, although nothing translates
	MapType     MapType // the kernel's decision, if it was seen
	Reach       MapType // the answer that the kernel gave to the exporter about the way
	Translation Translation

	PeerAllowed Answer // dma_buf_attachment.peer2peer after the exporter's attach
	Exporter    string // the exporter's driver: "amdgpu"
	Importer    string // the importer's PCI function, "" if it has none
	Moved       bool   // the exporter has moved the buffer since: move_notify or invalidate_mappings
	Lost        string // the events that the watcher lost, in words; "" if it lost none
	Preexisting bool   // mapped before the watcher began
}

// vetoes are exporters that clear peer2peer and move the buffer to system
// memory when the importer cannot reach them (amdgpu_dma_buf_attach,
// xe_dma_buf_attach). Others map their BAR whatever peer2peer says.
var vetoes = map[string]bool{"amdgpu": true, "xe": true}

// Decide says where the bytes are. m is the machine's memory map.
//
// The first of these inputs that applies decides: the mapping failed; the watcher lost
// events; the buffer moved; bounce buffers; physical addresses that the exporter has
// passed to the kernel; bus addresses; pages; addresses that nothing translates. If
// none applies, the answer is Unknown.
func Decide(in Inputs, m *Machine) Placement {
	p := decide(in, m)
	p.Evidence = in
	p.Route, p.RouteReason = route(in, p)
	return p
}

func decide(in Inputs, m *Machine) Placement {
	switch {
	case in.Errno != 0:
		return Placement{Memory: NotMapped, Errno: in.Errno, Reason: "the kernel refused it, and nothing is mapped"}
	case in.Lost != "":
		return unknown("lost while it was watched: " + in.Lost)
	case in.Moved:
		return Placement{Memory: Stale, Reason: "the exporter moved or invalidated the buffer after this mapping"}
	case !in.Mapped && in.Preexisting:
		return unknown("it was mapped before tracing began, and this kernel does not show where")
	case !in.Mapped:
		return Placement{Memory: NotMapped, Reason: "attached, and not mapped now"}
	case in.DMA.Unread || in.Pages.Unread || in.Resources.Unread:
		return unread(in, m)
	}
	// This comes before the pages: the device writes to the bounce buffer and not to
	// the pages of the list.
	if in.SwiotlbFlag {
		return Placement{Memory: Bounced, Proof: StructPage, Places: in.DMA.places(m), Reason: "the scatter list is marked SG_DMA_SWIOTLB"}
	}
	// A bounce buffer is in RAM. An address that is in no known memory is one that the
	// bus counts in another way, as with memory encryption: the pages say where that is.
	if in.Displaced > 0 && in.Translation == Untranslated && has(in.DMA.places(m), KindOther) == 0 {
		return Placement{Memory: Bounced, Proof: DMAAddress, Places: in.DMA.places(m),
			Reason: fmt.Sprintf("%d of %d bytes have a DMA address that is not their page's, and no IOMMU translates", in.Displaced, in.DMA.Bytes)}
	}
	if !in.Resources.Empty() {
		return fromResources(in, m)
	}
	if in.MapType == MapTypeBusAddr || in.BusFlag {
		return fromBus(in, m)
	}
	if !in.Pages.Empty() {
		return fromPages(in, m)
	}
	if in.Translation == Untranslated && !in.DMA.Empty() {
		return verdict(in.DMA.places(m), DMAAddress, m)
	}
	return guess(in)
}

// fromResources judges physical addresses that the exporter handed in. They must
// account for every mapped byte, or for every byte that has no page.
func fromResources(in Inputs, m *Machine) Placement {
	places := in.Resources.places(m)
	switch {
	case in.Resources.Bytes == in.DMA.Bytes && !in.Pages.Empty():
		return unknown(fmt.Sprintf("physical addresses were seen for all %d bytes that were mapped, and pages of the kernel's for %d of them", in.DMA.Bytes, in.Pages.Bytes))
	case in.Resources.Bytes == in.DMA.Bytes:
		p := verdict(places, PhysicalAddress, m)
		if p.Memory == PeerToPeer && in.MapType == MapTypeBusAddr {
			p.Proof = BusAddress
		}
		return p
	case in.Resources.Bytes < in.DMA.Bytes && in.Resources.Bytes+in.Pages.Bytes == in.DMA.Bytes:
		for _, q := range in.Pages.places(m) {
			places = addPlace(places, q)
		}
		return verdict(places, PhysicalAddress, m)
	}
	return unknown(fmt.Sprintf("physical addresses were seen for %d bytes and %d were mapped", in.Resources.Bytes, in.DMA.Bytes))
}

// fromBus judges bus addresses, which on x86 are the CPU's. Beside them the list
// may have entries of another kind.
func fromBus(in Inputs, m *Machine) Placement {
	if !in.DMA.Empty() && in.Pages.Bytes == in.DMA.Bytes {
		p := fromPages(in, m)
		if p.Memory == PeerToPeer {
			p.Proof = BusAddress
		}
		return p
	}
	places := in.DMA.places(m)
	behind := has(places, KindBAR)
	switch {
	case len(places) == 0:
		return unknown("PCI bus addresses were chosen, and the mapping's addresses were not seen")
	case behind == in.DMA.Bytes:
		return Placement{Memory: PeerToPeer, Proof: BusAddress, Places: places}
	case in.Translation == Untranslated:
		return verdict(places, DMAAddress, m)
	case behind == 0:
		return unknown("PCI bus addresses were chosen, and none of those that were seen lies behind a BAR")
	}
	return unknown(fmt.Sprintf("%d of %d bytes are at PCI bus addresses behind a BAR, and the others may have IOVAs", behind, in.DMA.Bytes))
}

// fromPages judges the pages of the scatter list.
func fromPages(in Inputs, m *Machine) Placement {
	places := in.Pages.places(m)
	missing := uint64(0)
	if in.DMA.Bytes > in.Pages.Bytes {
		missing = in.DMA.Bytes - in.Pages.Bytes
	}
	if missing == 0 {
		return verdict(places, StructPage, m)
	}
	// Entries without a page beside entries with one.
	if in.Translation == Untranslated {
		return verdict(in.DMA.places(m), DMAAddress, m)
	}
	return unknown(fmt.Sprintf("%d of %d bytes have no page and only an IOVA", missing, in.DMA.Bytes))
}

// verdict turns proven places into a verdict.
func verdict(places []Place, proof Proof, m *Machine) Placement {
	p := Placement{Proof: proof, Places: places}
	switch {
	case len(places) == 0:
		return unknown("the mapping has no bytes")
	case has(places, KindOther) > 0:
		p.Memory, p.Proof = Unknown, NoProof
		p.Reason = fmt.Sprintf("%d bytes at addresses (%#x and up) that are in no BAR and not listed as RAM", has(places, KindOther), lowest(places, KindOther))
		if len(m.RAM) == 0 {
			p.Reason = "the machine's RAM is not known (reading /proc/iomem needs root), so an address in no BAR proves nothing"
		}
	case only(places, KindBAR):
		p.Memory = PeerToPeer
	case only(places, KindRAM):
		p.Memory = SystemMemory
	case only(places, KindCoherent):
		p.Memory = CoherentGPUMemory
	default:
		p.Memory = Mixed
	}
	return p
}

func lowest(places []Place, k Kind) uint64 {
	low := ^uint64(0)
	for _, p := range places {
		if p.Kind == k {
			low = min(low, p.Low)
		}
	}
	return low
}

// unread judges a walk that ended early. Two kinds of memory in the part that was
// read prove Mixed; one kind proves nothing about the rest.
func unread(in Inputs, m *Machine) Placement {
	v := in.DMA
	if !in.Pages.Empty() {
		v = in.Pages
	}
	p := verdict(v.places(m), NoProof, m)
	if p.Memory == Mixed && (in.Translation == Untranslated || !in.Pages.Empty()) {
		p.Proof = DMAAddress
		if !in.Pages.Empty() {
			p.Proof = StructPage
		}
		p.Reason = "the scatter list was longer than the walk: the bytes given are of its beginning"
		return p
	}
	q := unknown(fmt.Sprintf("the scatter list was longer than the walk: only its first %d bytes were seen", v.Bytes))
	q.Places, q.Likely = p.Places, p.Memory
	return q
}

// guess returns the likely placement where only an IOVA is known.
func guess(in Inputs) Placement {
	why := "only device addresses were seen, and an IOMMU translates them"
	if in.Translation == TranslationUnknown {
		why = "only device addresses were seen, and whether an IOMMU translates them is not known"
	}
	if in.DMA.Empty() {
		why = "the mapping's addresses were not seen"
	}
	p := unknown(why)
	switch {
	case in.PagesOpaque > 0:
		p.Reason += "; the entries have pages, whose addresses could not be told on this machine"
		p.Likely = SystemMemory
	case in.PeerAllowed == No && vetoes[in.Exporter]:
		p.Reason += "; " + in.Exporter + " does not leave a buffer in its own memory for an importer that may not reach it"
		p.Likely = SystemMemory
	case in.PeerAllowed == Yes && !in.DMA.Empty():
		p.Reason += "; peer-to-peer was allowed and the entries have no pages"
		p.Likely = PeerToPeer
	}
	return p
}

func unknown(reason string) Placement { return Placement{Memory: Unknown, Reason: reason} }

// route says which way the bytes go, where the kernel said so.
func route(in Inputs, p Placement) (Route, string) {
	switch {
	case p.Memory != PeerToPeer && p.Memory != Mixed:
		return RouteUnknown, ""
	case in.MapType == MapTypeBusAddr || in.BusFlag:
		return BelowSwitch, "the kernel chose PCI bus addresses"
	case in.MapType == MapTypeThruHostBridge:
		return ThroughRootComplex, "the kernel chose the way through the host bridge"
	}
	if in.Reach == MapTypeBusAddr || in.Reach == MapTypeThruHostBridge {
		return reached(in)
	}
	return RouteUnknown, "the kernel was not seen deciding between switch and root complex"
}

// reached says which way addresses go that the DMA API made of physical ones
// (dma_map_resource), after the kernel had found one. Untranslated they are the
// bus's own, and bridges send them the way that it found.
func reached(in Inputs) (Route, string) {
	switch {
	case in.Translation == Translated:
		return RouteUnknown, "an IOMMU translates the addresses: through the root complex, unless the importer has a translation cache of its own (ATS)"
	case in.Translation != Untranslated:
		return RouteUnknown, "whether an IOMMU translates the addresses is not known"
	case in.Reach == MapTypeBusAddr:
		return BelowSwitch, "the kernel found a common switch that lets them pass, and nothing translates the addresses"
	}
	return ThroughRootComplex, "the kernel found a way through the host bridge only"
}

// devices lists the PCI functions that hold bytes, in order.
func devices(places []Place) string {
	var names []string
	for _, p := range places {
		if p.Kind == KindBAR || p.Kind == KindCoherent {
			names = append(names, p.String())
		}
	}
	return strings.Join(names, ", ")
}

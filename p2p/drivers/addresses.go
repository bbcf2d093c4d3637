// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"cmp"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/placement"
)

// addresses answers whether the NIC can use the addresses that it gets.
func (r *rules) addresses() chain.Answer {
	// The importer has mapped the buffer. It now maps it in the kernel's own address space, too.
	if noVmap := r.e.ofNVIDIA() || r.e.Class == ClassVFIO; r.i.ByCPU && noVmap {
		return chain.Refuse(unix.EOPNOTSUPP, chain.StageDriver, "the importer moves data by the CPU, and %v has no vmap for it", r.e.Class)
	}
	a := r.given()
	if a.State.Good() && r.e.PCI != nil {
		if bad, ok := r.unplaced(); ok {
			return bad
		}
		if bad, ok := r.beyond(); ok {
			return bad
		}
	}
	return a
}

// given answers by the kind of addresses that the exporter gives to the importer.
func (r *rules) given() chain.Answer {
	switch {
	case r.e.Driver == "nvidia" && r.e.Class != ClassNVIDIACoherent: // of either modules: both have the same nv-dma.c
		return r.nvidiaAddresses()
	case r.e.Class == ClassVFIO && r.p.Decision.Type == p2pdma.MapBusAddress:
		r.p.Address = AddressBus
		return chain.Hold("bus addresses, past any IOMMU")
	case r.e.Class == ClassVFIO && r.p.Decision.Type != p2pdma.MapThroughHostBridge:
		return chain.Hold("") // by bus address or through the host bridge: both reach the memory
	}
	t, why := r.m.TranslationOf(r.i.PCI)
	r.p.Address = r.mapped()
	at := r.iommuFile()
	switch {
	case t == machine.Translated:
		return chain.Hold("the exporter maps the memory in the IOMMU").With(at, "%s", r.iommuType())
	case t == machine.Untranslated:
		return chain.Hold("").With(at, "%s", r.iommuType())
	case r.i.ByCPU:
		r.note("%s", why)
		return chain.Hold("")
	}
	return chain.Open("%s", why).With(at, "not known")
}

// iommuFile is the file with the type of the NIC's IOMMU domain.
func (r *rules) iommuFile() string {
	if r.i.PCI == nil {
		return "no PCI function"
	}
	return "/sys/bus/pci/devices/" + r.i.PCI.String() + "/iommu_group/type"
}

// iommuType is the content of that file: "none" without an IOMMU.
func (r *rules) iommuType() string {
	if r.i.PCI == nil {
		return ""
	}
	kind, err := pci.IOMMUType(r.m.Sys, *r.i.PCI)
	if err != nil {
		return "not read"
	}
	return cmp.Or(kind, "none")
}

// mapped is the kind of addresses that the DMA API returns for the importer.
func (r *rules) mapped() Address {
	switch t, _ := r.m.TranslationOf(r.i.PCI); t {
	case machine.Translated:
		return AddressIOVA
	case machine.Untranslated:
		return AddressPhysical
	}
	return AddressUnknown
}

// nvidiaAddresses is nv_dma_map_peer(): NVIDIA's driver maps its memory in an IOMMU that
// translates only if a parameter allows it and get_dma_ops() returns a table. Since Linux
// 6.12 it returns NULL there (the IOMMU's code has no dma_map_ops any more), and the driver
// gives the NIC the BAR's bus addresses, which the IOMMU does not map.
func (r *rules) nvidiaAddresses() chain.Answer {
	t, why := r.m.TranslationOf(r.i.PCI)
	at := r.iommuFile()
	switch t {
	case machine.Untranslated:
		r.p.Address = AddressPhysical
		return chain.Hold("").With(at, "%s", r.iommuType())
	case machine.TranslationUnknown:
		return chain.Open("%s", why).With(at, "not known")
	}
	if series := NVIDIASeries(r.m); series < firstRead {
		return chain.Open("%s, and whether this version of the driver maps its memory in it was not read", why).With("/sys/module/nvidia/version", "")
	}
	const params = "/proc/driver/nvidia/params"
	read := r.m.Read(params[1:])
	remap, _ := read.Line("DmaRemapPeerMmio")
	maps := r.m.Kernel.IOMMUHasDMAOps()
	switch {
	case remap != RemapOff && remap != RemapOn && maps != placement.No:
		if read.Err != nil {
			return chain.Open("%s, and whether the driver maps its memory in it is not known: %s: %s", why, read.Where, read.Why()).With(params, "not read")
		}
		return chain.Open("%s, and whether the driver maps its memory in it is not known: DmaRemapPeerMmio is %q", why, remap).With(params, "DmaRemapPeerMmio: %s", remap)
	case remap != RemapOff && maps == placement.AnswerUnknown:
		return chain.Open("%s, and whether NVIDIA's driver can map its memory in it on %s is not known: from Linux 6.12 on it cannot", why, r.m.Kernel.Release).
			With("/proc/sys/kernel/osrelease", "%s", r.m.Kernel.Release)
	case remap == RemapOn && maps == placement.Yes:
		r.p.Address = AddressIOVA
		return chain.Hold("the driver maps its memory in the IOMMU").With(at, "%s", r.iommuType()).With(params, "DmaRemapPeerMmio: 1")
	}
	cause := "from Linux 6.12 on the driver maps nothing in it, whatever DmaRemapPeerMmio says"
	if remap == RemapOff {
		cause = "the driver maps nothing in it (DmaRemapPeerMmio: 0)"
	}
	r.p.Address = AddressBus
	d := p2pdma.Path(r.m, *r.e.PCI, *r.i.PCI)
	switch {
	case d.Common == nil && d.Unread != nil:
		return chain.Open("%s, and %s: whether the traffic meets the IOMMU is not known: %v", why, cause, d.Unread).With(at, "%s", r.iommuType())
	case d.Common != nil && len(d.Redirects) == 0 && d.Unread == nil:
		return chain.Hold("%s, and %s: the traffic stays below %v, and never meets the IOMMU", why, cause, *d.Common).With(at, "%s", r.iommuType())
	case d.Common != nil && len(d.Redirects) == 0:
		return chain.Open("%s, and %s: that matters unless no port sends the traffic to the root, which is not known: %v", why, cause, d.Unread).With(at, "%s", r.iommuType())
	case d.Common != nil && !d.RedirectsRequests(r.m, *r.i.PCI):
		return chain.Open("%s, and %s: no port above the NIC redirects its requests, but another port on the way does, and whether the traffic meets the IOMMU is not known", why, cause).With(at, "%s", r.iommuType())
	}
	return chain.Break(chain.Lost, "%s, and %s: the IOMMU blocks the traffic", why, cause).With(at, "%s", r.iommuType())
}

// firstRead is the first series of NVIDIA's driver whose nv-dma.c was read.
const firstRead = 515

// unplaced answers for a GPU whose BAR has no address.
func (r *rules) unplaced() (chain.Answer, bool) {
	window := "/sys/bus/pci/devices/" + r.e.PCI.String() + "/resource"
	switch unplaced, err := r.m.Unplaced(*r.e.PCI); {
	case unplaced:
		return chain.Break(chain.Broken, "the GPU's BAR has no address: see PCIE-BAR-ASSIGNED").With(window, "no address"), true
	case err != nil:
		return chain.Open("whether the GPU's BAR has an address is not known: %v", err).With(window, "not read"), true
	}
	return chain.Answer{}, false
}

// beyond answers for memory that lies beyond what the NIC can address. The IOMMU makes addresses
// that do not.
func (r *rules) beyond() (chain.Answer, bool) {
	if r.i.PCI == nil || r.i.ByCPU {
		return chain.Answer{}, false
	}
	if r.p.Address == AddressIOVA {
		if r.p.Decision.Type == p2pdma.MapBusAddress && r.e.Class != ClassNVIDIACoherent {
			r.note("the kernel allows the short way, but an IOVA is translated at the root: the traffic goes there and back (iommu=pt avoids that)")
		}
		return chain.Answer{}, false
	}
	bar, ok := r.m.LargestBAR(*r.e.PCI)
	start := bar.Start
	if bus, known := r.m.BusAddress(*r.e.PCI); ok && known && bus != start && r.e.Class != ClassNVIDIACoherent {
		if r.p.Address != AddressBus {
			return chain.Open("the GPU's BAR is at %#x for the processor and at %#x on its bus, the NIC gets the former, and whether that arrives is not known", start, bus).
				With("/sys/bus/pci/devices/"+r.e.PCI.String()+"/config", "%#x", bus), true
		}
		start = bus
	}
	mask := "/sys/bus/pci/devices/" + r.i.PCI.String() + "/dma_mask_bits"
	bits, err := r.m.DMABits(*r.i.PCI)
	if err != nil {
		return chain.Open("how many address bits %v has is not known: %v", *r.i.PCI, err).With(mask, "not read"), true
	}
	switch {
	case bits >= 64 || !ok:
	case r.e.Class == ClassNVIDIACoherent: // its pages are not in the BAR
		return chain.Open("%v has %d address bits, and where the GPU's memory is is not known", *r.i.PCI, bits).With(mask, "%d", bits), true
	case (start+bar.Size-1)>>bits != 0:
		return chain.Break(chain.Broken, "the BAR ends at %#x, beyond the %d address bits of %v", start+bar.Size-1, bits, *r.i.PCI).With(mask, "%d", bits), true
	}
	return chain.Answer{}, false
}

// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/softgpu"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// nvidia has the rules of nv_dma_buf_attach(), and of nvidia_p2p_dma_map_pages() for a peer-memory
// client. Both check the same gate.
func (r *rules) nvidia() chain.Answer {
	const params = "/proc/driver/nvidia/params"
	// The driver does not check a static importer, because it has no callbacks.
	if r.i.Kind != Static && !r.i.PeerToPeer && !r.p.ByPeerMem {
		return r.withoutPages()
	}
	a := chain.Answer{}
	switch {
	case r.e.Gate == GateOpen:
		a = chain.Hold("the driver lets any importer attach")
	case r.p.ByPeerMem && NVIDIASeries(r.m) > 0 && NVIDIASeries(r.m) < gateSince:
		a = chain.Hold("the driver lets any NIC map its pages")
	case r.e.Gate == GateUnread:
		a = chain.Open("which importers this version of the driver lets attach was not read").With("/sys/module/nvidia/version", "")
	case r.e.Gate == GateParameter:
		a = chain.Open("whether the driver's gate is closed by GrdmaPciTopoCheckOverride is not known: %s", r.gateParameter()).With(params, "GrdmaPciTopoCheckOverride")
	case r.e.Gate == GateClosed:
		a = chain.Refuse(errno.ENOTSUPP, chain.StageAttach, "the driver's gate is closed by a parameter (GrdmaPciTopoCheckOverride: 2)").With(params, "GrdmaPciTopoCheckOverride: 2")
	case r.i.PCI == nil && r.e.Gate == GateUnknown:
		a = chain.Open("whether the driver's gate asks for a common bridge is not known, and the importer is on no PCI bus")
	case r.i.PCI == nil:
		a = chain.Refuse(errno.ENOTSUPP, chain.StageAttach, "the importer is on no PCI bus, and the driver's gate asks for a common bridge")
	default:
		a = r.gateBridge()
	}
	if d := r.p.Decision; a.State.Good() && d.Supported != placement.Yes {
		r.note("the driver does not ask for the kernel's decision, which is: %v", d)
	}
	return a
}

// gateParameter is why the gate's parameter is not known.
func (r *rules) gateParameter() string {
	read := r.m.Read("proc/driver/nvidia/params")
	if read.Err != nil {
		return read.Where + ": " + read.Why()
	}
	switch value, ok := read.Line("GrdmaPciTopoCheckOverride"); {
	case ok && value == "2":
		return "it is 2, and the driver uses it only for memory that the CPU does not cache"
	case ok:
		return "it is " + value + ", a value that no source that was read has"
	}
	return read.Where + " does not have it"
}

// coherent has the rules for memory that the CPU caches. Such memory has pages. The driver maps
// it for any importer in the same way as system memory.
func (r *rules) coherent() chain.Answer {
	if r.e.Driver == "nvidia" {
		if _, read := gates[NVIDIASeries(r.m)]; !read {
			return chain.Open("how this version of the driver exports the memory was not read").With("/sys/module/nvidia/version", "")
		}
		params := r.m.Read("proc/driver/nvidia/params")
		if params.Err != nil {
			return chain.Open("whether the driver keeps the GPU's memory to itself (CoherentGPUMemoryMode) is not known: %s", params.Why()).With(params.Where, "not read")
		}
		mode, there := params.Line("CoherentGPUMemoryMode")
		if !there && cutParams(params) || there && mode == "" {
			return chain.Open("whether the driver keeps the GPU's memory to itself (CoherentGPUMemoryMode) is not known: the file has not all parameters").With(params.Where, "without CoherentGPUMemoryMode")
		}
		if there && mode != `""` && mode != `"numa"` {
			return chain.Open("the driver keeps the GPU's memory to itself (CoherentGPUMemoryMode), and how it then exports it was not read").
				With("/proc/driver/nvidia/params", "CoherentGPUMemoryMode: %s", mode)
		}
	}
	return chain.Hold("GPU memory with pages is mapped as system memory is, for any importer")
}

// cutParams reports a file of the driver's parameters that may lack the texts, which come after the
// numbers. The whole file begins with ResmanDebugLevel; an excerpt has at least DmaRemapPeerMmio.
func cutParams(params machine.Reading) bool {
	has := func(name string) bool { _, ok := params.Line(name); return ok }
	texts := slices.ContainsFunc([]string{"RegistryDwords", "RegistryDwordsPerDevice", "RmMsg", "ExcludedGpus"}, has)
	return !strings.HasSuffix(params.All, "\n") || has("ResmanDebugLevel") && !texts || !has("DmaRemapPeerMmio")
}

// withoutPages answers for an importer of NVIDIA's memory that does not want peer-to-peer.
// GPU memory has pages only on machines with Grace.
func (r *rules) withoutPages() chain.Answer {
	const importer = "the importer does not want peer-to-peer"
	switch {
	case r.e.Peer == PeerUnread:
		return chain.Open("%s, and how this version of the driver treats that was not read", importer)
	case r.mayHavePages():
		return chain.Open("%s, which the driver accepts for memory with pages only: whether this GPU's has them is not known", importer)
	case r.e.Peer == PeerAtAttach:
		return chain.Refuse(errno.ENOTSUPP, chain.StageAttach, "%s, and the driver lets only importers attach that want it", importer)
	case r.m.Kernel.Between(machine.V6_12, machine.V7_2) == placement.No, r.e.Driver == softgpu.Module:
		return chain.Refuse(unix.ENOMEM, chain.StageMap, "%s, and the driver then maps nothing; up to %v attach maps the buffer", importer, machine.V6_12)
	}
	// The driver calls a function that newer kernels do not export to modules.
	return chain.Open("%s, and whether the driver then maps anything is not known of this version with %s", importer, r.m.Kernel.Release)
}

// mayHavePages reports GPU memory that may have pages, although the GPU is not known to be
// one whose memory has: the processor caches GPU memory, or may do so, and the GPU is on a
// way that only Grace has, or the way is a virtual machine's. The software GPU says itself
// which kind it is.
func (r *rules) mayHavePages() bool {
	switch {
	case !r.m.CPU.Known:
		return true
	case r.e.Driver == softgpu.Module, r.m.CachesGPUs() == placement.No:
		return false
	}
	return r.m.Virtual.Is != placement.No || MayBeCoherent(r.m, r.e)
}

// gateBridge looks for a bridge above both functions.
func (r *rules) gateBridge() chain.Answer {
	gpu, nic := r.m.Node(*r.e.PCI), r.m.Node(*r.i.PCI)
	for _, n := range []*machine.Node{gpu, nic} {
		if n.Err != nil {
			return chain.Open("%v", n.Err)
		}
	}
	for _, x := range gpu.Up {
		if slices.Contains(nic.Up, x) {
			return chain.Hold("both are below the bridge %v, which the driver's gate asks for", x)
		}
	}
	if r.e.Gate == GateUnknown {
		return chain.Open("no bridge is above both, and whether the driver's gate asks for one is not known").With("/proc/driver/nvidia/params", "")
	}
	return chain.Refuse(errno.ENOTSUPP, chain.StageAttach, "no bridge is above both, and the driver's gate asks for one")
}

// gateSince is the first series with a gate: nv_grdma_pci_topology_supported().
const gateSince = 580

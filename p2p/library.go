// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/product"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// library answers whether the vendor's library gives the GPU's memory to NICs at all. The library's
// own answer counts before the tables of products.
func library(m *machine.Machine, e drivers.Exporter, byPeerMem bool) chain.Answer {
	switch {
	case e.Class == drivers.ClassSystem || e.Class == drivers.ClassStaged || e.Class == drivers.ClassI915 || e.PCI == nil:
		return chain.Skip("") // the kernel's driver exports, and no library is asked
	case e.Driver == "":
		return chain.Skip("") // nothing is exported, which the link of the exporter says
	case e.Driver == drivers.UnknownDriver:
		return chain.Open("which driver the GPU has is not known")
	}
	switch virtual := virtualGPU(m, e); {
	case virtual == placement.Yes && e.Driver == "nvidia":
		return chain.Refuse(0, chain.StageExport, "%v is a virtual function, which NVIDIA's driver keeps for a guest", *e.PCI).
			With("/sys/bus/pci/devices/"+e.PCI.String()+"/physfn", "").Fix(&chain.Remedy{Change: "run p2pcheck in the guest; on the host use the physical function"})
	case virtual == placement.Yes:
		return chain.Open("%v is a virtual function, and whether the driver of the host gives out its memory was not read", *e.PCI).
			With("/sys/bus/pci/devices/"+e.PCI.String()+"/physfn", "")
	case virtual == placement.AnswerUnknown:
		return chain.Open("whether %v is a virtual function is not known", *e.PCI).
			With("/sys/bus/pci/devices/"+e.PCI.String()+"/physfn", "")
	case e.Withheld != "":
		return chain.Refuse(0, chain.StageExport, "%s", e.Withheld).
			Fix(&chain.Remedy{Change: "see NV-CC and NV-DMABUF-ATTR: the driver exports nothing"})
	case e.Given && !byPeerMem:
		return chain.Hold("").With("CUDA", "CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED: 1")
	}
	said := Product(m, e)
	gives := said.DMABuf
	if byPeerMem {
		gives = said.PeerMem
	} else if gives != product.Yes && said.PeerMem == product.Yes {
		switch there, where := drivers.PeerClient(m, e.Driver); {
		case there == placement.Yes:
			gives = product.Yes
		case there == placement.AnswerUnknown && gives == product.No:
			return chain.Open("only the peer-memory client gives this GPU's memory to NICs, and whether it is registered with ib_core is not known").With(where, "not read")
		}
	}
	return answerOf(e, said, gives)
}

// virtualGPU says whether a GPU is a virtual function of a host, where that matters: by its link. The vendor in
// its configuration space reads as ones, too.
func virtualGPU(m *machine.Machine, e drivers.Exporter) placement.Answer {
	if e.Driver != "nvidia" && e.Driver != "amdgpu" {
		return placement.No
	}
	_, is, err := pci.PhysicalFunction(m.Sys, *e.PCI)
	c, unread := pci.ReadConfig(m.Sys, *e.PCI)
	switch {
	case is:
		return placement.Yes
	case err != nil || unread == nil && c.Virtual():
		return placement.AnswerUnknown
	}
	return placement.No
}

// Exports predicts whether the vendor's library exports dma-bufs of the GPU's memory, by the
// product and the loaded modules. It only reads files.
func Exports(m *machine.Machine, e drivers.Exporter) chain.Answer {
	e.Withheld, e.Given = "", false
	switch a := library(m, e, false); {
	case a.State == chain.NotAsked || e.Driver == drivers.UnknownDriver:
		return a
	case m.Config != nil && m.Config.Answer(machine.ConfigDMABuf) == placement.No:
		return chain.Refuse(0, chain.StageExport, "the kernel is built without %s", machine.ConfigDMABuf).
			With(m.Kernel.Source, "%s is not set", machine.ConfigDMABuf)
	case e.Proprietary:
		return chain.Refuse(0, chain.StageExport, "NVIDIA's proprietary modules export no dma-bufs").
			With("/sys/module/nvidia/taint", "P")
	}
	said := Product(m, e)
	if said.DMABuf == product.Yes && e.Driver == "nvidia" && e.Class == drivers.ClassUnknown {
		return chain.Open("whether NVIDIA's modules are the open ones, which alone export dma-bufs, is not known").
			With("/sys/module/nvidia/taint", "not read")
	}
	return answerOf(e, said, said.DMABuf)
}

// answerOf is the answer for one route of a product.
func answerOf(e drivers.Exporter, said product.Answer, gives product.Tri) chain.Answer {
	var a chain.Answer
	switch gives {
	case product.Yes:
		a = chain.Hold("")
	case product.No:
		a = chain.Refuse(0, chain.StageExport, "%s", strings.Join(append([]string{said.Why}, said.Limits...), "; "))
		if said.Shared == product.Yes && e.Driver != "nvidia" {
			a = chain.Break(chain.Staged, "%s", said.Why)
		}
	default:
		a = chain.Open("%s", said.Why)
		if said.Read != "" {
			a.Remedy = &chain.Remedy{Change: said.Read}
		}
	}
	for _, v := range said.Evidence {
		a = a.With(strings.ReplaceAll(v.File, "*", e.PCI.String()), "%s", v.Value)
	}
	if said.Change != "" && gives != product.Yes {
		a.Remedy = &chain.Remedy{Change: said.Change}
	}
	return a
}

// Product says whether the vendor's library gives the memory of a GPU's product to NICs.
func Product(m *machine.Machine, e drivers.Exporter) product.Answer {
	return machine.Once(m, "product of "+e.PCI.String(), func() product.Answer {
		return product.Of(productFacts(m, e))
	})
}

// productFacts reads the facts that the tables of products need.
func productFacts(m *machine.Machine, e drivers.Exporter) product.Facts {
	a := *e.PCI
	f := product.Facts{Driver: e.Driver, Virtual: product.Tri(m.Virtual.Is)}
	if id, err := pci.ReadFunction(m.Sys, a); err == nil {
		f.Vendor, f.Device = id.Vendor, id.Device
	}
	if e.Driver == "nvidia" {
		info := m.Read("proc/driver/nvidia/gpus", a.String(), "information")
		f.Model, f.ModelRead = info.Line("Model")
		f.ModelRead = f.ModelRead && info.Err == nil
		f.Firmware, _ = info.Line("GPU Firmware")
		f.Series = drivers.NVIDIASeries(m)
		f.OpenModules = product.Yes // whether they are is a question of the route
		f.Confidential, f.Encryption = confidential(m)
	}
	f.VRAM, f.VisibleVRAM = memInfo(m, a, "vram"), memInfo(m, a, "vis_vram")
	if bar, ok := m.LargestBAR(a); ok {
		f.BAR = product.Size{Bytes: bar.Size, Read: true}
	}
	f.Arch = m.Arch()
	return f
}

// forcesConfidential is NVIDIA's parameter that turns confidential computing on in a guest whose
// memory is not encrypted (NV_REG_STR_RM_CONFIDENTIAL_COMPUTE).
const forcesConfidential = "rmconfidentialcompute"

// confidential reads whether the machine's NVIDIA GPUs are in the mode of confidential computing.
func confidential(m *machine.Machine) (product.Tri, product.Evidence) {
	e := m.Encrypted()
	if e.Is != placement.No || m.Virtual.Is == placement.No {
		return product.Tri(e.Is), product.Evidence{File: file(e.Where), Value: e.Why}
	}
	params := m.Read("proc/driver/nvidia/params")
	switch _, whole := params.Line("RegistryDwords"); {
	case params.Err != nil && !params.Gone():
		return product.Unknown, product.Evidence{File: params.Where, Value: params.Why()}
	case params.Err == nil && !whole: // a snapshot leaves out a value that it does not know
		return product.Unknown, product.Evidence{File: params.Where, Value: "without RegistryDwords"}
	case strings.Contains(strings.ToLower(params.Text), forcesConfidential):
		return product.Unknown, product.Evidence{File: params.Where, Value: forcesConfidential}
	}
	return product.No, product.Evidence{File: file(e.Where), Value: e.Why}
}

// memInfo reads amdgpu's size of a kind of memory.
func memInfo(m *machine.Machine, a pciaddr.Addr, kind string) product.Size {
	n, ok := m.Read("sys/bus/pci/devices", a.String(), "mem_info_"+kind+"_total").Number()
	return product.Size{Bytes: n, Read: ok}
}

// SPDX-License-Identifier: Apache-2.0

package variables

import (
	"strings"

	"github.com/gpurdma/gpurdma/placement"
)

const (
	peermem   = "WITH_NVIDIA_PEERMEM"
	tent      = "MC_USE_TENT"
	tentOld   = "MC_USE_TEV1"
	forceTCP  = "MC_FORCE_TCP"
	mcImpl    = "Mooncake mooncake-transfer-engine/src/transfer_engine_impl.cpp"
	mcConfig  = "Mooncake mooncake-transfer-engine/src/config.cpp"
	mcContext = "Mooncake mooncake-transfer-engine/src/transport/rdma_transport/rdma_context.cpp"
	mcTENT    = "Mooncake mooncake-transfer-engine/tent/src/transport/rdma/rdma_transport.cpp, isGpuDirectRdmaSupported()"
)

// mooncakeEntries are those that choose Mooncake's transport and its registration.
var mooncakeEntries = []entry{
	{Variable: Variable{
		Name: peermem, Library: "Mooncake", Since: "0.3.11", Default: "0 in 0.3.11; 1 from 0.3.11.post1 on, where the documents still say 0",
		Effect: "1: GPU memory is registered by ibv_reg_mr(), which needs a peer-memory client; 0: by dma-buf",
		Source: "Mooncake mooncake-common/src/environ.cpp; " + mcContext + "; kvcache-ai/Mooncake#2066, #2192",
	}, vendors: []Vendor{NVIDIA}, set: func(j *judging, value string) verdict {
		return onOrOff(ofMooncake(value), misread("Mooncake", "1 or 0"), byPeerMem(j), byDMABuf(j))
	}, unset: func(j *judging) verdict {
		if !j.uses("MC_") || j.atLeast("Mooncake", 0, 3, 11) == placement.No || j.peerMem() != placement.No || j.DMABuf != placement.Yes {
			return verdict{}
		}
		return warn("Mooncake from 0.3.11.post1 on calls ibv_reg_mr() on GPU memory by default, and no peer-memory client is registered: EFAULT").
			so("let Mooncake register by dma-buf", peermem+"=0")
	}},
	{Variable: Variable{
		Name: "MC_IB_PCI_RELAXED_ORDERING", Library: "Mooncake", Since: "0.3.8", Default: "0 up to 0.3.12.post1; 1 after it",
		Effect: "0: strict ordering; 1 and 2: relaxed ordering where libibverbs has ibv_reg_mr_iova2()",
		Source: mcConfig + "; kvcache-ai/Mooncake#1076, #3205, #1459",
	}, set: func(j *judging, value string) verdict {
		switch n := number(value, 0); {
		case n < 0 || n > 2:
			return misread("Mooncake", "0, 1 or 2")
		case n > 0:
			return j.relaxed("Mooncake")
		}
		return j.strict("Mooncake", "MC_IB_PCI_RELAXED_ORDERING=1")
	}, unset: func(j *judging) verdict {
		if !j.uses("MC_", peermem) {
			return verdict{}
		}
		return j.lacks("Mooncake", "the version after 0.3.12.post1", "MC_IB_PCI_RELAXED_ORDERING=1", j.atLeast("Mooncake", 0, 3, 13))
	}},
	{Variable: Variable{
		Name: forceTCP, Library: "Mooncake", Since: "0.3.6", Default: "not set",
		Effect: "set to any text, 0 too: Mooncake uses TCP only",
		Source: mcImpl,
	}, set: func(j *judging, _ string) verdict {
		return j.costs("Mooncake uses TCP, whatever the value is, and copies")
	}},
	{Variable: Variable{
		Name: "MC_FORCE_HCA", Library: "Mooncake", Since: "0.3.8", Default: "not set",
		Effect: "set to any text, 0 too: Mooncake uses RDMA, and fails without a device",
		Source: mcImpl + "; docs/source/design/transfer-engine/index.md",
	}, alone: true, set: func(j *judging, _ string) verdict {
		switch {
		case len(j.Devices) > 0 || len(j.left(selection{}, NIC.verbs)) > 0:
			return pass("Mooncake uses RDMA, whatever the value is")
		case j.Devices == nil:
			return open("Mooncake fails without an RDMA device; which there are was not read")
		}
		return fail("Mooncake fails: this machine has no RDMA device").away()
	}},
	{Variable: Variable{
		Name: "MC_FORCE_MNNVL", Library: "Mooncake", Since: "0.3.5", Default: "not set",
		Effect: "set to any text: a build with multi-node NVLink uses it in place of RDMA",
		Source: mcImpl,
	}, vendors: []Vendor{NVIDIA}, set: func(j *judging, _ string) verdict {
		switch j.coherent() {
		case placement.No:
			return warn("Mooncake does not use RDMA if it is built with multi-node NVLink, which this machine does not have").away()
		case placement.Yes:
			return pass("Mooncake uses multi-node NVLink in place of RDMA if it is built with it; that reaches the GPUs of one NVLink domain")
		}
		return open("Mooncake uses multi-node NVLink in place of RDMA if it is built with it; whether the GPUs have it is not known")
	}},
	{Variable: Variable{
		Name: "MC_INTRANODE_NVLINK", Library: "Mooncake", Since: "0.3.9", Default: "not set; the documents call it MC_INTRA_NVLINK",
		Effect: "set to any text: a build with NVLink inside the machine uses only that",
		Source: mcImpl,
	}, vendors: []Vendor{NVIDIA}, set: func(j *judging, _ string) verdict {
		switch j.direct(NVIDIA) {
		case placement.No:
			return pass("Mooncake uses NVLink inside the machine, and no pair of this machine is direct")
		case placement.AnswerUnknown:
			return open("Mooncake installs no RDMA if it is built with NVLink inside the machine; whether a pair of this machine is direct is not known")
		}
		return warn("Mooncake installs no RDMA if it is built with NVLink inside the machine: it reaches no other machine").away()
	}},
	useTENT(tent), useTENT(tentOld),
	{Variable: Variable{
		Name: "MC_DISABLE_GPU_DIRECT_RDMA", Library: "Mooncake", Since: "0.3.8", Default: "false",
		Effect: "true: TENT copies GPU memory through system memory",
		Source: "Mooncake mooncake-transfer-engine/tent/src/common/config.cpp; " + mcTENT,
	}, set: func(j *judging, value string) verdict {
		if ofMooncake(value) == placement.No {
			return pass("TENT may use GPUDirect RDMA")
		}
		return j.costs("Mooncake with TENT copies")
	}},
	{Variable: Variable{
		Name: "MC_TENT_CONF", Library: "Mooncake", Since: "0.3.8", Default: "none",
		Effect: "TENT's settings as JSON, or the name of a file with them",
		Source: "Mooncake mooncake-transfer-engine/tent/src/common/config.cpp",
	}, set: func(*judging, string) verdict {
		return open("TENT takes settings from it that the other variables do not show")
	}},
	{Variable: Variable{
		Name: "MOONCAKE_DISABLE_HIP_DMABUF", Library: "Mooncake", Since: "0.3.12", Default: "not set",
		Effect: "set to any text but 0: ROCm memory is registered by ibv_reg_mr()",
		Source: mcContext + "; kvcache-ai/Mooncake#2225",
	}, vendors: []Vendor{AMD}, set: func(j *judging, value string) verdict {
		if value == "0" {
			return pass("Mooncake registers ROCm memory by dma-buf where it finds the kernel's options")
		}
		return j.byRegMR("Mooncake registers ROCm memory by ibv_reg_mr()").away()
	}},
}

// useTENT is a variable that chooses the engine TENT.
func useTENT(name string) entry {
	return entry{Variable: Variable{
		Name: name, Library: "Mooncake", Since: "0.3.8.post1", Default: "not set",
		Effect: "set to any text: the engine TENT, which uses GPUDirect RDMA only where nvidia_peermem or amdgpu is in /proc/modules",
		Source: "Mooncake mooncake-transfer-engine/src/transfer_engine.cpp; " + mcTENT + "; kvcache-ai/Mooncake#3242",
	}, set: func(j *judging, _ string) verdict {
		switch {
		case j.direct(NVIDIA) == placement.No:
			return pass("no pair of an NVIDIA GPU is direct, and of AMD GPUs TENT looks for amdgpu")
		case j.PeerModule == placement.Yes && j.PeerMem == placement.No:
			return fail("TENT sees the module nvidia_peermem and calls ibv_reg_mr() on GPU memory, and no client is registered: EFAULT").away()
		case j.PeerModule == placement.Yes && j.PeerMem == placement.AnswerUnknown:
			return open("TENT sees the module nvidia_peermem and calls ibv_reg_mr() on GPU memory; whether the client is registered is not known")
		case j.PeerModule == placement.Yes:
			return pass("TENT sees the module nvidia_peermem, and uses GPUDirect RDMA")
		case j.PeerModule == placement.No:
			return warn("TENT copies through system memory without the module nvidia_peermem, also where dma-bufs work").away()
		}
		return open("TENT uses GPUDirect RDMA if the module nvidia_peermem is loaded, which was not read")
	}}
}

func byPeerMem(j *judging) verdict {
	v := j.byRegMR("Mooncake registers GPU memory by ibv_reg_mr()")
	if v.result == ResultFail {
		return v.so("let Mooncake register by dma-buf, or load nvidia_peermem against an ib_core that it fits", peermem+"=0")
	}
	return v
}

func byDMABuf(j *judging) verdict {
	switch j.DMABuf {
	case placement.Yes:
		return pass("Mooncake registers GPU memory by dma-buf")
	case placement.No:
		if j.peerMem() == placement.Yes {
			return fail("Mooncake registers GPU memory by dma-buf, and no dma-buf route exists here; a peer-memory client is registered").
				so("let Mooncake use the peer-memory client", peermem+"=1")
		}
		return fail("Mooncake registers GPU memory by dma-buf, and no dma-buf route exists here")
	}
	return open("Mooncake registers GPU memory by dma-buf; whether there is a route is not known")
}

// off reports a text by which a person means off.
func off(value string) bool {
	return ofMooncake(value) == placement.No || strings.TrimSpace(value) == ""
}

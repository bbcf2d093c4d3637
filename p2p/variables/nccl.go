// SPDX-License-Identifier: Apache-2.0

package variables

import (
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/placement"
)

// nccls are the GPUs that NCCL and RCCL drive.
var nccls = []Vendor{NVIDIA, AMD}

const gdrLevel, gdrC2C = "NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_C2C"

var ncclEntries = []entry{
	{Variable: Variable{
		Name: "NCCL_DMABUF_ENABLE", Library: "NCCL", Since: "2.13", Default: "1; RCCL up to ROCm 7.2: 0",
		Effect: "0: GPU memory is registered by a peer-memory client only",
		Source: "nccl src/init.cc, dmaBufSupported(); rccl src/misc/rocmwrap.cc",
	}, vendors: nccls, set: dmabufEnable, unset: dmabufOnAMD},
	{Variable: Variable{
		Name: gdrLevel, Library: "NCCL", Since: "2.4", Default: "PXB; P2C with NCCL_NET_GDR_C2C from 2.29 on",
		Effect: "GPUDirect RDMA is used up to this distance between GPU and NIC",
		Source: "nccl src/graph/paths.cc, ncclTopoCheckGdr(); NVIDIA/nccl#1151, #1343",
	}, vendors: nccls, set: level, unset: func(j *judging) verdict { return level(j, "") }},
	{Variable: Variable{
		Name: gdrC2C, Library: "NCCL", Since: "2.26", Default: "0 in 2.26; 1 from 2.27 on",
		Effect: "1: GPUDirect RDMA over C2C to NICs on the CPU's own ports",
		Source: "nccl src/graph/paths.cc, ncclTopoCheckGdr(); NVIDIA/nccl#1579; coreweave/nccl-tests#48",
	}, vendors: []Vendor{NVIDIA}, set: c2c, unset: noC2C},
	{Variable: Variable{
		Name: "NCCL_NET_GDR_READ", Library: "NCCL", Since: "2.3.5", Default: "-2: off before compute capability 8.0 without NVLink",
		Effect: "0: the data that a GPU sends is copied through system memory",
		Source: "nccl src/graph/paths.cc, ncclTopoCheckGdr()",
	}, vendors: nccls, set: gdrRead},
	{Variable: Variable{
		Name: "NCCL_IB_DATA_DIRECT", Library: "NCCL", Since: "2.27", Default: "1",
		Effect: "0: NCCL uses the NIC by its PCI function only, not by its Data Direct function",
		Source: "nccl src/transport/net_ib/init.cc",
	}, vendors: []Vendor{NVIDIA}, set: ncclDataDirect},
	{Variable: Variable{
		Name: "NCCL_IB_PCI_RELAXED_ORDERING", Library: "NCCL", Since: "2.12", Default: "2: on where libibverbs has ibv_reg_mr_iova2()",
		Effect: "0: strict ordering; mlx5 asks for ATS with relaxed ordering only",
		Source: "nccl src/transport/net_ib/init.cc; linux drivers/infiniband/hw/mlx5/umem.c, mlx5_umem_needs_ats()",
	}, vendors: nccls, set: func(j *judging, value string) verdict {
		if number(value, 2) != 0 {
			return j.relaxed("NCCL")
		}
		return j.strict("NCCL", "")
	}},
	{Variable: Variable{
		Name: "NCCL_NET_GDR_MLOPART", Library: "NCCL", Since: "2.30.7", Default: "0",
		Effect: "0: no GPUDirect RDMA on a GPU that is an MLOPart partition",
		Source: "nccl src/graph/paths.cc, ncclTopoCheckGdr()",
	}, vendors: []Vendor{NVIDIA}, set: mloPart, unset: func(j *judging) verdict { return mloPart(j, "0") }},
	{Variable: Variable{
		Name: "NCCL_CUMEM_ENABLE", Library: "NCCL", Since: "2.18", Default: "0 in 2.18; -2, on where the GPU has it, from 2.19 on",
		Effect: "0: buffers come from cudaMalloc(); multi-node NVLink is off, and its traffic takes the NICs",
		Source: "nccl src/misc/cudawrap.cc; src/mnnvl.cc",
	}, vendors: nccls, set: cuMem},
	{Variable: Variable{
		Name: "NCCL_P2P_DISABLE", Library: "NCCL", Since: "2.3.5", Default: "0",
		Effect: "1: GPUs of one machine exchange through system memory; the pairs of GPU and NIC stay as they are",
		Source: "nccl src/graph/paths.cc, ncclGetUserP2pLevel()",
	}, vendors: nccls, set: func(j *judging, value string) verdict { return j.apart(number(value, 0) == 1) }},
	{Variable: Variable{
		Name: "NCCL_P2P_LEVEL", Library: "NCCL", Since: "2.3.5", Default: "PXB; SYS with two GPUs on an AMD processor",
		Effect: "LOC: as NCCL_P2P_DISABLE=1",
		Source: "nccl src/graph/paths.cc, ncclTopoCheckP2p()",
	}, vendors: nccls, set: func(j *judging, value string) verdict {
		rank, ok := parseLevel(value)
		return j.apart(ok && rank == 0)
	}},
	{Variable: Variable{
		Name: "NCCL_TOPO_FILE", Library: "NCCL", Since: "2.6", Default: "none",
		Effect: "the file's tree and distances take the place of the machine's",
		Source: "nccl src/graph/topo.cc; NVIDIA/nccl#1464; NVIDIA/nccl-tests#256",
	}, vendors: nccls, set: func(j *judging, _ string) verdict {
		switch j.Virtual {
		case placement.Yes:
			return pass("the file gives NCCL the real distances, which a virtual machine's tree does not show")
		case placement.No:
			return warn("NCCL takes the distances from the file, and this machine shows its own").away()
		}
		return open("NCCL takes the distances from the file; whether this is a virtual machine is not known")
	}},
}

func dmabufEnable(j *judging, value string) verdict {
	if number(value, 1) != 0 {
		return pass("NCCL and RCCL register GPU memory by dma-buf")
	}
	return j.peer("NCCL turns dma-bufs off"+asWord(value), nccls...)
}

// dmabufOnAMD: RCCL up to ROCm 7.2 has dma-bufs off by default.
func dmabufOnAMD(j *judging) verdict {
	on := j.env["RCCL_FORCE_ENABLE_DMABUF"] != "" && number(j.env["RCCL_FORCE_ENABLE_DMABUF"], 0) != 0
	if j.direct(AMD) != placement.Yes || j.peerMem() != placement.No || j.DMABuf != placement.Yes || on {
		return verdict{}
	}
	return warn("RCCL up to ROCm 7.2 has dma-bufs off by default, and no peer-memory client is registered: it copies through system memory").
		so("turn dma-bufs on in RCCL", "NCCL_DMABUF_ENABLE=1")
}

// levels are NCCL's distances in its order, and old are its older numbers for them.
var (
	levels = []string{"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"}
	old    = []string{"LOC", "PIX", "PXB", "PHB", "SYS", "SYS"}
)

func rankOf(word string) int { return slices.Index(levels, word) }

// parseLevel reads a level as NCCL does: it ignores a word that it does not know.
func parseLevel(value string) (rank int, ok bool) {
	if i := rankOf(value); i >= 0 {
		return i, true
	}
	if value == "" || value[0] < '0' || value[0] > '9' {
		return 0, false
	}
	n := min(number(value, 0), int64(len(old)-1))
	return rankOf(old[max(n, 0)]), true
}

// overC2C says whether NCCL uses C2C to the NICs of the CPU.
func (j *judging) overC2C() placement.Answer {
	if value, ok := j.env[gdrC2C]; ok && value != "" {
		if number(value, 0) != 0 {
			return placement.Yes
		}
		return placement.No
	}
	return j.atLeast("NCCL", 2, 27)
}

// level judges NCCL_NET_GDR_LEVEL; value "" is that it is not set.
func level(j *judging, value string) verdict {
	rank, given := parseLevel(value)
	if !given {
		rank = rankOf("PXB")
	}
	word := levels[rank]
	var short, unread []string
	farthest, coherent := PXB, false
	for _, g := range j.GPUs {
		switch onC2C := onCPU(g); {
		case !g.of(nccls) || g.Nearest == NoNIC:
		case !g.Nearest.known() || onC2C == placement.AnswerUnknown && rank < rankOf("PHB"):
			if rank < rankOf("SYS") {
				unread = append(unread, g.Name)
			}
		case onC2C == placement.Yes:
			// NCCL_NET_GDR_C2C decides where no level is given. Up to 2.28 it wins over the
			// level, from 2.29 on the level wins.
			if given && rank < rankOf("PHB") && (rank < rankOf("P2C") || j.overC2C() == placement.No) && j.levelWins() {
				short, coherent = append(short, g.Name), true
			}
		default:
			farthest = max(farthest, g.Nearest)
			if rankOf(g.Nearest.String()) > rank {
				short = append(short, g.Name)
			}
		}
	}
	switch {
	case len(short) > 0 && coherent && j.overC2C() == placement.No:
		return warn("GPUDirect RDMA ends at %s, and without %s the way of %s counts as PHB", word, gdrC2C, few(short)).away()
	case len(short) > 0 && coherent:
		return warn("GPUDirect RDMA ends at %s, and the way of %s over C2C is longer; from 2.29 on the level wins over %s", word, few(short), gdrC2C).away()
	case len(short) > 0 && farthest <= PXB:
		return warn("GPUDirect RDMA ends at %s, nearer than the nearest direct NIC of %s; by itself NCCL goes as far as PXB", word, few(short)).away()
	case len(short) > 0:
		return warn("GPUDirect RDMA ends at %s%s, and the nearest direct NIC of %s is farther, up to %s", word, byDefault(given), few(short), farthest).
			so("let GPUDirect RDMA go as far as the nearest direct NIC", gdrLevel+"="+farthest.String())
	case !given && value != "":
		return misread("NCCL", strings.Join(levels, ", "))
	case len(unread) > 0:
		return open("GPUDirect RDMA ends at %s; the distance of the nearest direct NIC of %s is not known", word, few(unread))
	case j.direct(nccls...) == placement.No:
		return pass("GPUDirect RDMA ends at %s, and no pair of this machine is direct", word)
	}
	return pass("GPUDirect RDMA goes as far as %s, which reaches the nearest direct NIC of each GPU", word)
}

func byDefault(given bool) string {
	if given {
		return ""
	}
	return ", NCCL's default"
}

// levelWins reports an NCCL, or one of an unknown version, that heeds the level for C2C.
func (j *judging) levelWins() bool { return j.atLeast("NCCL", 2, 29) != placement.No }

func c2c(j *judging, value string) verdict {
	on := number(value, 1) != 0
	switch near := placement.Any(j.GPUs, onCPU); {
	case near == placement.No:
		return pass("has no effect here: no GPU reaches its nearest direct NIC over C2C")
	case on:
		return pass("NCCL uses GPUDirect RDMA over C2C to the NICs on the CPU's own ports")
	case near == placement.AnswerUnknown:
		return open("turns GPUDirect RDMA over C2C off; whether a GPU reaches its nearest direct NIC that way is not known")
	}
	return warn("turns GPUDirect RDMA over C2C off%s, the right way to the NICs on the CPU's own ports: NCCL copies through system memory", asWord(value)).
		so("let NCCL use C2C", gdrC2C+"=1")
}

// noC2C: before 2.27 NCCL does not use C2C by itself.
func noC2C(j *judging) verdict {
	if placement.Any(j.GPUs, onCPU) != placement.Yes || j.overC2C() == placement.Yes {
		return verdict{}
	}
	if rank, ok := parseLevel(j.env[gdrLevel]); ok && rank >= rankOf("PHB") {
		return verdict{} // the level lets it go there
	}
	if j.atLeast("NCCL", 2, 26) == placement.No {
		return warn("NCCL before 2.26 ends GPUDirect RDMA at PXB, and the way to the NICs on the CPU's own ports counts as PHB").
			so("run NCCL 2.27 or later, or raise the level", gdrLevel+"=PHB")
	}
	return warn("NCCL before 2.27 does not use GPUDirect RDMA over C2C by itself, the right way to the NICs on the CPU's own ports").
		so("run NCCL 2.27 or later, or turn it on (from 2.26 on; before, "+gdrLevel+"=PHB)", gdrC2C+"=1")
}

func gdrRead(j *judging, value string) verdict {
	if number(value, -2) != 0 {
		return pass("GPUs send by GPUDirect RDMA")
	}
	return j.costs("NCCL copies the data that GPUs send", nccls...)
}

func ncclDataDirect(j *judging, value string) verdict {
	return j.dataDirect("NCCL", number(value, 1) != 0)
}

// dataDirect is the verdict on a switch for Data Direct.
func (j *judging) dataDirect(library string, on bool) verdict {
	switch has := placement.Any(j.NICs, func(n NIC) placement.Answer { return n.DataDirect }); {
	case on:
		return pass("%s uses the Data Direct function of a NIC that has one", library)
	case has == placement.No:
		return pass("has no effect here: no NIC has a Data Direct function")
	case has == placement.AnswerUnknown:
		return open("turns Data Direct off; whether a NIC has a Data Direct function is not known")
	}
	with := names(j.NICs, func(n NIC) bool { return n.DataDirect == placement.Yes }, func(n NIC) string { return n.Name })
	return warn("turns Data Direct off: %s reaches GPU memory by the PCI function of %s, through the CPU, not by the DMA function beside the GPU", library, with).away()
}

func mloPart(j *judging, value string) verdict {
	switch has := placement.Any(j.GPUs, func(g GPU) placement.Answer { return g.MLOPart }); {
	case number(value, 0) != 0:
		return pass("NCCL uses GPUDirect RDMA on MLOPart partitions, too")
	case has == placement.No:
		return pass("has no effect here: no GPU is an MLOPart partition")
	case has == placement.Yes:
		return warn("NCCL does not use GPUDirect RDMA on GPUs that are MLOPart partitions").so("turn it on", "NCCL_NET_GDR_MLOPART=1")
	}
	return open("NCCL does not use GPUDirect RDMA on MLOPart partitions; whether a GPU is one is not known")
}

func cuMem(j *judging, value string) verdict {
	if number(value, -2) != 0 {
		return pass("NCCL allocates by the virtual memory API where the GPU has it")
	}
	switch j.coherent() {
	case placement.Yes:
		return warn("turns multi-node NVLink off, where GPUs have it: their traffic takes the NICs").away()
	case placement.No:
		return pass("NCCL allocates by cudaMalloc(), whose memory every route registers")
	}
	return open("turns multi-node NVLink off; whether the GPUs have it is not known")
}

// apart is the verdict on the switches between GPUs.
func (j *judging) apart(off bool) verdict {
	n := 0
	for _, g := range j.GPUs {
		if g.of(nccls) {
			n++
		}
	}
	switch {
	case !off:
		return pass("GPUs of this machine may exchange directly; the pairs of GPU and NIC stay as they are")
	case n < 2:
		return pass("has no effect here: this machine has one GPU")
	}
	return warn("the GPUs of this machine exchange through system memory; the pairs of GPU and NIC stay as they are").away()
}

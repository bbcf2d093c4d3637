// SPDX-License-Identifier: Apache-2.0

package product

import (
	"fmt"
	"regexp"
	"strings"
)

// askCUDA tells the user how to find the facts about an NVIDIA GPU that no file has.
const askCUDA = "ask CUDA for CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED and CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED"

// useHostMemory is the remedy for GPUs that use the machine's memory.
const useHostMemory = "allocate with cudaHostAlloc and register that memory with ibv_reg_mr"

// NVIDIA's lines. NVIDIA documents GPUDirect RDMA for data-centre and professional
// GPUs; GeForce is excluded by a statement of its own.
var (
	geforce = &line{
		name: "GeForce", dmabuf: No, peermem: No,
		why:    "CUDA does not give the memory of a GeForce GPU to other devices",
		change: "use a data-centre or RTX PRO card: CUDA on GeForce does not export its memory to NICs",
		source: "NVIDIA/gdrcopy#211; aikitoria/open-gpu-kernel-modules#20",
	}
	titan = &line{
		name:   "TITAN",
		why:    "NVIDIA does not list TITAN cards among those with GPUDirect RDMA, and no report says that one works",
		read:   askCUDA,
		change: "use a data-centre or RTX PRO card",
		source: "Mellanox/nv_peer_memory#88; kaigai/nvme-kmod#5",
	}
	mining = &line{
		name:   "mining",
		why:    "NVIDIA does not list mining cards among those with GPUDirect RDMA",
		read:   askCUDA,
		change: "use a data-centre or RTX PRO card",
		source: "NVIDIA/gdrcopy README.md, which names data-centre and professional GPUs only",
	}
	gb10 = &line{
		name: "integrated", dmabuf: No, peermem: No, shared: Yes,
		why:    "the memory of this GPU is the machine's, and PCIe devices do not reach what cudaMalloc returns coherently: neither nvidia-peermem nor dma-bufs work",
		change: useHostMemory,
		source: "DGX Spark Porting Guide, CUDA, GPUDirect RDMA",
	}
	tegra = &line{
		name: "integrated", dmabuf: No, peermem: No, shared: Yes,
		why:    "the memory of a Tegra GPU is the machine's: CUDA exports no dma-bufs of what cudaMalloc returns, and nvidia-peermem does not exist there",
		change: useHostMemory,
		source: "CUDA GPUDirect RDMA guide, Changes in CUDA 13.0 and Porting to Tegra; Mellanox/nv_peer_memory#99",
	}
	drive = &line{
		name:   "DRIVE",
		why:    "no document says whether DRIVE boards have GPUDirect RDMA with NICs",
		read:   askCUDA,
		source: "open-gpu-kernel-modules g_nv_name_released.h names the board only",
	}
	laptop = &line{
		name:   "laptop or embedded RTX",
		why:    "no document says whether GPUs of laptops and embedded boards have GPUDirect RDMA",
		read:   askCUDA,
		source: "NVIDIA/gdrcopy README.md names professional GPUs without form factors",
	}
	oem = &line{
		name:   "OEM display",
		why:    "no document says whether this display card has GPUDirect RDMA",
		read:   askCUDA,
		source: "open-gpu-kernel-modules g_nv_name_released.h names the card only",
	}
	dataCentre = &line{
		name: "data centre", dmabuf: Yes, peermem: Yes,
		why:    "NVIDIA documents GPUDirect RDMA for data-centre GPUs",
		source: "NVIDIA/gdrcopy README.md and #293; CUDA GPUDirect RDMA guide",
	}
	dataCentreOld = &line{
		name: "data centre before Turing", dmabuf: No, peermem: Yes,
		why:    "NVIDIA documents GPUDirect RDMA for data-centre GPUs, of this age through nvidia-peermem only: the open kernel modules, which alone export dma-bufs, need Turing or newer",
		source: "NVIDIA/gdrcopy README.md; open-gpu-kernel-modules README.md",
	}
	workstation = &line{
		name: "RTX", dmabuf: Yes, peermem: Yes,
		why:    "NVIDIA documents GPUDirect RDMA for professional GPUs",
		source: "NVIDIA/gdrcopy README.md and #293; CUDA GPUDirect RDMA guide",
	}
	workstationOld = &line{
		name: "Quadro before Turing", dmabuf: No, peermem: Yes,
		why:    "NVIDIA documents GPUDirect RDMA for Quadro GPUs, of this age through nvidia-peermem only: the open kernel modules, which alone export dma-bufs, need Turing or newer",
		source: "NVIDIA/gdrcopy README.md, #139; open-gpu-kernel-modules README.md",
	}
	// vGPUCompute is a C-series type on a GPU with SR-IOV. Whether the host has turned
	// on the capability that nvidia-peermem asks for is not readable in a guest.
	vGPUCompute = &line{
		name: "vGPU for Compute", dmabuf: Yes, peermem: Unknown,
		why:    "NVIDIA documents GPUDirect RDMA for vGPUs of the C series on GPUs with SR-IOV",
		source: "NVIDIA AI Enterprise, vGPU, GPUDirect RDMA and GPUDirect Storage; open-gpu-kernel-modules p2p.c GPU_DIRECT_RDMA_ENABLED",
	}
	vGPUOther = &line{
		name:   "vGPU",
		why:    "NVIDIA has GPUDirect RDMA for a part of the vGPU types, and does not list this one",
		read:   askCUDA,
		change: "give the guest a vGPU type of the C series, or the whole GPU",
		source: "NVIDIA AI Enterprise, vGPU, GPUDirect RDMA and GPUDirect Storage",
	}
)

// model is a row for names of one line. The first row that matches counts. Names are
// without "NVIDIA ".
type model struct {
	pattern *regexp.Regexp
	line    *line
	cc      bool // the GPU has a mode of confidential computing
	source  string
}

const (
	namesOf595 = "open-gpu-kernel-modules 595.45.04 g_nv_name_released.h"
	pciIDs     = "pci.ids c1c1254"
)

var models = []model{
	{regexp.MustCompile(`(?i)geforce`), geforce, false, namesOf595},
	{regexp.MustCompile(`(?i)\btitan\b`), titan, false, namesOf595 + "; " + pciIDs},
	{regexp.MustCompile(`\bCMP\b|^P10[2-6]M?-`), mining, false, namesOf595 + "; " + pciIDs},
	{regexp.MustCompile(`\bGB10\b|\bSpark\b|\bN1X\b`), gb10, false, namesOf595 + "; " + pciIDs + " (10de:2e03)"},
	{regexp.MustCompile(`(?i)\b(tegra|xavier|orin|thor|jetson|nvgpu)\b`), tegra, false, "CUDA GPUDirect RDMA guide, Porting to Tegra; " + pciIDs + " (10de:2b00)"},
	{regexp.MustCompile(`\bDRIVE\b`), drive, false, namesOf595 + "; " + pciIDs + " (10de:20bb)"},
	{regexp.MustCompile(`\bMatrox\b|\bDGX Display\b`), oem, false, namesOf595},
	{regexp.MustCompile(`Laptop GPU|Embedded GPU|\bMobile\b|with Max-Q Design|^Quadro (RTX 3000|T[12]000)( |$)|^T500( |$)`), laptop, false, namesOf595 + "; " + pciIDs + " (TU117GLM, TU106GLM)"},
	{regexp.MustCompile(`^GRID\b`), vGPUOther, false, namesOf595 + "; " + pciIDs},
	{regexp.MustCompile(`^(H20|H100|H200|H800|GH200|B100|B200|B300|GB200|GB300)([ -]|$)`), dataCentre, true, namesOf595 + "; NVIDIA Trusted Computing Solutions release notes"},
	{regexp.MustCompile(`^(Tesla )?(T4G?|A2|A10[GM]?|A16|A30X?|A40|A100X?|A800|AX800|L2|L4|L20|L40[GS]?)([ -]|$)`), dataCentre, false, namesOf595},
	{regexp.MustCompile(`^(Tesla )?(K8|K10|K20([cms]|Xm?)?|K40([cdmst]|st)?|K80|M4|M6|M10|M40|M60|P4|P6|P40|P100|V100S?)([ -]|$)`), dataCentreOld, false, pciIDs},
	{regexp.MustCompile(`^RTX PRO \d{4}D? Blackwell.* Server Edition`), workstation, true, namesOf595 + "; " + pciIDs},
	{regexp.MustCompile(`^RTX (PRO \d{4}D?|A\d{3,4}H?|6000D|\d{3,4}E?( SFF)? Ada Generation)( |$)`), workstation, false, namesOf595},
	{regexp.MustCompile(`^Quadro RTX \d{4}( |$)|^T(400E?|600|1000)( |$)`), workstation, false, namesOf595},
	{regexp.MustCompile(`^Quadro (K|M|P|GP|GV)\d{3,4}( |$)`), workstationOld, false, pciIDs},
}

// vGPUName is the name of a vGPU type: a GPU, the framebuffer's share, and a letter for
// the series. A board's number (PG509-200) has the same form.
var (
	vGPUName  = regexp.MustCompile(`^(?:GRID )?(.+?)-\d+(?:-\d+)?(A|B\d?|C|CME|Q)?$`)
	boardName = regexp.MustCompile(`(^|-)P[GH]\d+$`)
	// withSRIOV are the GPUs by the names that vGPU types give them.
	withSRIOV = regexp.MustCompile(`^(A2|A10[GM]?|A16|A30|A40|A(100|800)D?X?|L2|L4|L20|L40[GS]?|RTXA\d{4}|RTX\d{4}-Ada|` +
		`H(20|100|200|800)(X|L|XM|XS|XL)?|GH200L?|B[23]00X?|GB[23]00|RTX Pro 6000 Blackwell DC|RTX 6000D)$`)
)

// byModel finds the row for a model's name.
func byModel(name string) (model, bool) {
	name = strings.TrimPrefix(strings.TrimSpace(name), "NVIDIA ")
	for i, m := range models {
		// The rows from here on name GPUs that vGPU types share.
		if m.line == vGPUOther {
			if v, ok := vGPU(name); ok {
				return v, true
			}
		}
		if m.pattern.MatchString(name) {
			return models[i], true
		}
	}
	return model{}, false
}

// vGPU reads the name of a vGPU type.
func vGPU(name string) (model, bool) {
	part := vGPUName.FindStringSubmatch(name)
	if part == nil || boardName.MatchString(part[1]) {
		return model{}, false
	}
	m := model{line: vGPUOther, source: namesOf595}
	if strings.HasPrefix(part[2], "C") && withSRIOV.MatchString(part[1]) {
		m.line = vGPUCompute
	}
	return m, true
}

// shown is the part of a name that a sentence quotes.
const shown = 64

func (f Facts) model() Evidence {
	name := []rune(strings.TrimSpace(f.Model))
	if len(name) > shown {
		name = append(name[:shown], '…')
	}
	return Evidence{fileModel, fmt.Sprintf("Model: %q", string(name))}
}

// nvidia answers for a GPU of NVIDIA's.
func nvidia(f Facts) Answer {
	if f.Driver != "" && f.Driver != "nvidia" {
		return otherDriver.answer(f.device(), Evidence{fileDriver, f.Driver})
	}
	row, a := f.nvidiaLine()
	if row == nil {
		return a
	}
	for _, l := range nvidiaLimits(f, *row) {
		a = a.limited(l)
	}
	if f.MIG == Yes {
		a.PCIeMapping = No
	}
	return a
}

// nvidiaLine finds the row for a GPU by its model's name, then by its device id. Without
// a row the answer is final.
func (f Facts) nvidiaLine() (*model, Answer) {
	id, listed := nvidiaIDs[f.Device]
	if f.ModelRead {
		if m, ok := byModel(f.Model); ok {
			if listed && id.line.gives() == No && m.line.gives() == Yes {
				return nil, contradiction.answer(f.model(), f.device())
			}
			return &m, m.line.answer(f.model())
		}
	}
	switch {
	case f.Integrated == Yes:
		return nil, gb10.answer(f.device())
	case !listed && f.ModelRead:
		return nil, noRow.answer(f.model(), f.device())
	case !listed:
		return nil, noRow.answer(f.device())
	case id.line.gives() != No && f.Virtual != No:
		return nil, sharedID.answer(f.device())
	}
	return &model{line: id.line, cc: id.cc}, id.line.answer(f.device())
}

var (
	otherDriver = &line{
		name:   "NVIDIA",
		why:    "the table has no rule for this driver on an NVIDIA GPU",
		source: "p2p/product: no row",
	}
	contradiction = &line{
		name:   "contradictory",
		why:    "the model's name and the device id are of different product lines",
		read:   askCUDA,
		source: namesOf595,
	}
	noRow = &line{
		name:   "not listed",
		why:    "the tables do not list this NVIDIA device",
		read:   "read the model's name in " + fileModel + ", or " + askCUDA,
		source: namesOf595 + "; " + pciIDs,
	}
	sharedID = &line{
		name:   "GPU or vGPU",
		why:    "a vGPU has the device id of the GPU that it is a part of, and the machine is a guest or may be one",
		read:   "read the model's name in " + fileModel + ", which p2pcheck snapshot takes along",
		source: namesOf595 + ": vGPU types differ by subsystem id only",
	}
)

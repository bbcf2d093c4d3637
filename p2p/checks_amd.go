// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"fmt"
	"path"
	"slices"
	"strconv"

	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/placement"
)

var amdChecks = []Check{
	{ID: "AMD-LARGEBAR", Title: "The CPU sees all of the GPU's memory", Worst: ResultFail, run: (*look).largeBAR,
		Expect: "mem_info_vis_vram_total equal to mem_info_vram_total", Why: "What is not visible cannot be exported to a peer; KFD's large-BAR flag hangs on it.",
		Fix: Remedy{Change: "turn on “Above 4G decoding” and “Resizable BAR” in the firmware"}, Ref: "amdgpu_device_is_peer_accessible()"},
	{ID: "AMD-KFD-LINKS", Title: "KFD knows links between the GPUs", Worst: ResultWarn, run: (*look).kfdLinks,
		Expect: "p2p_links or io_links of each GPU node", Why: "Without them ROCm copies between GPUs by way of the host.",
		Fix: Remedy{Change: "run a kernel that is built with it", Command: configHSAP2P + "=y"}, Ref: "/sys/class/kfd/kfd/topology"},
	{ID: "AMD-PARAM", Title: "amdgpu lets GPUs reach each other on PCIe", Worst: ResultWarn, run: (*look).pcieP2P,
		Expect: "Y", Why: "With pcie_p2p=0 KFD shares no memory between GPUs over PCI. NICs do not need it.",
		Fix: Remedy{Change: "take amdgpu.pcie_p2p=0 away from the kernel's command line, or from /etc/modprobe.d: by itself it is on"}, Ref: "amdgpu_device_is_peer_accessible()"},
	{ID: "AMD-PEER-LEGACY", Title: "The old interface for peers is not needed", Worst: ResultWarn, run: (*look).amdPeer,
		Expect: "any: dma-bufs do not need it", Why: "Programs from before dma-bufs use amdkfd as a client of MLNX_OFED's ib_core.", Ref: "RCCL"},
	{ID: "AMD-DCC", Title: "No GPU compresses its buffers", Worst: ResultWarn, run: (*look).dcc,
		Expect: "GPUs before GFX12", Why: "From GFX12 on a buffer can be compressed (DCC), and amdgpu gives no peer-to-peer for one that is: it moves to system memory.",
		Fix: Remedy{Change: "allocate what NICs are to reach without DCC, as ROCm does unless it is asked for it"}, Ref: "amdgpu_dma_buf_attach(), AMDGPU_GEM_CREATE_GFX12_DCC"},
	{ID: "AMD-XGMI", Title: "Links between GPUs do not count", Worst: ResultWarn, run: (*look).xgmi,
		Expect: "any: a NIC does not use them", Why: "XGMI joins GPUs; a NIC reaches them over PCIe.", Ref: "rocm-smi --showtopo"},
}

func (l *look) onAMD() bool {
	if len(l.driven("amdgpu")) == 0 {
		l.skip("no GPU of amdgpu")
		return false
	}
	return true
}

func (l *look) largeBAR() {
	if !l.onAMD() {
		return
	}
	for _, g := range l.driven("amdgpu") {
		dir := path.Join("sys/bus/pci/devices", g.Name)
		total, visible := l.read(dir, "mem_info_vram_total"), l.read(dir, "mem_info_vis_vram_total")
		all, ok1 := total.number()
		seen, ok2 := visible.number()
		at := append(total.at(), visible.where)
		switch {
		case !ok1:
			l.unknown(g.Name, at, "%s", orText(total))
		case !ok2:
			l.unknown(g.Name, at, "%s", orText(visible))
		case all == 0:
			l.pass(g.Name, at, "a GPU without memory of its own").Expect = ""
		case seen < all:
			l.fail(g.Name, at, "%s of %s", bytesize.Format(int64(seen)), bytesize.Format(int64(all)))
		default:
			l.pass(g.Name, at, "all of %s", bytesize.Format(int64(all)))
		}
	}
}

// kfdNodes are the nodes of KFD's topology that are GPUs.
func (l *look) kfdNodes() (nodes []string, r reading) {
	const dir = "sys/class/kfd/kfd/topology/nodes"
	all, r := l.list(dir)
	if r.err != nil {
		return nil, r
	}
	for _, n := range all {
		id := l.read(dir, n, "gpu_id")
		if v, ok := id.number(); ok && v != 0 {
			nodes = append(nodes, path.Join(dir, n))
		} else if !ok {
			return nil, reading{where: id.where, err: firstError(id.err, errNoID)}
		}
	}
	return nodes, r
}

func (l *look) kfdLinks() {
	if len(l.driven("amdgpu")) < 2 {
		l.skip("not two GPUs of amdgpu")
		return
	}
	nodes, r := l.kfdNodes()
	if r.err != nil {
		l.unread("", r)
		return
	}
	ids := nodes
	var alone []string
	for _, node := range nodes {
		p2p, r1 := l.list(node, "p2p_links")
		io, r2 := l.list(node, "io_links")
		if r1.err != nil && !r1.gone() || r2.err != nil && !r2.gone() {
			l.unknown("", r1.at(), "not known")
			return
		}
		// One link of io_links leads to the CPU.
		if len(p2p) == 0 && len(io) < 2 {
			alone = append(alone, base(node))
		}
	}
	switch {
	case len(ids) == 0:
		l.unknown("", r.at(), "KFD knows no GPU")
	case len(alone) > 0:
		l.kfdMend(l.warn("", r.at(), "%s without links to another GPU", plural(len(alone), "node")))
	default:
		l.pass("", r.at(), "%s, all with links", plural(len(ids), "node"))
	}
}

// kfdMend replaces the usual remedy where the kernel is built for links already. A
// kernel that is not has no such parameter.
func (l *look) kfdMend(f *Finding) {
	switch r := l.read("sys/module/amdgpu/parameters/pcie_p2p"); {
	case r.err == nil && r.text == "N":
		f.Where = append(f.Where, r.where)
		f.fix("let amdgpu join GPUs over PCIe: its parameter is off (AMD-PARAM)", "amdgpu.pcie_p2p=1", "")
	case r.err == nil && r.text == "Y" || l.m.config[configHSAP2P] == "y":
		f.fix("see that the CPU sees all of the GPUs' memory (AMD-LARGEBAR), and that the GPUs are below one PCI switch, or host bridges that the kernel trusts", "", "")
	}
}

func (l *look) pcieP2P() {
	if !l.onAMD() {
		return
	}
	loaded, _ := l.there("sys/module/amdgpu")
	switch r := l.read("sys/module/amdgpu/parameters/pcie_p2p"); {
	case r.gone() && loaded != placement.Yes:
		l.unknown("", r.at(), "nothing is there of the module, which has a GPU")
	case r.gone():
		l.pass("", r.at(), "the driver has no such parameter").Expect = ""
	case r.err != nil:
		l.unread("", r)
	case r.text == "Y":
		l.pass("", r.at(), "Y")
	case r.text == "N" && len(l.driven("amdgpu")) == 1:
		l.pass("", r.at(), "N, and there is no other GPU of amdgpu").Expect = ""
	case r.text == "N":
		l.warn("", r.at(), "N")
	default:
		l.unknown("", r.at(), "%q", r.text)
	}
}

func (l *look) amdPeer() {
	if !l.onAMD() {
		return
	}
	switch there, at := l.there("sys/kernel/mm/memory_peers/amdkfd/version"); there {
	case placement.Yes:
		l.pass("", at, "registered")
	case placement.No:
		l.pass("", at, "not registered")
	default:
		l.unknown("", at, "not known")
	}
}

// gfx12 is the first of its generation in KFD's numbers: 12.0.0.
const gfx12 = 120000

func (l *look) dcc() {
	if !l.onAMD() {
		return
	}
	nodes, r := l.kfdNodes()
	if r.err != nil {
		l.unread("", r)
		return
	}
	latest := uint64(0)
	for _, node := range nodes {
		properties := l.read(node, "properties")
		text, _ := properties.line("gfx_target_version")
		version, err := strconv.ParseUint(text, 10, 32)
		switch {
		case properties.err != nil:
			l.unread("", properties)
			return
		case err != nil:
			l.unknown("", properties.at(), "it has no gfx_target_version")
			return
		}
		if latest = max(latest, version); version >= gfx12 {
			r = properties
		}
	}
	name := fmt.Sprintf("GFX%d", latest/10000)
	switch {
	case len(nodes) == 0:
		l.unknown("", r.at(), "KFD knows no GPU")
	case latest >= gfx12:
		l.warn("", r.at(), "%s, whose buffers can be compressed", name)
	default:
		l.pass("", r.at(), "%s at most, whose buffers peers can read", name)
	}
}

// linkXGMI is the type of such a link in KFD's topology.
const linkXGMI = "11"

func (l *look) xgmi() {
	if !l.onAMD() {
		return
	}
	nodes, r := l.kfdNodes()
	if r.err != nil {
		l.unread("", r)
		return
	}
	has := slices.ContainsFunc(nodes, func(node string) bool {
		links, _ := l.list(node, "io_links")
		return slices.ContainsFunc(links, func(link string) bool {
			kind, _ := l.read(node, "io_links", link, "properties").line("type ")
			return kind == linkXGMI
		})
	})
	if has {
		l.pass("", r.at(), "GPUs are joined by XGMI, which a NIC does not use")
		return
	}
	l.pass("", r.at(), "none")
}

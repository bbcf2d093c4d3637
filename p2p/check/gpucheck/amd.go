// SPDX-License-Identifier: Apache-2.0

package gpucheck

import (
	"fmt"
	"path"
	"slices"
	"strconv"

	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// AMD has the checks of AMD's GPUs.
var AMD = []check.Check{
	{ID: "AMD-LARGEBAR", Title: "The CPU sees all of the GPU's memory", Worst: p2p.ResultFail, Run: largeBAR, Links: []chain.Link{chain.Library},
		Expect: "mem_info_vis_vram_total equal to mem_info_vram_total", Why: "amdgpu exports to a peer only memory that the BAR shows, and KFD sets its large-BAR flag only if the BAR shows all of it.",
		Fix: chain.Remedy{Change: "turn on “Above 4G decoding” and “Resizable BAR” in the firmware"}, Ref: "amdgpu_device_is_peer_accessible()",
		ByHand: "cat /sys/bus/pci/devices/GPU/mem_info_vis_vram_total /sys/bus/pci/devices/GPU/mem_info_vram_total"},
	{ID: "AMD-KFD-LINKS", Title: "KFD knows links between the GPUs", Worst: p2p.ResultWarn, Run: kfdLinks,
		Expect: "p2p_links or io_links of each GPU node", Why: "Without them ROCm copies between GPUs by way of the host.",
		Fix: chain.Remedy{Change: "run a kernel that is built with it", Command: machine.ConfigHSAP2P + "=y"}, Ref: "/sys/class/kfd/kfd/topology",
		ByHand: "ls /sys/class/kfd/kfd/topology/nodes/*/p2p_links /sys/class/kfd/kfd/topology/nodes/*/io_links"},
	{ID: "AMD-PARAM", Title: "amdgpu lets GPUs reach each other on PCIe", Worst: p2p.ResultWarn, Run: pcieP2P,
		Expect: "Y", Why: "With pcie_p2p=0 KFD shares no memory between GPUs over PCI. NICs do not need it.",
		Fix: chain.Remedy{Change: "take amdgpu.pcie_p2p=0 away from the kernel's command line, or from /etc/modprobe.d: by itself it is on"}, Ref: "amdgpu_device_is_peer_accessible()",
		ByHand: "cat /sys/module/amdgpu/parameters/pcie_p2p"},
	{ID: "AMD-PEER-LEGACY", Title: "The old interface for peers is not needed", Worst: p2p.ResultWarn, Run: amdPeer, Links: []chain.Link{chain.Route},
		Expect: "any: dma-bufs do not need it", Why: "Programs from before dma-bufs use amdkfd as a client of MLNX_OFED's ib_core.", Ref: "RCCL",
		ByHand: "cat /sys/kernel/mm/memory_peers/amdkfd/version"},
	{ID: "AMD-DCC", Title: "No GPU compresses its buffers", Worst: p2p.ResultWarn, Run: dcc, Links: []chain.Link{chain.Attach},
		Expect: "GPUs before GFX12", Why: "From GFX12 on a buffer can be compressed (DCC), and amdgpu gives no peer-to-peer for one that is: it moves to system memory.",
		Fix: chain.Remedy{Change: "allocate memory for NICs without DCC, as ROCm does by default"}, Ref: "amdgpu_dma_buf_attach(), AMDGPU_GEM_CREATE_GFX12_DCC",
		ByHand: "grep gfx_target_version /sys/class/kfd/kfd/topology/nodes/*/properties"},
	{ID: "AMD-XGMI", Title: "Links between GPUs do not count", Worst: p2p.ResultWarn, Run: xgmi,
		Expect: "any: a NIC does not use them", Why: "XGMI joins GPUs; a NIC reaches them over PCIe.", Ref: "rocm-smi --showtopo",
		ByHand: "grep type /sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties"},
}

func largeBAR(l *check.Look) {
	if !check.OnAMD(l) {
		return
	}
	for _, g := range l.Driven("amdgpu") {
		dir := path.Join("sys/bus/pci/devices", g.Name)
		total, visible := l.Read(dir, "mem_info_vram_total"), l.Read(dir, "mem_info_vis_vram_total")
		all, ok1 := total.Number()
		seen, ok2 := visible.Number()
		at := append(total.At(), visible.Where)
		switch {
		case !ok1:
			l.Unknown(g.Name, at, "%s", check.OrText(total))
		case !ok2:
			l.Unknown(g.Name, at, "%s", check.OrText(visible))
		case all == 0:
			l.Pass(g.Name, at, "a GPU without memory of its own").Expect = ""
		case seen < all:
			l.Fail(g.Name, at, "%s of %s", bytesize.Format(int64(seen)), bytesize.Format(int64(all)))
		default:
			l.Pass(g.Name, at, "all of %s", bytesize.Format(int64(all)))
		}
	}
}

// kfdNodes returns the directories of the nodes of KFD's topology that are GPUs. The Reading has the
// error if a node could not be read.
func kfdNodes(l *check.Look) (nodes []string, r machine.Reading) {
	const dir = "sys/class/kfd/kfd/topology/nodes"
	all, r := l.List(dir)
	if r.Err != nil {
		return nil, r
	}
	for _, n := range all {
		id := l.Read(dir, n, "gpu_id")
		if v, ok := id.Number(); ok && v != 0 {
			nodes = append(nodes, path.Join(dir, n))
		} else if !ok {
			return nil, machine.Reading{Where: id.Where, Err: machine.FirstError(id.Err, machine.ErrNoID)}
		}
	}
	return nodes, r
}

func kfdLinks(l *check.Look) {
	if len(l.Driven("amdgpu")) < 2 {
		l.Skip("not two GPUs of amdgpu")
		return
	}
	nodes, r := kfdNodes(l)
	if r.Err != nil {
		l.Unread("", r)
		return
	}
	ids := nodes
	var alone []string
	for _, node := range nodes {
		p2p, r1 := l.List(node, "p2p_links")
		io, r2 := l.List(node, "io_links")
		if r1.Err != nil && !r1.Gone() || r2.Err != nil && !r2.Gone() {
			l.Unknown("", r1.At(), "not known")
			return
		}
		// One link of io_links leads to the CPU.
		if len(p2p) == 0 && len(io) < 2 {
			alone = append(alone, check.Base(node))
		}
	}
	switch {
	case len(ids) == 0:
		l.Unknown("", r.At(), "KFD knows no GPU")
	case len(alone) > 0:
		kfdMend(l, l.Warn("", r.At(), "%s without links to another GPU", human.Plural(len(alone), "node")))
	default:
		l.Pass("", r.At(), "%s, all with links", human.Plural(len(ids), "node"))
	}
}

// kfdMend replaces the usual remedy if the kernel is already built with CONFIG_HSA_AMD_P2P. amdgpu has
// the parameter pcie_p2p only with that option.
func kfdMend(l *check.Look, f *check.Finding) {
	switch r := l.Read("sys/module/amdgpu/parameters/pcie_p2p"); {
	case r.Err == nil && r.Text == "N":
		f.Where = append(f.Where, r.Where)
		f.Fix("let amdgpu join GPUs over PCIe: its parameter is off (AMD-PARAM)", "amdgpu.pcie_p2p=1", "")
	case r.Err == nil && r.Text == "Y" || l.Machine.Config[machine.ConfigHSAP2P] == "y":
		f.Fix("see that the CPU sees all of the GPUs' memory (AMD-LARGEBAR), and that the GPUs are below one PCI switch, or host bridges that the kernel trusts", "", "")
	}
}

func pcieP2P(l *check.Look) {
	if !check.OnAMD(l) {
		return
	}
	loaded, _ := l.There("sys/module/amdgpu")
	switch r := l.Read("sys/module/amdgpu/parameters/pcie_p2p"); {
	case r.Gone() && loaded != placement.Yes:
		l.Unknown("", r.At(), "nothing is there of the module, which has a GPU")
	case r.Gone():
		l.Pass("", r.At(), "the driver has no such parameter").Expect = ""
	case r.Err != nil:
		l.Unread("", r)
	case r.Text == "Y":
		l.Pass("", r.At(), "Y")
	case r.Text == "N" && len(l.Driven("amdgpu")) == 1:
		l.Pass("", r.At(), "N, and there is no other GPU of amdgpu").Expect = ""
	case r.Text == "N":
		l.Warn("", r.At(), "N")
	default:
		l.Unknown("", r.At(), "%q", r.Text)
	}
}

func amdPeer(l *check.Look) {
	if !check.OnAMD(l) {
		return
	}
	switch there, at := l.There("sys/kernel/mm/memory_peers/amdkfd/version"); there {
	case placement.Yes:
		l.Pass("", at, "registered")
	case placement.No:
		l.Pass("", at, "not registered")
	default:
		l.Unknown("", at, "not known")
	}
}

// gfx12 is the first version of GFX12, 12.0.0, as KFD writes it.
const gfx12 = 120000

func dcc(l *check.Look) {
	if !check.OnAMD(l) {
		return
	}
	nodes, r := kfdNodes(l)
	if r.Err != nil {
		l.Unread("", r)
		return
	}
	latest := uint64(0)
	for _, node := range nodes {
		properties := l.Read(node, "properties")
		text, _ := properties.Line("gfx_target_version")
		version, err := strconv.ParseUint(text, 10, 32)
		switch {
		case properties.Err != nil:
			l.Unread("", properties)
			return
		case err != nil:
			l.Unknown("", properties.At(), "it has no gfx_target_version")
			return
		}
		if latest = max(latest, version); version >= gfx12 {
			r = properties
		}
	}
	name := fmt.Sprintf("GFX%d", latest/10000)
	switch {
	case len(nodes) == 0:
		l.Unknown("", r.At(), "KFD knows no GPU")
	case latest >= gfx12:
		l.Warn("", r.At(), "%s, whose buffers can be compressed", name)
	default:
		l.Pass("", r.At(), "%s at most, whose buffers peers can read", name)
	}
}

// linkXGMI is the type of an XGMI link in KFD's topology.
const linkXGMI = "11"

func xgmi(l *check.Look) {
	if !check.OnAMD(l) {
		return
	}
	nodes, r := kfdNodes(l)
	if r.Err != nil {
		l.Unread("", r)
		return
	}
	has := slices.ContainsFunc(nodes, func(node string) bool {
		links, _ := l.List(node, "io_links")
		return slices.ContainsFunc(links, func(link string) bool {
			kind, _ := l.Read(node, "io_links", link, "properties").Line("type ")
			return kind == linkXGMI
		})
	})
	if has {
		l.Pass("", r.At(), "GPUs are joined by XGMI, which a NIC does not use")
		return
	}
	l.Pass("", r.At(), "none")
}

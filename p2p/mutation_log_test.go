// SPDX-License-Identifier: Apache-2.0

package p2p_test

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/chain"
)

// short is a PCI address without its domain, as an IOMMU's fault has it.
func short(addr string) string {
	_, rest, _ := strings.Cut(addr, ":")
	return rest
}

func inDomain0(s *subject) bool { return strings.HasPrefix(s.at, "0000:") }

// dmar is a fault of VT-d, of the NIC at an address, in the words of one kernel or another.
func dmar(format string, at func(*bed) uint64) func(*bed) {
	return func(b *bed) {
		slot := strings.NewReplacer("BB", short(b.s.at)[:2], "DD", short(b.s.at)[3:5], "F", short(b.s.at)[6:])
		b.log(fmt.Sprintf(slot.Replace(format), at(b)))
	}
}

func inWindow(b *bed) uint64 { start, _ := b.window(); return start + 0x10000 }
func lastByte(b *bed) uint64 { _, end := b.window(); return end - 1 }
func behind(b *bed) uint64   { _, end := b.window(); return end }
func elsewhere(*bed) uint64  { return 0xfeedf00d000 }

func untranslated(s *subject) bool { return !handsIOVAs(s) }

// asksKernel reports a GPU whose driver follows the kernel's decision.
func asksKernel(s *subject) bool { return s.exporter != nvidia && s.exporter != coherent }

func logMutations() []mutation {
	const (
		vtd      = "drivers/iommu/intel/dmar.c dmar_fault_do_one(); case 01: open-gpu-kernel-modules#1324"
		amdvi    = "drivers/iommu/amd/iommu.c amd_iommu_report_page_fault()"
		smmu     = "drivers/iommu/arm/arm-smmu-v3/arm-smmu-v3.c arm_smmu_dump_event()"
		p2p      = "drivers/pci/p2pdma.c pci_p2pdma_distance_many()"
		gate     = "open-gpu-kernel-modules nv-dmabuf.c nv_dma_buf_attach()"
		xid      = "NVIDIA, XID Errors: 79, GPU has fallen off the bus"
		peermem  = "open-gpu-kernel-modules nvidia-peermem.c nv_mem_get_pages(), nv_dma_map()"
		notIt    = "the address is in no window of this GPU, and the IOMMU makes no addresses for this NIC"
		elseLine = "the line names another function"
	)
	const (
		now   = "DMAR: [DMA Write NO_PASID] Request device [BB:DD.F] fault addr %#x [fault reason 0x05] PTE Write access is not set"
		mid   = "DMAR: [DMA Write NO_PASID] Request device [0xBB:0xDD.F] fault addr %#x [fault reason 0x05] PTE Write access is not set"
		older = "DMAR: [DMA Write] Request device [BB:DD.F] PASID ffffffff fault addr %x [fault reason 05] PTE Write access is not set"
		reads = "DMAR: [DMA Read NO_PASID] Request device [BB:DD.F] fault addr %#x [fault reason 0x06] PTE Read access is not set"
	)
	at := func(format string, args ...func(*bed) any) func(*bed) {
		return func(b *bed) {
			var values []any
			for _, f := range args {
				values = append(values, f(b))
			}
			b.log(fmt.Sprintf(format, values...))
		}
	}
	nic := func(b *bed) any { return b.s.at }
	gpu := func(b *bed) any { return b.s.gpu }
	nicShort := func(b *bed) any { return short(b.s.at) }
	gpuShort := func(b *bed) any { return strings.TrimSuffix(b.s.gpu, ".0") }
	window := func(b *bed) any { return inWindow(b) }
	behindAny := func(b *bed) any { return behind(b) }
	link := goes(chain.Log)
	bar := all(x86, inDomain0, untranslated)
	return []mutation{
		{"VT-d stopped a write of the NIC to the GPU", bar, dmar(now, inWindow), breaks(chain.Lost, chain.Log), vtd},
		{"VT-d stopped a write of the NIC to the GPU's last byte", bar, dmar(now, lastByte), breaks(chain.Lost, chain.Log), vtd},
		{"VT-d stopped a read of the NIC from the GPU", bar, dmar(reads, inWindow), breaks(chain.Lost, chain.Log), vtd},
		{"VT-d stopped the NIC, in the words of Linux 5.14", bar, dmar(mid, inWindow), breaks(chain.Lost, chain.Log), vtd},
		{"VT-d stopped the NIC, in the words of Linux 5.10", bar, dmar(older, inWindow), link, vtd},
		{"VT-d stopped the NIC, and the addresses are the IOMMU's", all(x86, inDomain0, handsIOVAs), dmar(now, elsewhere), link, vtd},
		{"VT-d stopped the NIC, and where the GPU is cannot be read", all(x86, inDomain0, untranslated), both(dmar(now, inWindow), func(b *bed) { b.deny(b.dir(b.s.gpu) + "/resource") }), unsure(chain.Log, chain.Addresses), vtd},
		{"VT-d stopped the NIC behind the GPU's window", bar, dmar(now, behind), changesNothing, notIt},
		{"VT-d stopped the NIC elsewhere", bar, dmar(now, elsewhere), changesNothing, notIt},
		{"VT-d stopped another function at the GPU's window", bar, func(b *bed) {
			b.log(fmt.Sprintf("DMAR: [DMA Write NO_PASID] Request device [fe:1f.7] fault addr %#x [fault reason 0x05] PTE Write access is not set", inWindow(b)))
		}, changesNothing, elseLine},
		{"VT-d stopped a function of the other slot with the NIC's bus", bar, func(b *bed) {
			b.log(fmt.Sprintf("DMAR: [DMA Write NO_PASID] Request device [%s:1f.7] fault addr %#x [fault reason 0x05] PTE Write access is not set", short(b.s.at)[:2], inWindow(b)))
		}, changesNothing, elseLine},
		{"AMD-Vi stopped the NIC at the GPU", all(x86, inDomain0, untranslated), at("mlx5_core %s: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0021 address=0x%x flags=0x0020]", nic, window), breaks(chain.Lost, chain.Log), amdvi},
		{"AMD-Vi stopped the NIC at the GPU, in the words of Linux 5.0", all(x86, inDomain0, untranslated), at("AMD-Vi: Event logged [IO_PAGE_FAULT device=%s domain=0x0021 address=0x%x flags=0x0020]", nicShort, window), breaks(chain.Lost, chain.Log), amdvi},
		{"AMD-Vi stopped the NIC, and the line has no address", all(x86, inDomain0), at("mlx5_core %s: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0021]", nic), link, amdvi},
		{"AMD-Vi stopped the NIC behind the GPU's window", all(x86, inDomain0, untranslated), at("mlx5_core %s: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0021 address=0x%x flags=0x0020]", nic, behindAny), changesNothing, notIt},
		{"the SMMU stopped the NIC", is(coherent), at("arm-smmu-v3 arm-smmu-v3.9.auto: event: F_TRANSLATION client: %s sid: 0x10000 ssid: 0x0 iova: 0x7f0000000000 ipa: 0x0", nic), link, smmu},
		{"the SMMU stopped another function", is(coherent), func(b *bed) {
			b.log("arm-smmu-v3 arm-smmu-v3.9.auto: event: F_TRANSLATION client: 0005:01:00.0 sid: 0x10000 ssid: 0x0 iova: 0x7f0000000000 ipa: 0x0")
		}, changesNothing, elseLine},
		{"the kernel refused this pair", asksKernel, at("mlx5_core %s: cannot be used for peer-to-peer DMA as the client and provider (%s) do not share an upstream bridge or whitelisted host bridge", nic, gpu), breaks(chain.Broken, chain.Log), p2p},
		{"the kernel refused this pair to a driver that asks it", not(asksKernel), at("mlx5_core %s: cannot be used for peer-to-peer DMA as the client and provider (%s) do not share an upstream bridge or whitelisted host bridge", nic, gpu), link, p2p},
		{"the kernel refused the NIC with another GPU", nil, at("mlx5_core %s: cannot be used for peer-to-peer DMA as the client and provider (00ff:01:00.0) do not share an upstream bridge or whitelisted host bridge", nic), changesNothing, elseLine},
		{"the kernel refused another NIC with the GPU", nil, at("mlx5_core 00ff:01:00.0: cannot be used for peer-to-peer DMA as the client and provider (%s) do not share an upstream bridge or whitelisted host bridge", gpu), changesNothing, elseLine},
		{"NVIDIA's gate refused an importer, and no bridge is above both", all(is(nvidia), overRoot), at("NVRM: dma-buf attach failed: PCI topology not supported for dma-buf"), link, gate},
		{"NVIDIA's gate refused an importer, and one bridge is above both", all(is(nvidia), onSwitch), at("NVRM: dma-buf attach failed: PCI topology not supported for dma-buf"), changesNothing, gate + ": it lets those attach that are below one bridge"},
		{"NVIDIA's gate refused an importer, and the memory has pages", is(coherent), at("NVRM: dma-buf attach failed: PCI topology not supported for dma-buf"), changesNothing, gate + ": it does not ask where the memory is coherent"},
		{"NVIDIA's gate refused a PCIe mapping", isNVIDIA, at("NVRM: dma-buf attach failed: topology not supported for mapping type FORCE_PCIE"), changesNothing, gate + ": the default mapping has another gate"},
		{"an importer could not handle memory without pages, over the root", all(is(nvidia), overRoot), at("NVRM: dma-buf attach failed: importer unable to handle MMIO without struct page"), link, gate},
		{"an importer could not handle memory without pages, and the NIC's driver is MLNX_OFED's", all(is(nvidia), byDMABuf, not(inbox)), at("NVRM: dma-buf attach failed: importer unable to handle MMIO without struct page"), link, gate},
		{"an importer had no peer-to-peer, in the words of 570, over the root", all(is(nvidia), overRoot), at("NVRM: failed to map dynamic attachment with no P2P support"), link, "open-gpu-kernel-modules 570 nv-dmabuf.c nv_dma_buf_map()"},
		{"the GPU fell off the bus", isNVIDIA, at("NVRM: Xid (PCI:%s): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", gpuShort), link, xid},
		{"another GPU fell off the bus", isNVIDIA, at("NVRM: Xid (PCI:00ff:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."), changesNothing, elseLine},
		{"a program made an error on the GPU", isNVIDIA, at("NVRM: Xid (PCI:%s): 13, pid=1, name=python, Graphics Exception", gpuShort), changesNothing, "NVIDIA, XID Errors: 13 is a program's"},
		{"nvidia-peermem could not get pages, which the pair needs", all(is(nvidia), onlyPeer), at("nvidia_peermem: nv_mem_get_pages:218 error -22 while calling nvidia_p2p_get_pages()"), link, peermem},
		{"nvidia-peermem could not map pages, which the pair needs", all(is(nvidia), onlyPeer), at("nvidia_peermem: nv_dma_map:310 error -22 while calling nvidia_p2p_dma_map_pages()"), link, peermem},
		{"nvidia-peermem could not get pages, and the pair has dma-bufs", all(is(nvidia), byDMABuf), at("nvidia_peermem: nv_mem_get_pages:218 error -22 while calling nvidia_p2p_get_pages()"), changesNothing, peermem},
		{"nvidia-peermem could not be loaded, and the pair has dma-bufs", all(isNVIDIA, byDMABuf), at("nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -2)"), changesNothing, "siderolabs/talos#12021"},
		{"a link had a correctable error", nil, at("pcieport %s: AER: Corrected error received: %s", nic, nic), changesNothing, "PCI Express: the link itself repeats what was lost"},
		{"the kernel says that a port redirects, of another pair", nil, at("nvme 00ff:01:00.0: ACS redirect is set between the client and provider (00ff:02:00.0)"), changesNothing, elseLine},
		{"the log cannot be read", nil, func(b *bed) { b.deny("dev/kmsg") }, staysDirect, "the link only takes away"},
		{"the log's beginning was overwritten", nil, func(b *bed) { b.put("dev/kmsg", "6,777,9000000,-;systemd[1]: started\n") }, staysDirect, "the link only takes away"},
		{"the log is not in the copy", nil, func(b *bed) { b.drop("dev/kmsg") }, staysDirect, "the link only takes away"},
	}
}

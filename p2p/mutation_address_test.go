// SPDX-License-Identifier: Apache-2.0

package p2p_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/chain"
)

// domain makes the IOMMU domain of the NIC another one.
func domain(kind string) func(*bed) {
	return func(b *bed) { b.put(b.group(b.s.at), kind+"\n") }
}

// before612 are the kernels whose IOMMU code has dma_map_ops.
func before612(s *subject) bool { return slices.Contains([]string{"3.10", "5.15", "6.8"}, s.kernel) }

func onSwitch(s *subject) bool    { return s.below != "" }
func overRoot(s *subject) bool    { return s.below == "" }
func translates(s *subject) bool  { return s.iommu == "DMA" }
func passesRoot(s *subject) bool  { return s.root == listed || s.root == zen }
func handsIOVAs(s *subject) bool  { return translates(s) && (s.exporter != nvidia || before612(s)) }
func mapsNothing(s *subject) bool { return s.exporter == nvidia && !before612(s) }

// onBus makes the address of the GPU's largest BAR on its bus larger than the processor's.
func onBus(more uint64) func(*bed) {
	return func(b *bed) {
		b.t.Helper()
		start, _ := b.window()
		bar := -1
		for line := range strings.Lines(b.read(b.dir(b.s.gpu) + "/resource")) {
			bar++
			if first, err := strconv.ParseUint(strings.Fields(line)[0], 0, 64); err == nil && first == start {
				break
			}
		}
		config := []byte(b.read(b.dir(b.s.gpu) + "/config"))
		binary.LittleEndian.PutUint64(config[0x10+4*bar:], start+more|0xc) // 64 bits, prefetchable
		b.put(b.dir(b.s.gpu)+"/config", string(config))
	}
}

func addressMutations() []mutation {
	const (
		ops     = "nv-dma.c nv_dma_use_map_resource(): get_dma_ops() is NULL since b5c58b2fdc42, Linux 6.12; open-gpu-kernel-modules#1324"
		iova    = "kernel/dma/mapping.c dma_map_resource(): an IOVA matches no window below a switch"
		kinds   = "drivers/iommu/iommu.c iommu_group_show_type(): only DMA, DMA-FQ and identity are of the kernel's own drivers"
		pages   = "nv-dmabuf.c nv_dma_buf_map_pages(): dma_map_sg() maps coherent memory as it maps the host's"
		own     = "the kernel translates by the domain of the function that sends"
		mask    = "kernel/dma/direct.c dma_direct_map_resource(), dma_capable(): the address has to be within the mask"
		bar     = "drivers/pci/setup-res.c: a region without an address is decoded by no bridge"
		remap   = "nv-reg.h NVreg_DmaRemapPeerMmio"
		offset  = "drivers/pci/bus.c pcibios_resource_to_bus(): a host bridge's window can have an offset"
		below16 = "open-gpu-kernel-modules#1324: the traffic that stays below the switch never meets the IOMMU"
	)
	untranslated := not(translates)
	dmaMask := func(b *bed) string { return b.dir(b.s.at) + "/dma_mask_bits" }
	resource := func(b *bed) string { return b.dir(b.s.gpu) + "/resource" }
	return []mutation{
		{"the list of the GPU's regions is cut before the memory's window", not(is(coherent)), func(b *bed) {
			b.put(resource(b), "0x00000000a0000000 0x00000000a0ffffff 0x0000000000040200\n")
		}, unsure(chain.Addresses), "drivers/pci/pci-sysfs.c resource_show(): seven lines or more"},
		{"the list of the GPU's regions is cut within the line of the memory's window", not(is(coherent)), func(b *bed) {
			start, end := b.window()
			b.put(resource(b), fmt.Sprintf("0x%016x 0x%016x 0x000000000014220c", start, end-1))
		}, unsure(chain.Addresses), "drivers/pci/pci-sysfs.c resource_show() ends each line with a line feed"},
		{"the list of the GPU's regions has the memory's window and no more", nil, func(b *bed) {
			start, end := b.window()
			b.put(resource(b), fmt.Sprintf("0x%016x 0x%016x 0x000000000014220c\n", start, end-1))
		}, changesNothing, "no BAR of a GPU is as large as its memory's: the machines of public reports have that line alone"},
		{"the IOMMU translates, and NVIDIA's driver maps nothing: over the root", all(mapsNothing, overRoot), domain("DMA-FQ"), breaks(chain.Lost, chain.Addresses), ops},
		{"the IOMMU translates in strict mode, and NVIDIA's driver maps nothing: over the root", all(mapsNothing, overRoot), domain("DMA"), breaks(chain.Lost, chain.Addresses), ops},
		{"the IOMMU translates, and NVIDIA's driver maps nothing: below one switch", all(mapsNothing, onSwitch), domain("DMA-FQ"), staysDirect, below16},
		{"the IOMMU translates, and the driver maps", all(is(nvidia), before612, untranslated, passesRoot, func(s *subject) bool { return s.series >= 515 }), domain("DMA-FQ"), costs, iova},
		{"the IOMMU translates, and amdgpu maps", isAMD, domain("DMA-FQ"), costs, iova},
		{"the IOMMU translates, and the memory has pages", is(coherent), domain("DMA-FQ"), staysDirect, pages},
		{"the IOMMU translates, and the driver is told not to map: over the root", all(is(nvidia), before612, overRoot), both(domain("DMA"), param("DmaRemapPeerMmio", "0")), breaks(chain.Lost, chain.Addresses), remap},
		{"the IOMMU translates, and the driver is told not to map: below one switch", all(is(nvidia), before612, onSwitch, func(s *subject) bool { return s.series >= 515 }), both(domain("DMA"), param("DmaRemapPeerMmio", "0")), staysDirect, remap},
		{"the IOMMU translates, and whether the driver maps cannot be read", all(is(nvidia), before612), both(domain("DMA"), func(b *bed) { b.deny(nvidiaParams) }), unsure(chain.Addresses, chain.Attach), remap},
		{"the IOMMU translates, and the driver's parameter is not in the file", all(is(nvidia), before612), both(domain("DMA"), param("DmaRemapPeerMmio", "")), goes(chain.Addresses), remap},
		{"the IOMMU translates, and the kernel is one with backports of its IOMMU code", all(is(nvidia), before612, not(onlyPeer)), both(domain("DMA"), release("5.14.0-570.12.1.el9_6.x86_64")), goes(chain.Addresses), ops + "; RHEL 9 takes IOMMU code from later kernels"},
		{"the IOMMU translates, and nv-dma.c of the driver was not read", func(s *subject) bool { return s.exporter == nvidia && s.series < 515 }, domain("DMA"), unsure(chain.Addresses), "nv-dma.c was read from 515 on"},
		{"the IOMMU translates, and the modules are the proprietary ones on Linux 6.12", all(is(nvidia), onlyPeer, func(s *subject) bool { return s.series >= 515 }), both(domain("DMA"), release("6.12.0-55.el10.x86_64"), func(b *bed) { b.space(b.port(1), "acs=0x1d") }), breaks(chain.Lost, chain.Addresses), ops + ": both kinds of modules have the same nv-dma.c"},
		{"the IOMMU blocks the NIC", nil, domain("blocked"), goes(chain.Addresses), kinds},
		{"the NIC's domain is a program's", nil, domain("unmanaged"), goes(chain.Addresses), kinds},
		{"the type of the NIC's domain is noise", nil, domain("\xff\xfe"), unsure(chain.Addresses), kinds},
		{"the type of the NIC's domain is empty", nil, domain(""), unsure(chain.Addresses), kinds},
		{"the type of the NIC's domain cannot be read", nil, func(b *bed) { b.deny(b.group(b.s.at)) }, unsure(chain.Addresses), kinds},
		{"the NIC's group has no type", nil, func(b *bed) { b.drop(b.group(b.s.at)) }, goes(chain.Addresses), kinds},
		{"the IOMMU passes the NIC through", not(translates), domain("identity"), staysDirect, "the same addresses as without an IOMMU"},
		{"the GPU's domain translates", untranslated, func(b *bed) { b.put(b.group(b.s.gpu), "DMA\n") }, changesNothing, own},
		{"the GPU's domain cannot be read", nil, func(b *bed) { b.deny(b.group(b.s.gpu)) }, changesNothing, own},
		{"the parameter of an IOMMU that does not translate", all(is(nvidia), untranslated), param("DmaRemapPeerMmio", "0"), changesNothing, remap},

		{"the NIC has 32 address bits", untranslated, func(b *bed) { b.put(dmaMask(b), "32\n") }, goes(chain.Addresses), mask},
		{"the NIC has too few address bits by one", all(untranslated, not(is(coherent)), not(is(amdDKMS))), func(b *bed) {
			_, end := b.window()
			bits := 0
			for ; end>>bits > 1; bits++ {
			}
			b.put(dmaMask(b), fmt.Sprintf("%d\n", bits))
		}, breaks(chain.Broken, chain.Addresses), mask},
		{"how many address bits the NIC has cannot be read", untranslated, func(b *bed) { b.deny(dmaMask(b)) }, unsure(chain.Addresses), mask},
		{"the NIC's address bits are noise", untranslated, func(b *bed) { b.put(dmaMask(b), "many\n") }, unsure(chain.Addresses), mask},
		{"the copy does not have the NIC's address bits", untranslated, func(b *bed) { b.drop(dmaMask(b)) }, goes(chain.Addresses), mask},
		{"the NIC has 32 address bits, and the IOMMU chooses the address", handsIOVAs, func(b *bed) { b.put(dmaMask(b), "32\n") }, changesNothing, "drivers/iommu/dma-iommu.c iommu_dma_alloc_iova() stays within the mask"},

		{"the GPU's BAR is elsewhere on its bus, and the NIC gets the processor's address", all(untranslated, not(is(coherent))), onBus(1 << 45), goes(chain.Addresses), offset},
		{"the GPU's BAR is elsewhere on its bus, beyond the NIC's bits, and the NIC gets that address", all(mapsNothing, onSwitch, not(is(coherent))), both(domain("DMA"), onBus(1<<62), func(b *bed) { b.put(dmaMask(b), "48\n") }), breaks(chain.Broken, chain.Addresses), offset},
		{"the GPU's BAR is elsewhere on its bus, and the NIC gets that address", all(mapsNothing, onSwitch, not(is(coherent))), both(domain("DMA"), onBus(1<<45)), staysDirect, offset},
		{"the GPU's BAR is elsewhere on its bus, and the IOMMU chooses the address", all(handsIOVAs, not(is(coherent))), onBus(1 << 45), changesNothing, offset},
		{"the GPU's BAR is on its bus where the processor has it", not(is(coherent)), onBus(0), changesNothing, offset},
		{"the GPU's BAR has no address", nil, func(b *bed) {
			start, end := b.window()
			b.put(resource(b), fmt.Sprintf("0x0000000000000000 0x%016x 0x0000000000040200\n", end-start-1))
		}, goes(chain.Addresses), bar},
		{"the GPU's BAR has an address that means nothing", nil, func(b *bed) {
			start, end := b.window()
			b.put(resource(b), fmt.Sprintf("0x%016x 0x%016x 0x0000000020040200\n", start, end-1))
		}, goes(chain.Addresses), bar},
		{"where the GPU's BAR is cannot be read", nil, func(b *bed) { b.deny(resource(b)) }, unsure(chain.Addresses), bar},
		{"where the GPU's BAR is is noise", nil, func(b *bed) { b.put(resource(b), "everywhere\n") }, unsure(chain.Addresses), bar},
		{"the copy does not have the GPU's BARs", not(is(coherent)), func(b *bed) { b.drop(resource(b)) }, goes(chain.Addresses), bar},
		{"the GPU has no BAR", nil, func(b *bed) { b.put(resource(b), strings.Repeat("0x0 0x0 0x0\n", 6)) }, goes(chain.Addresses), bar},
	}
}

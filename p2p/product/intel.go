// SPDX-License-Identifier: Apache-2.0

package product

const (
	intelIDs = "include/drm/intel/pciids.h"
	xeBAR    = "drivers/gpu/drm/xe/xe_ttm_vram_mgr.c xe_ttm_vram_mgr_alloc_sgt()"
)

// intelRow are device ids of one line. With a line the line answers. Without one the
// BAR decides, and full is what a BAR that shows all of the memory leads to.
type intelRow struct {
	name   string
	line   *line
	memory uint64 // of the smallest GPU of the row; 0 if no document was read
	full   Tri
	source string
	ids    []uint16
}

const gib = 1 << 30

var (
	intelIntegrated = &line{
		name: "integrated", dmabuf: No, peermem: No, shared: Yes,
		why:    "the GPU is a part of the processor and has no memory of its own: its buffers are system memory",
		change: "register host memory: the GPU and the NIC both reach it",
		source: "drivers/gpu/drm/xe/xe_pci.c (is_dgfx), drivers/gpu/drm/i915/i915_pci.c (memory_regions)",
	}
	flex = &line{
		name:   "Data Center GPU Flex",
		why:    "no document or report says whether a NIC reaches the memory of a Flex GPU",
		read:   "ask Level Zero for ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF, export a buffer and prove with a transfer that the NIC reaches it",
		source: "ofiwg/libfabric fi_verbs names no product",
	}
	noIntelRow = &line{
		name:   "Intel, not listed",
		why:    "the table does not list this Intel device",
		read:   "find out whether the GPU has memory of its own, and how much of it the BAR shows",
		source: intelIDs,
	}
)

var intelRows = []intelRow{
	{"Data Center GPU Max", nil, 48 * gib, Yes, pciIDs + "; ofiwg/libfabric fi_cxi, fi_verbs", []uint16{0x0b6e, 0x0bd9, 0x0bda, 0x0bdb}},
	{"Data Center GPU Max", nil, 96 * gib, Yes, pciIDs + "; ofiwg/libfabric fi_cxi, fi_verbs", []uint16{0x0bd7, 0x0bd8}},
	{"Data Center GPU Max", nil, 128 * gib, Yes, pciIDs + "; ofiwg/libfabric fi_cxi, fi_verbs", []uint16{0x0b69, 0x0bd4, 0x0bd5, 0x0bd6}},
	{"Data Center GPU Flex", flex, 0, Unknown, intelIDs, []uint16{0x56c0, 0x56c1, 0x56c2}},
	{"Arc Pro", nil, 16 * gib, Yes, pciIDs + "; ScaleX-IO/uGDS#40; openucx/ucx#11187", []uint16{0xe212}},
	{"Arc Pro", nil, 24 * gib, Yes, pciIDs + "; ScaleX-IO/uGDS#40; openucx/ucx#11187", []uint16{0xe211}},
	{"Arc Pro", nil, 32 * gib, Yes, pciIDs + "; intel/compute-runtime#935; openucx/ucx#11187", []uint16{0xe222, 0xe223}},
	{"Arc", nil, 0, Unknown, intelIDs, []uint16{
		0x4905, 0x4906, 0x4907, 0x4908, 0x4909, // DG1
		0x5690, 0x5691, 0x5692, 0x5693, 0x5694, 0x5695, 0x5696, 0x5697, // A for laptops
		0x56a0, 0x56a1, 0x56a2, 0x56a3, 0x56a4, 0x56a5, 0x56a6, 0x56ba, 0x56bb, 0x56bc, 0x56bd, 0x56be, 0x56bf, // A
		0x56b0, 0x56b1, 0x56b2, 0x56b3, // Pro A
		0xe202, 0xe209, 0xe20b, 0xe20c, 0xe20d, 0xe210, 0xe216, 0xe220, 0xe221, // B
	}},
	{"integrated", intelIntegrated, 0, No, intelIDs, []uint16{
		// Skylake
		0x1906, 0x1913, 0x190e, 0x1915, 0x1902, 0x190a, 0x190b, 0x1917, 0x1916, 0x1921, 0x191e, 0x1912,
		0x191a, 0x191b, 0x191d, 0x1923, 0x1926, 0x1927, 0x192a, 0x192b, 0x192d, 0x1932, 0x193a, 0x193b,
		0x193d,
		// Apollo Lake, Gemini Lake
		0x5a84, 0x5a85, 0x3184, 0x3185,
		// Kaby Lake, Amber Lake
		0x5906, 0x5913, 0x590e, 0x5915, 0x5902, 0x5908, 0x590a, 0x590b, 0x5916, 0x5921, 0x591e, 0x5912,
		0x5917, 0x591a, 0x591b, 0x591d, 0x5926, 0x5923, 0x5927, 0x593b, 0x591c, 0x87c0, 0x87ca,
		// Comet Lake
		0x9ba2, 0x9ba4, 0x9ba5, 0x9ba8, 0x9b21, 0x9baa, 0x9bac, 0x9bc2, 0x9bc4, 0x9bc5, 0x9bc6, 0x9bc8,
		0x9be6, 0x9bf6, 0x9b41, 0x9bca, 0x9bcc,
		// Coffee Lake, Whiskey Lake
		0x3e90, 0x3e93, 0x3e99, 0x3e91, 0x3e92, 0x3e96, 0x3e98, 0x3e9a, 0x3e9c, 0x3e94, 0x3e9b, 0x3ea9,
		0x3ea5, 0x3ea6, 0x3ea7, 0x3ea8, 0x3ea1, 0x3ea4, 0x3ea0, 0x3ea3, 0x3ea2,
		// Ice Lake
		0x8a50, 0x8a52, 0x8a53, 0x8a54, 0x8a56, 0x8a57, 0x8a58, 0x8a59, 0x8a5a, 0x8a5b, 0x8a5c, 0x8a70,
		0x8a71, 0x8a51, 0x8a5d,
		// Elkhart Lake, Jasper Lake
		0x4541, 0x4551, 0x4555, 0x4557, 0x4570, 0x4571, 0x4e51, 0x4e55, 0x4e57, 0x4e61, 0x4e71,
		// Tiger Lake
		0x9a60, 0x9a68, 0x9a70, 0x9a40, 0x9a49, 0x9a59, 0x9a78, 0x9ac0, 0x9ac9, 0x9ad9, 0x9af8,
		// Rocket Lake
		0x4c80, 0x4c8a, 0x4c8b, 0x4c8c, 0x4c90, 0x4c9a,
		// Alder Lake
		0x4680, 0x4682, 0x4688, 0x468a, 0x468b, 0x4690, 0x4692, 0x4693, 0x46a0, 0x46a1, 0x46a2, 0x46a3,
		0x46a6, 0x46a8, 0x46aa, 0x462a, 0x4626, 0x4628, 0x46b0, 0x46b1, 0x46b2, 0x46b3, 0x46c0, 0x46c1,
		0x46c2, 0x46c3, 0x46d0, 0x46d1, 0x46d2, 0x46d3, 0x46d4,
		// Raptor Lake
		0xa780, 0xa781, 0xa782, 0xa783, 0xa788, 0xa789, 0xa78a, 0xa78b, 0xa721, 0xa7a1, 0xa7a9, 0xa7ac,
		0xa7ad, 0xa720, 0xa7a0, 0xa7a8, 0xa7aa, 0xa7ab,
		// Meteor Lake, Arrow Lake
		0x7d40, 0x7d45, 0x7d55, 0x7d60, 0x7dd5, 0x7d51, 0x7dd1, 0x7d41, 0x7d67, 0xb640,
		// Lunar Lake, Panther Lake
		0x6420, 0x64a0, 0x64b0, 0xb080, 0xb081, 0xb082, 0xb083, 0xb084, 0xb085, 0xb086, 0xb087, 0xb08f,
		0xb090, 0xb0a0, 0xb0b0,
	}},
}

var intelByID = func() map[uint16]intelRow {
	all := map[uint16]intelRow{}
	for _, row := range intelRows {
		for _, id := range row.ids {
			all[id] = row
		}
	}
	return all
}()

// intel answers for a GPU of Intel's.
func intel(f Facts) Answer {
	row, listed := intelByID[f.Device]
	switch {
	case f.Driver != "" && f.Driver != "xe" && f.Driver != "i915":
		return noIntelRow.answer(f.device(), Evidence{fileDriver, f.Driver})
	case listed && row.line != nil:
		return row.line.answer(f.device())
	case f.Integrated == Yes:
		return intelIntegrated.answer(f.device())
	case !listed:
		return noIntelRow.answer(f.device())
	}
	a := Answer{Line: row.name, Source: row.source}
	bar := Evidence{fileResource, "BAR " + f.BAR.String()}
	rule := func(t Tri, why string, by ...Evidence) Answer {
		a.DMABuf, a.Why, a.Evidence = t, why+values(by), by
		if t == No {
			a.PeerMem = No // libfabric's dmabuf_peer_mem wraps a dma-buf
		}
		return a
	}
	switch {
	case !f.BAR.Read || f.BAR.Bytes == 0:
		a.Read = "read " + fileResource
		return rule(Unknown, "the size of the BAR was not read, and the driver exports only what the BAR shows", f.device())
	case f.BAR.Bytes <= smallBAR:
		a.Change, a.Source = resize, xeBAR
		return rule(No, "the BAR shows a part of the memory only, and the driver does not export what lies outside of it", f.device(), bar)
	case f.BAR.Bytes < row.memory:
		a.Change, a.Source = resize, xeBAR
		a.Read = "export a buffer and prove with a transfer that the NIC reaches it"
		return rule(Unknown, "the BAR shows a part of the memory only, and the driver exports only buffers in that part", f.device(), bar)
	case row.full == Yes:
		return rule(Yes, "the BAR shows all of the memory, and Level Zero exports it", f.device(), bar)
	}
	a.Read = flex.read
	return rule(Unknown, "no document or report says whether a NIC reaches the memory of this GPU", f.device(), bar)
}

// SPDX-License-Identifier: Apache-2.0

package product

// AMD's lines. The rule is amdgpu's and ROCm's, and is the same for all discrete GPUs:
// the BAR has to show all of the VRAM.
const (
	largeBAR = "drivers/gpu/drm/amd/amdkfd/Kconfig HSA_AMD_P2P; amdgpu_device.c amdgpu_device_is_peer_accessible(); openucx/ucx wiki, Build and run ROCm UCX OpenMPI"
	resize   = "turn on Above 4G Decoding and Resizable BAR in the firmware"
)

var (
	// instinctAPU has one HBM for its CPU and GPU cores.
	instinctAPU = &line{
		name: "Instinct APU", dmabuf: Yes, shared: Yes,
		why:    "the GPU and the processor share one HBM: amdgpu takes every buffer from system memory, and a NIC reaches it as such",
		source: "drivers/gpu/drm/amd/amdgpu/amdgpu_amdkfd_gpuvm.c (is_app_apu), amdgpu_dma_buf.c amdgpu_dma_buf_map()",
	}
	// apu has a part of the machine's memory set aside. ROCm uses the other part where
	// that is larger.
	apu = &line{
		name: "integrated", shared: Yes,
		why:    "the GPU uses the machine's memory: no document says what a NIC reaches of it",
		read:   "register a buffer and prove with a transfer that the NIC reaches it",
		change: "register host memory that the GPU can use: hipHostMalloc",
		source: "drivers/gpu/drm/amd/amdgpu/amdgpu_ttm.c (apu_prefer_gtt)",
	}
	amdDriver = &line{
		name:   "AMD",
		why:    "the table has no rule for this driver on an AMD GPU",
		source: "p2p/product: no row",
	}
)

// amdRow are device ids of one line of discrete GPUs; line is nil for those.
type amdRow struct {
	name   string
	line   *line
	source string
	ids    []uint16
}

var amdRows = []amdRow{
	{"Instinct APU", instinctAPU, pciIDs, []uint16{0x74a0}},
	{"Instinct", nil, pciIDs, []uint16{
		0x66a0, 0x66a1, 0x6860, 0x6864, 0x686c, // MI50, MI25
		0x738c, 0x738e, 0x7408, 0x740c, 0x740f, // MI100, MI250X, MI250, MI210
		0x74a1, 0x74a2, 0x74a5, 0x74a9, 0x74b5, 0x74b9, 0x74bd, // MI300X, MI308X, MI325X
		0x75a0, 0x75a3, 0x75a8, // MI350X, MI355X, MI350P
	}},
	{"Radeon PRO", nil, pciIDs + "; openucx/ucx#11540 (7448)", []uint16{
		0x66a3, 0x66a7, 0x67c4, 0x67c7, 0x6861, 0x6862, 0x6868, 0x6981, 0x6985, // Vega, Polaris
		0x7310, 0x7312, 0x7319, 0x731b, 0x7341, 0x7360, 0x7362, // Navi 1x
		0x73a1, 0x73a2, 0x73a3, 0x73ab, 0x73ae, 0x73e3, 0x7422, // Navi 2x
		0x7448, 0x7449, 0x744a, 0x744b, 0x745e, 0x7460, 0x7461, 0x7470, 0x7489, // Navi 3x
		0x7551, // Radeon AI PRO R9700
	}},
	{"Radeon", nil, pciIDs, []uint16{
		0x66af, 0x67df, 0x67ef, 0x67ff, 0x6863, 0x687f, 0x699f, 0x6fdf, 0x7300, // Vega, Polaris, Fiji
		0x731f, 0x7340, 0x73a5, 0x73af, 0x73bf, 0x73df, 0x73ef, 0x73ff, 0x7424, 0x743f, // Navi 1x, 2x
		0x73f0, 0x744c, 0x747e, 0x7480, 0x7483, 0x7499, 0x749f, // Navi 3x
		0x7550, 0x7590, // Navi 4x
	}},
	{"integrated", apu, pciIDs, []uint16{
		0x1304, 0x1305, 0x1306, 0x1307, 0x1309, 0x130a, 0x130b, 0x130c, 0x130d, 0x130e, 0x130f, 0x1310, 0x1311,
		0x1312, 0x1313, 0x1315, 0x1316, 0x1317, 0x1318, 0x131b, 0x131c, 0x131d, // Kaveri
		0x9874, 0x98e4, // Carrizo, Stoney
		0x13fe, 0x15d8, 0x15dd, 0x15e7, 0x1636, 0x1638, 0x163f, 0x1435, 0x164c, // Raven to Van Gogh
		0x164d, 0x164e, 0x164f, 0x1681, 0x1506, 0x13c0, 0x15bf, 0x15c8, 0x1900, 0x1901, // Rembrandt to Hawk Point
		0x1114, 0x1902, 0x150e, 0x1586, // Krackan, Strix
	}},
}

var amdIDs = func() map[uint16]amdRow {
	all := map[uint16]amdRow{}
	for _, row := range amdRows {
		for _, id := range row.ids {
			all[id] = row
		}
	}
	return all
}()

// amd answers for a GPU of AMD's.
func amd(f Facts) Answer {
	row, listed := amdIDs[f.Device]
	switch {
	case f.Driver != "" && f.Driver != "amdgpu":
		return amdDriver.answer(f.device(), Evidence{fileDriver, f.Driver})
	case listed && row.line != nil:
		return row.line.answer(f.device())
	case f.Integrated == Yes:
		return apu.answer(f.device())
	case listed:
		return f.largeBAR(row.name)
	}
	// amdgpu's rule does not depend on the product, but all of an APU's memory is
	// visible, and an id that is not listed may be an APU's.
	a := f.largeBAR("AMD, not listed")
	if a.DMABuf == Yes && f.Integrated != No {
		a.DMABuf, a.PeerMem = Unknown, Unknown
		a.Why = "the table does not list this AMD device, which may be a GPU without memory of its own" + values([]Evidence{f.device()})
		a.Evidence = append(a.Evidence, f.device())
		a.Read = "find out whether the GPU is integrated into the processor"
	}
	return a
}

// largeBAR compares the VRAM that the BAR shows with the VRAM there is.
func (f Facts) largeBAR(name string) Answer {
	a := Answer{Line: name, Source: largeBAR}
	rule := func(t Tri, why string, by ...Evidence) Answer {
		a.DMABuf, a.PeerMem, a.Why, a.Evidence = t, t, why+values(by), by
		return a
	}
	vram := Evidence{fileVRAM, "VRAM " + f.VRAM.String()}
	visible := Evidence{fileVisible, "visible " + f.VisibleVRAM.String()}
	bar := Evidence{fileResource, "BAR " + f.BAR.String()}
	const small = "the BAR shows a part of the VRAM only, and ROCm gives VRAM to other devices where the BAR shows all of it"
	switch {
	case f.VRAM.Read && f.VisibleVRAM.Read && f.VRAM.Bytes > 0 && f.VisibleVRAM.Bytes >= f.VRAM.Bytes:
		return rule(Yes, "the BAR shows all of the VRAM, and ROCm and amdgpu export it", vram, visible)
	case f.VRAM.Read && f.VisibleVRAM.Read && f.VRAM.Bytes > 0:
		a.Change = resize
		return rule(No, small, vram, visible)
	case f.VRAM.Read && f.BAR.Read && f.BAR.Bytes < f.VRAM.Bytes:
		a.Change = resize
		return rule(No, small, vram, bar)
	case f.BAR.Read && f.BAR.Bytes > 0 && f.BAR.Bytes <= smallBAR:
		a.Change = resize
		return rule(No, small, bar)
	}
	a.Read = "read " + fileVRAM + " and " + fileVisible
	return rule(Unknown, "whether the BAR shows all of the VRAM was not read", f.device())
}

// smallBAR is the size of a GPU's BAR in firmware that does not resize it.
const smallBAR = 256 << 20

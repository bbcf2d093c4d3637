// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"fmt"
	"os"

	"github.com/gpurdma/gpurdma/drm"
)

// gpu is how a GPU's driver allocates.
type gpu interface {
	Regions() ([]drm.Region, error)
	MmapOffset(handle uint32) (uint64, error)
	// create makes a zeroed buffer that CPUs reach; size is a multiple of the
	// granule. m is what Regions answered.
	create(size int64, p place, m memory) (drm.GEM, error)
}

// gpuDrivers are the drivers whose own ioctls are known here, by the name that
// DRM_IOCTL_VERSION answers.
var gpuDrivers = map[string]func(*drm.Device) (gpu, error){
	"amdgpu": openAmdgpu,
	"i915":   openI915,
	"xe":     openXe,
}

// place is where a buffer is to be.
type place int

const (
	inVRAM   place = iota // and in system memory when the driver moves it there
	vramOnly              // an importer that would need it elsewhere is refused
	inSystem
)

// suffix ends the spec of a GPU that has VRAM; VRAM is the default.
func (p place) suffix() string {
	return map[place]string{inVRAM: "/vram", vramOnly: "/vram-only", inSystem: "/system"}[p]
}

// memory is a GPU's, by kind. Buffers lie in one region each.
type memory struct{ vram, system []drm.Region }

func (m memory) all() []drm.Region { return append(append([]drm.Region(nil), m.vram...), m.system...) }

// visible is what CPUs and other devices reach of all VRAM, and how much of
// that is free as far as the driver tells; largest is the most of one region.
func (m memory) visible() (total, free, largest int64) {
	for _, r := range m.vram {
		total += r.Visible
		free += max(0, r.Visible-r.VisibleUsed)
		largest = max(largest, r.Visible)
	}
	return total, free, largest
}

// smallBAR: there is VRAM that only the GPU reaches.
func (m memory) smallBAR() bool {
	for _, r := range m.vram {
		if r.Visible < r.Size {
			return true
		}
	}
	return false
}

func askMemory(g gpu) (memory, error) {
	regions, err := g.Regions()
	var m memory
	for _, r := range regions {
		switch {
		case !r.VRAM:
			m.system = append(m.system, r)
		case r.Size > 0: // amdgpu lists VRAM where a GPU has none
			m.vram = append(m.vram, r)
		}
	}
	return m, err
}

// vramPage is what every driver here accepts as a size in VRAM where it does
// not say: discrete GPUs of Intel have pages of 64 KiB there.
const vramPage = 64 << 10

// granule is what sizes are rounded up to, in bytes.
func (m memory) granule(p place) int64 {
	g := int64(os.Getpagesize())
	if p == inSystem {
		return g
	}
	for _, r := range m.vram {
		if r.Page == 0 {
			g = max(g, vramPage)
		}
		g = max(g, r.Page)
	}
	return g
}

// describeGPU lists the allocators of one GPU: VRAM, the default if there is
// any, and system memory.
func describeGPU(c candidate, nodes []drm.Node, speak func(*drm.Device) (gpu, error)) []candidate {
	d, err := drm.Open(c.Device)
	if err != nil {
		return []candidate{c.gpuRefused(nodes, err)}
	}
	defer d.Close()
	g, err := speak(d)
	if err != nil {
		return []candidate{c.gpuRefused(nodes, err)}
	}
	m, err := askMemory(g)
	if err != nil {
		return []candidate{c.gpuRefused(nodes, err)}
	}
	c.alias(nodes)
	c.Available = true
	if len(m.vram) == 0 {
		return []candidate{c.placed(inSystem, false)}
	}
	vram := c.placed(inVRAM, false)
	vram.Limits = []Limit{vramLimit(c.Description, m)}
	vram.MaxSize = vram.Limits[0].Bytes
	_, vram.room, _ = m.visible()
	out := []candidate{vram}
	if nodes[0].Class == "xe" { // i915 moves whatever others attach to, amdgpu whatever it wants
		only := c.placed(vramOnly, true)
		only.Limits, only.MaxSize = vram.Limits, vram.MaxSize
		out = append(out, only)
	}
	return append(out, c.placed(inSystem, true))
}

// gpuRefused is the one entry of a GPU that does not say what memory it has.
func (c candidate) gpuRefused(nodes []drm.Node, err error) candidate {
	c.refused(err)
	c.alias(nodes)
	c.rank = rankVRAM
	return c
}

// placed makes the allocator of one place. Where it is not the GPU's default,
// all its names end in the place.
func (c candidate) placed(p place, suffixed bool) candidate {
	c.Kind, c.rank = KindVRAM, rankVRAM
	if p == inSystem {
		c.Kind, c.rank = KindSystem, rankGPUSystem
	}
	if p == vramOnly {
		c.rank = rankVRAMOnly
	}
	names := append([]string{c.Spec}, c.Aliases...)
	c.Aliases = nil
	for _, n := range names {
		if !suffixed {
			c.Aliases = append(c.Aliases, n)
		}
		c.Aliases = append(c.Aliases, n+p.suffix())
	}
	c.Spec, c.Aliases = c.Aliases[0], c.Aliases[1:]
	c.open = func(env Env, d Description) (Allocator, error) { return openGPU(env, d, p) }
	return c
}

// vramLimit is the largest buffer that CPUs and other devices can reach.
func vramLimit(d Description, m memory) Limit {
	_, _, largest := m.visible()
	on := d.Device
	if d.PCI != nil {
		on = d.PCI.String()
	}
	l := Limit{
		Name: "VRAM of " + on, Bytes: largest, Scope: scopeSegment, Where: "the driver's memory regions",
		Raise: fmt.Sprintf("ask for at most %d bytes, or use a GPU with more; of one with several memories, in Go split the buffer (Options.SegmentSize)", largest),
	}
	if m.smallBAR() {
		l.Name = "the BAR of " + on + ", through which its VRAM is reached,"
		l.Raise = "enable resizable BAR (and Above 4G Decoding) in the firmware, or " + atMost(largest)
	}
	return l
}

func openGPU(env Env, d Description, p place) (Allocator, error) {
	dev, err := drm.Open(d.Device)
	if err != nil {
		return nil, err
	}
	e, err := newGEMExporter(dev, d, p)
	if err != nil {
		_ = dev.Close()
		return nil, fmt.Errorf("%s: %w", d.Spec, err)
	}
	return newAllocator(env, d, e), nil
}

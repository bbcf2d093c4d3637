// SPDX-License-Identifier: Apache-2.0

package rocm

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/align"
	"github.com/gpurdma/gpurdma/gpualloc/internal/vendor"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

func init() {
	gpualloc.Register(gpualloc.Runtime{Name: "rocm", Discover: discover})
}

func discover(env gpualloc.Env) []gpualloc.Found {
	unavailable := func(err error) []gpualloc.Found {
		f := gpualloc.Found{Description: gpualloc.Description{
			Spec: "rocm", Exporter: "amdgpu", Driver: "amdgpu", Device: "libhsa-runtime64", Kind: gpualloc.KindVRAM,
		}}
		f.Refuse(err)
		return []gpualloc.Found{f}
	}
	s, err := start(env)
	if err != nil {
		return unavailable(err)
	}
	devices, err := s.devices()
	if err != nil {
		return unavailable(err)
	}
	var out []gpualloc.Found
	for _, d := range devices {
		f := gpualloc.Found{Description: describeDevice(d)}
		f.Spec = fmt.Sprintf("rocm:%d", d.Ordinal)
		f.Aliases = []string{"rocm:" + d.PCI.String()}
		if d.UUID != "" {
			f.Aliases = append(f.Aliases, "rocm:"+d.UUID, d.UUID)
		}
		f.MaxSize = d.TotalMem
		if l, ok := visibleLimit(d, env); ok {
			f.Limits = append(f.Limits, l)
		}
		f.Available = true
		f.Open = func(env gpualloc.Env) (gpualloc.Exporter, error) { return &exporter{s, d, env}, nil }
		out = append(out, f)
	}
	return out
}

func describeDevice(d Device) gpualloc.Description {
	addr := d.PCI
	return gpualloc.Description{
		Exporter: "amdgpu", Driver: "amdgpu", Device: d.String(), PCI: &addr, Kind: gpualloc.KindVRAM,
	}
}

// exporter allocates on one GPU. The runtime needs no closing: it is
// initialised for the life of the process.
type exporter struct {
	s   *session
	d   Device
	env gpualloc.Env
}

// Granule is the pool's, or a page, whichever is larger.
func (e *exporter) Granule() int64 {
	g := vendor.PageSize()
	if n := e.d.granule; n > g && n&(n-1) == 0 {
		g = n
	}
	return int64(g)
}

func (e *exporter) FDs() (peak, stay int64) { return 3, 1 }
func (e *exporter) Close() error            { return nil }

// Limits: the GPU's free memory now, and how much of it the BAR shows.
func (e *exporter) Limits() []gpualloc.Limit {
	var out []gpualloc.Limit
	if free, st := e.s.drv.agentUint(e.d.agent, agentMemoryAvail); st == Success {
		out = append(out, gpualloc.Limit{
			Name: "the GPU's free memory", Bytes: int64(free), Where: "HSA_AMD_AGENT_INFO_MEMORY_AVAIL", Scope: "total",
			Raise: "ask for less, or free memory of the GPU (rocm-smi shows it)",
		})
	}
	if l, ok := visibleLimit(e.d, e.env); ok {
		out = append(out, l)
	}
	return out
}

// visibleLimit is the part of the memory that lies in the BAR, where it is not
// all of it: amdgpu shows both numbers.
func visibleLimit(d Device, env gpualloc.Env) (gpualloc.Limit, bool) {
	sys := sysfs.New(env.Sys)
	dir := "bus/pci/devices/" + d.PCI.String()
	visible, err1 := sys.ReadInt(dir + "/mem_info_vis_vram_total")
	total, err2 := sys.ReadInt(dir + "/mem_info_vram_total")
	if err1 != nil || err2 != nil || visible >= total {
		return gpualloc.Limit{}, false
	}
	return gpualloc.Limit{
		Name: "the memory in BAR 0 of " + d.PCI.String(), Bytes: visible, Where: sys.Path(dir, "mem_info_vis_vram_total"), Scope: "total",
		Raise: "enable resizable BAR (and Above 4G Decoding) in the firmware: amdgpu reaches peers with a large BAR only",
	}, true
}

func (e *exporter) Export(_ context.Context, size int64, _ string) (gpualloc.Exported, error) {
	on, drv := e.d.String(), e.s.drv
	p, st := drv.alloc(e.d.pool, uint64(size))
	if st != Success {
		return gpualloc.Exported{}, failed("hsa_amd_memory_pool_allocate", on, st, "", "%#x bytes", size)
	}
	free := func() error { return failed("hsa_amd_memory_pool_free", on, drv.free(p), "", "%#x", uint64(p)) }
	if st := drv.fill(p, 0, uint64(size)/4); st != Success {
		return gpualloc.Exported{}, errors.Join(failed("hsa_amd_memory_fill", on, st, "", "%#x bytes at %#x", size, uint64(p)), free())
	}
	mem := align.Range{Addr: uint64(p), Length: uint64(size)}
	made, err := e.s.place(on, align.Request{Memory: mem, Allocations: []align.Range{mem}}, 0)
	if err != nil {
		return gpualloc.Exported{}, errors.Join(err, free())
	}
	out := e.s.part(on, made[0])
	out.Free = free
	return out, nil
}

// SPDX-License-Identifier: Apache-2.0

package levelzero

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/align"
	"github.com/gpurdma/gpurdma/gpualloc/internal/vendor"
)

func init() {
	gpualloc.Register(gpualloc.Runtime{Name: "ze", Discover: discover})
}

func discover(env gpualloc.Env) []gpualloc.Found {
	unavailable := func(err error) []gpualloc.Found {
		f := gpualloc.Found{Description: gpualloc.Description{
			Spec: "ze", Exporter: "drm", Driver: "i915, xe", Device: "libze_loader", Kind: gpualloc.KindVRAM,
		}}
		f.Refuse(err)
		return []gpualloc.Found{f}
	}
	s, err := start()
	if err != nil {
		return unavailable(err)
	}
	devices, err := s.devices()
	if err != nil {
		return unavailable(err)
	}
	var out []gpualloc.Found
	for _, d := range devices {
		out = append(out, s.found(d, env))
	}
	return out
}

func (s *session) found(d Device, env gpualloc.Env) gpualloc.Found {
	f := gpualloc.Found{Description: describeDevice(d)}
	f.Spec = fmt.Sprintf("ze:%d", d.Ordinal)
	f.Aliases = []string{"ze:" + d.PCI.String(), "ze:" + d.UUID, d.UUID}
	f.MaxSize = d.MaxSize
	f.Limits = s.limits(d, env)
	if !d.DMABuf {
		f.Err = UnsupportedFeature
		f.Why = "the driver says that it exports no dma-bufs (memoryAllocationExportTypes)"
		f.Remedy = "install a newer driver, or allocate through DRM (drm:" + d.PCI.String() + ")"
		return f
	}
	f.Available = true
	f.Open = func(env gpualloc.Env) (gpualloc.Exporter, error) { return s.open(d, env) }
	return f
}

func describeDevice(d Device) gpualloc.Description {
	addr := d.PCI
	kind := gpualloc.KindVRAM
	if d.Integrated {
		kind = gpualloc.KindSystem
	}
	return gpualloc.Description{Exporter: "drm", Driver: "i915, xe", Device: d.String(), PCI: &addr, Kind: kind}
}

// limits: the size of one allocation, and BAR 2. How much of either is free, the core
// API does not say.
func (s *session) limits(d Device, env gpualloc.Env) []gpualloc.Limit {
	out := []gpualloc.Limit{{
		Name: "the driver's largest allocation", Bytes: d.MaxSize, Where: "ze_device_properties_t.maxMemAllocSize", Scope: "segment",
		Raise: fmt.Sprintf("ask for at most %d bytes, or in Go split the buffer (Options.SegmentSize)", d.MaxSize),
	}}
	if l, ok := barLimit(d, env); ok {
		out = append(out, l)
	}
	return out
}

// barLimit is the size of BAR 2, through which Intel's GPUs show their memory, where
// it does not show all of it.
func barLimit(d Device, env gpualloc.Env) (gpualloc.Limit, bool) {
	if d.Integrated {
		return gpualloc.Limit{}, false
	}
	size, file, ok := vendor.BAR(env.Sys, d.PCI.String(), 2)
	if !ok || size >= d.TotalMem {
		return gpualloc.Limit{}, false
	}
	return gpualloc.Limit{
		Name: "BAR 2 of " + d.PCI.String(), Bytes: size, Where: file, Scope: "total",
		Raise: "enable resizable BAR (and Above 4G Decoding) in the firmware, or force it and register less at a time",
	}, true
}

// exporter allocates on one GPU.
type exporter struct {
	s   *session
	d   Device
	ctx contextHandle
	env gpualloc.Env
	q   *queue
}

func (s *session) open(d Device, env gpualloc.Env) (gpualloc.Exporter, error) {
	ctx, err := s.context(d.driver, d.String())
	if err != nil {
		return nil, err
	}
	q, err := s.newQueue(ctx, d)
	if err != nil {
		return nil, err
	}
	return &exporter{s: s, d: d, ctx: ctx, env: env, q: q}, nil
}

// largestPage is what a driver may round an allocation up to. Memory that was
// allocated for export has a dma-buf of its own.
const largestPage = 2 << 20

// unit is what sizes are rounded up to: the GPUs' 64 KiB pages.
const unit = 64 << 10

func (e *exporter) Granule() int64           { return max(unit, int64(vendor.PageSize())) }
func (e *exporter) FDs() (peak, stay int64)  { return 3, 1 }
func (e *exporter) Limits() []gpualloc.Limit { return e.s.limits(e.d, e.env) }
func (e *exporter) Close() error             { return e.q.put() }

func (e *exporter) Export(_ context.Context, size int64, _ string) (gpualloc.Exported, error) {
	on, drv := e.d.String(), e.s.drv
	p, r := drv.alloc(e.ctx, e.d.handle, uint64(size), uint64(e.Granule()), true)
	if r != Success {
		return gpualloc.Exported{}, failed("zeMemAllocDevice", on, r, "", "%#x bytes, for export as dma-buf", size)
	}
	e.q.get()
	u := vendor.Undo{e.q.put}
	u.Add(func() error { return failed("zeMemFree", on, drv.free(e.ctx, p), "", "%#x", uint64(p)) })
	r = e.q.do(func(l listHandle) Result { return drv.zero(l, p, uint64(size)) })
	if err := failed("zeCommandListAppendMemoryFill", on, r, "", "%#x bytes at %#x", size, uint64(p)); err != nil {
		return gpualloc.Exported{}, errors.Join(err, u.Run())
	}
	mem := align.Range{Addr: uint64(p), Length: uint64(size)}
	made, err := e.s.place(e.ctx, on, align.Request{Memory: mem, Allocations: []align.Range{mem}}, largestPage)
	if err != nil {
		return gpualloc.Exported{}, errors.Join(err, u.Run())
	}
	out := e.s.part(e.q, on, made[0])
	out.Free = u.Run
	return out, nil
}

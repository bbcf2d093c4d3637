// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/align"
	"github.com/gpurdma/gpurdma/gpualloc/internal/vendor"
)

func init() {
	gpualloc.Register(gpualloc.Runtime{Name: "cuda", Discover: discover})
}

// discover lists two allocators a GPU: cuMemAlloc and the virtual memory API.
func discover(env gpualloc.Env) []gpualloc.Found {
	unavailable := func(err error) []gpualloc.Found {
		f := gpualloc.Found{Description: gpualloc.Description{
			Spec: "cuda", Exporter: "nvidia", Driver: "nvidia", Device: "libcuda", Kind: gpualloc.KindVRAM,
		}}
		f.Refuse(err)
		return []gpualloc.Found{f}
	}
	s, err := start()
	if err != nil {
		return unavailable(err)
	}
	devices, err := s.devices(env)
	if err != nil {
		return unavailable(err)
	}
	var out []gpualloc.Found
	for _, d := range devices {
		out = append(out, s.found(d, env, false))
		if d.VMM {
			out = append(out, s.found(d, env, true))
		}
	}
	return out
}

// found describes one allocator of one GPU.
func (s *session) found(d Device, env gpualloc.Env, vmm bool) gpualloc.Found {
	f := gpualloc.Found{Description: describeDevice(d), Alternative: vmm}
	suffix := ""
	if vmm {
		suffix = "/vmm"
	}
	f.Spec = fmt.Sprintf("cuda:%d%s", d.Ordinal, suffix)
	for _, alias := range []string{"cuda:" + d.PCI.String(), "cuda:" + d.UUID, d.UUID} {
		f.Aliases = append(f.Aliases, alias+suffix)
	}
	f.MaxSize = d.TotalMem
	if l, ok := barLimit(d, env); ok {
		f.Limits = append(f.Limits, l)
	}
	switch {
	case !d.DMABuf.OK:
		f.Why, f.Remedy, f.Err = strings.Join(d.DMABuf.Why, "; "), d.DMABuf.Remedy, NotSupported
		return f
	case vmm && !d.VMMRDMA:
		f.Why, f.Err = "the GPU's virtual memory API has no memory that RDMA devices reach (gpuDirectRDMACapable)", NotSupported
		f.Remedy = fmt.Sprintf("use cuda:%d", d.Ordinal)
		return f
	}
	f.Available = true
	f.Open = func(env gpualloc.Env) (gpualloc.Exporter, error) { return s.open(d, env, vmm) }
	return f
}

func describeDevice(d Device) gpualloc.Description {
	addr := d.PCI
	return gpualloc.Description{
		Exporter: "nvidia", Driver: "nvidia", Device: d.String(), PCI: &addr, Kind: gpualloc.KindVRAM,
	}
}

// exporter allocates on one GPU.
type exporter struct {
	s    *session
	d    Device
	ctx  contextHandle // retained
	env  gpualloc.Env
	vmm  bool
	unit int64
}

// smallUnit is what cuMemAlloc's sizes are rounded up to: its large pages on
// every GPU are multiples, so that small buffers seldom share a page with the
// memory of others.
const smallUnit = 64 << 10

func (s *session) open(d Device, env gpualloc.Env, vmm bool) (gpualloc.Exporter, error) {
	on := d.String()
	ctx, r := s.drv.retain(d.dev)
	if r != Success {
		return nil, failed("cuDevicePrimaryCtxRetain", on, r, "", "")
	}
	e := &exporter{s: s, d: d, ctx: ctx, env: env, vmm: vmm, unit: max(smallUnit, int64(os.Getpagesize()))}
	if vmm {
		n, r := s.drv.granularity(d.dev, true)
		if r != Success || n == 0 || n&(n-1) != 0 {
			if r == Success {
				r = Unknown
			}
			return nil, errors.Join(failed("cuMemGetAllocationGranularity", on, r, "", "granularity %#x", n), e.Close())
		}
		e.unit = max(int64(n), int64(os.Getpagesize()))
	}
	return e, nil
}

func (e *exporter) Granule() int64          { return e.unit }
func (e *exporter) FDs() (peak, stay int64) { return 1, 1 }

func (e *exporter) Close() error {
	return failed("cuDevicePrimaryCtxRelease", e.d.String(), e.s.drv.release(e.d.dev), "", "")
}

// Limits: the GPU's free memory now, and its BAR.
func (e *exporter) Limits() []gpualloc.Limit {
	var out []gpualloc.Limit
	if free, _, r := e.s.drv.memInfo(e.ctx); r == Success {
		out = append(out, gpualloc.Limit{
			Name: "the GPU's free memory", Bytes: int64(free), Where: "cuMemGetInfo", Scope: "total",
			Raise: remedies[OutOfMemory],
		})
	}
	if l, ok := barLimit(e.d, e.env); ok {
		out = append(out, l)
	}
	return out
}

// barLimit is the size of BAR 1, through which a GPU's memory is reached over PCIe: all
// registered memory must fit. Only NVML knows how much of it is taken, and this package
// does not use NVML: nvml.CheckBAR1 asks before a registration, which is when memory
// takes its part of BAR 1.
func barLimit(d Device, env gpualloc.Env) (gpualloc.Limit, bool) {
	if d.Integrated {
		return gpualloc.Limit{}, false
	}
	size, file, ok := vendor.BAR(env.Sys, d.PCI.String(), 1)
	if !ok || size >= d.TotalMem {
		return gpualloc.Limit{}, false
	}
	return gpualloc.Limit{
		Name: "BAR 1 of " + d.PCI.String(), Bytes: size, Where: file, Scope: "total",
		Raise: "enable resizable BAR (and Above 4G Decoding) in the firmware, or force it and register less at a time",
	}, true
}

func (e *exporter) Export(_ context.Context, size int64, _ string) (gpualloc.Exported, error) {
	on := e.d.String()
	// A context of its own count: buffers outlive the allocator.
	ctx, r := e.s.drv.retain(e.d.dev)
	if r != Success {
		return gpualloc.Exported{}, failed("cuDevicePrimaryCtxRetain", on, r, "", "")
	}
	u := vendor.Undo{func() error { return failed("cuDevicePrimaryCtxRelease", on, e.s.drv.release(e.d.dev), "", "") }}
	p, err := e.allocate(ctx, uint64(size), &u)
	if err == nil {
		err = failed("cuMemsetD8", on, e.s.drv.fill(ctx, p, 0, uint64(size)), "", "%#x bytes at %#x", size, uint64(p))
	}
	if err != nil {
		return gpualloc.Exported{}, errors.Join(err, u.Run())
	}
	mem := align.Range{Addr: uint64(p), Length: uint64(size)}
	// Not the PCIe mapping: no importer here can use it (see the package's comment).
	made, mapping, err := e.s.place(ctx, on, align.Request{Memory: mem, Allocations: []align.Range{mem}}, MappingDefault)
	if err != nil {
		return gpualloc.Exported{}, errors.Join(err, u.Run())
	}
	out := e.s.part(ctx, e.d, on, made[0], mapping, always)
	out.Free = u.Run
	return out, nil
}

func (e *exporter) allocate(ctx contextHandle, size uint64, u *vendor.Undo) (pointer, error) {
	if e.vmm {
		return e.allocateVMM(ctx, size, u)
	}
	on, drv := e.d.String(), e.s.drv
	p, r := drv.alloc(ctx, size)
	if r != Success {
		return 0, failed("cuMemAlloc", on, r, "", "%#x bytes", size)
	}
	u.Add(func() error { return failed("cuMemFree", on, drv.free(ctx, p), "", "%#x", uint64(p)) })
	return p, failed("cuPointerSetAttribute", on, drv.syncMemops(ctx, p), "", "CU_POINTER_ATTRIBUTE_SYNC_MEMOPS at %#x", uint64(p))
}

// allocateVMM reserves addresses, creates memory that RDMA devices reach, maps
// it there and lets the GPU access it. The handle goes at once: the mapping
// keeps the memory.
func (e *exporter) allocateVMM(ctx contextHandle, size uint64, u *vendor.Undo) (pointer, error) {
	on, drv, dev := e.d.String(), e.s.drv, e.d.dev
	p, r := drv.reserve(ctx, size)
	if r != Success {
		return 0, failed("cuMemAddressReserve", on, r, "", "%#x bytes", size)
	}
	u.Add(func() error {
		return failed("cuMemAddressFree", on, drv.addressFree(ctx, p, size), "", "%#x bytes at %#x", size, uint64(p))
	})
	h, r := drv.create(ctx, size, dev, true)
	if r != Success {
		return 0, failed("cuMemCreate", on, r, "", "%#x bytes, gpuDirectRDMACapable", size)
	}
	r = drv.mapHandle(ctx, p, size, h)
	err := errors.Join(
		failed("cuMemMap", on, r, "", "%#x bytes at %#x", size, uint64(p)),
		failed("cuMemRelease", on, drv.releaseHandle(h), "", ""))
	if r == Success {
		u.Add(func() error {
			return failed("cuMemUnmap", on, drv.unmap(ctx, p, size), "", "%#x bytes at %#x", size, uint64(p))
		})
	}
	if err != nil {
		return 0, err
	}
	return p, failed("cuMemSetAccess", on, drv.setAccess(ctx, p, size, dev), "", "%#x bytes at %#x", size, uint64(p))
}

// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/ioctl/ioctltest"
)

// What works is tested on the software GPU; here is what no driver that works
// would answer.

// speaking opens a node whose driver is of that name.
func speaking(t *testing.T, driver string, steps ...ioctltest.Step) *Device {
	t.Helper()
	return render(t, append(versionSteps(driver, uint64(len(driver))), steps...)...)
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestSpeaksOneDriver(t *testing.T) {
	for driver, call := range map[string]func(*Device) error{
		"i915":       func(d *Device) error { _, err := d.I915(); return err },
		"xe":         func(d *Device) error { _, err := d.Xe(); return err },
		"amdgpu":     func(d *Device) error { _, err := d.Amdgpu(); return err },
		"virtio_gpu": func(d *Device) error { _, err := d.Virtgpu(); return err },
	} {
		if err := call(speaking(t, driver)); err != nil {
			t.Errorf("%s: %v", driver, err)
		}
		err := call(speaking(t, "nouveau"))
		if !errors.Is(err, unix.ENOTTY) || !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "the driver is nouveau") {
			t.Errorf("%s's ioctls on nouveau: %v", driver, err)
		}
		if err := call(render(t, ioctltest.Step{Req: reqVersion, Errno: unix.ENODEV})); !errors.Is(err, unix.ENODEV) {
			t.Errorf("%s, no answer: %v", driver, err)
		}
	}
}

// i915Answer plays one DRM_I915_QUERY item.
func i915Answer(length int32, data []byte) ioctltest.Step {
	return ioctltest.Step{Req: reqI915Query, Fill: func(arg unsafe.Pointer) {
		item := (*abiI915Query)(arg).Items
		if item.Data != nil {
			copy(unsafe.Slice(item.Data, item.Length), data)
		}
		item.Length = length
	}}
}

func bytesOf[T any](v *T) []byte {
	return slices.Clone(unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)))
}

func i915RegionsAnswer(infos ...abiI915RegionInfo) []byte {
	out := bytesOf(&abiI915RegionsHead{NumRegions: uint32(len(infos))})
	for i := range infos {
		out = append(out, bytesOf(&infos[i])...)
	}
	return out
}

func TestI915Regions(t *testing.T) {
	// A kernel before small BARs, one with, and what it does not know.
	data := i915RegionsAnswer(
		abiI915RegionInfo{Probed: math.MaxUint64, Unallocated: math.MaxUint64},
		abiI915RegionInfo{Region: abiI915Region{Class: i915ClassDevice}, Probed: 100, Unallocated: 40},
		abiI915RegionInfo{Region: abiI915Region{Class: i915ClassDevice, Instance: 1}, Probed: 100, Unallocated: 40, ProbedVisible: 30, UnallocatedVisible: 10},
		abiI915RegionInfo{Region: abiI915Region{Class: i915ClassDevice, Instance: 2}, Probed: 100, Unallocated: math.MaxUint64, ProbedVisible: 30, UnallocatedVisible: math.MaxUint64},
	)
	n := int32(len(data))
	g := must[I915](t)(speaking(t, "i915", i915Answer(n, nil), i915Answer(n, data)).I915())
	got := must[[]Region](t)(g.Regions())
	want := []Region{
		{},
		{VRAM: true, Size: 100, Visible: 100, Used: 60, VisibleUsed: 60},
		{VRAM: true, Instance: 1, Size: 100, Visible: 30, Used: 60, VisibleUsed: 20},
		{VRAM: true, Instance: 2, Size: 100, Visible: 30},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	for name, c := range map[string]struct {
		want  error
		steps []ioctltest.Step
	}{
		"refused":          {unix.EPERM, []ioctltest.Step{{Req: reqI915Query, Errno: unix.EPERM}}},
		"the item refused": {unix.EINVAL, []ioctltest.Step{i915Answer(-int32(unix.EINVAL), nil)}},
		"refused later":    {unix.ENODEV, []ioctltest.Step{i915Answer(n, nil), i915Answer(-int32(unix.ENODEV), nil)}},
		"nothing":          {unix.EPROTO, []ioctltest.Step{i915Answer(0, nil)}},
		"gigabytes":        {unix.EPROTO, []ioctltest.Step{i915Answer(1<<30, nil)}},
		"too short a head": {unix.EPROTO, []ioctltest.Step{i915Answer(8, nil), i915Answer(8, data[:8])}},
		"a region missing": {unix.EPROTO, []ioctltest.Step{i915Answer(n, nil), i915Answer(n-1, data)}},
		"more than it has": {unix.EPROTO, []ioctltest.Step{i915Answer(n, nil), i915Answer(n, append(bytesOf(&abiI915RegionsHead{NumRegions: 9}), data[16:]...))}},
	} {
		g := must[I915](t)(speaking(t, "i915", c.steps...).I915())
		if _, err := g.Regions(); !errors.Is(err, c.want) || !strings.Contains(err.Error(), "memory regions") {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestI915Create(t *testing.T) {
	vram, system := Region{VRAM: true, Instance: 1}, Region{}
	g := must[I915](t)(speaking(t, "i915",
		ioctltest.Step{Req: reqI915CreateExt, Fill: func(arg unsafe.Pointer) {
			c := (*abiI915CreateExt)(arg)
			e := c.Extensions
			list := unsafe.Slice(e.Regions, e.NumRegions)
			if c.Size != 5 || c.Flags != I915NeedsCPUAccess || e.Base.Name != i915ExtMemoryRegions || e.Base.Next != 0 ||
				!slices.Equal(list, []abiI915Region{{Class: i915ClassDevice, Instance: 1}, {}}) {
				t.Errorf("argument %+v, %+v, %+v", *c, *e, list)
			}
			c.Handle, c.Size = 3, 65536
		}},
		ioctltest.Step{Req: reqI915CreateExt, Fill: func(arg unsafe.Pointer) {
			if c := (*abiI915CreateExt)(arg); c.Extensions != nil {
				t.Error("an extension without regions")
			}
			(*abiI915CreateExt)(arg).Handle = 4
		}},
		// A driver that answers less than asked for.
		ioctltest.Step{Req: reqI915Create, Fill: func(arg unsafe.Pointer) {
			c := (*abiI915Create)(arg)
			c.Handle, c.Size = 5, 1
		}},
		ioctltest.Step{Req: reqGemClose, Fill: func(arg unsafe.Pointer) {
			if h := (*abiGemClose)(arg).Handle; h != 5 {
				t.Errorf("closed handle %d", h)
			}
		}},
		ioctltest.Step{Req: reqI915CreateExt, Errno: unix.ENOMEM},
	).I915())
	if b, err := g.CreateExt(5, I915NeedsCPUAccess, vram, system); err != nil || b != (GEM{Handle: 3, Size: 65536}) {
		t.Errorf("%+v, %v", b, err)
	}
	if b, err := g.CreateExt(5, 0); err != nil || b != (GEM{Handle: 4, Size: 5}) {
		t.Errorf("%+v, %v", b, err)
	}
	if _, err := g.Create(2); !errors.Is(err, unix.EPROTO) {
		t.Errorf("a smaller one: %v", err)
	}
	if _, err := g.CreateExt(7, 0, vram); !errors.Is(err, unix.ENOMEM) || !strings.Contains(err.Error(), "7 bytes in [VRAM 1], flags 0x0") {
		t.Errorf("%v", err)
	}
}

// Without VRAM there is no fixed kind of mapping, and on old GPUs no
// write-combined one.
func TestI915MmapOffset(t *testing.T) {
	step := func(kind uint64, errno unix.Errno) ioctltest.Step {
		return ioctltest.Step{Req: reqI915MmapOffset, Errno: errno, Fill: func(arg unsafe.Pointer) {
			c := (*abiI915MmapOffset)(arg)
			if c.Flags != kind || c.Handle != 3 {
				t.Errorf("argument %+v, want kind %d", *c, kind)
			}
			c.Offset = 1 << 32
		}}
	}
	for name, c := range map[string]struct {
		want  error
		steps []ioctltest.Step
	}{
		"VRAM":           {nil, []ioctltest.Step{step(i915MmapFixed, 0)}},
		"no VRAM":        {nil, []ioctltest.Step{step(i915MmapFixed, unix.ENODEV), step(i915MmapWC, 0)}},
		"old":            {nil, []ioctltest.Step{step(i915MmapFixed, unix.EINVAL), step(i915MmapWC, unix.ENODEV), step(i915MmapGTT, 0)}},
		"nothing":        {unix.ENODEV, []ioctltest.Step{step(i915MmapFixed, unix.ENODEV), step(i915MmapWC, unix.ENODEV), step(i915MmapGTT, unix.ENODEV)}},
		"unknown handle": {unix.ENOENT, []ioctltest.Step{step(i915MmapFixed, unix.ENOENT)}},
	} {
		g := must[I915](t)(speaking(t, "i915", c.steps...).I915())
		offset, err := g.MmapOffset(3)
		if !errors.Is(err, c.want) || err == nil && offset != 1<<32 {
			t.Errorf("%s: %#x, %v", name, offset, err)
		}
	}
}

// xeAnswer plays DRM_IOCTL_XE_DEVICE_QUERY, first the size.
func xeAnswer(query uint32, data []byte) []ioctltest.Step {
	return []ioctltest.Step{
		{Req: reqXeQuery, Fill: func(arg unsafe.Pointer) { (*abiXeQuery)(arg).Size = uint32(len(data)) }},
		{Req: reqXeQuery, Fill: func(arg unsafe.Pointer) {
			if q := (*abiXeQuery)(arg); q.Query == query && q.Data != nil {
				copy(unsafe.Slice(q.Data, q.Size), data)
			}
		}},
	}
}

func TestXeQueries(t *testing.T) {
	regions := bytesOf(&abiXeRegionsHead{NumRegions: 1})
	regions = append(regions, bytesOf(&abiXeRegion{Class: xeClassVRAM, Instance: 2, MinPageSize: 65536, TotalSize: 100, Used: 7, Visible: 30, VisibleUsed: 5})...)
	g := must[Xe](t)(speaking(t, "xe", xeAnswer(xeQueryRegions, regions)...).Xe())
	got := must[[]Region](t)(g.Regions())
	want := []Region{{VRAM: true, Instance: 2, Page: 65536, Size: 100, Used: 7, Visible: 30, VisibleUsed: 5}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	config := bytesOf(&abiXeConfigHead{NumParams: 2})
	config = append(config, make([]byte, 16)...)
	for name, c := range map[string]struct {
		want  error
		steps []ioctltest.Step
	}{
		"refused":            {unix.EPERM, []ioctltest.Step{{Req: reqXeQuery, Errno: unix.EPERM}}},
		"refused later":      {unix.ENOSPC, []ioctltest.Step{xeAnswer(0, config)[0], {Req: reqXeQuery, Errno: unix.ENOSPC}}},
		"nothing":            {unix.EPROTO, []ioctltest.Step{{Req: reqXeQuery}}},
		"gigabytes":          {unix.EPROTO, xeAnswer(0, make([]byte, maxQuery+1))[:1]},
		"too few":            {unix.EPROTO, xeAnswer(xeQueryConfig, config)},
		"fewer than it says": {unix.EPROTO, xeAnswer(xeQueryConfig, append(bytesOf(&abiXeConfigHead{NumParams: 9}), config[8:]...))},
		"no head":            {unix.EPROTO, xeAnswer(xeQueryConfig, config[:4])},
	} {
		g := must[Xe](t)(speaking(t, "xe", c.steps...).Xe())
		if _, err := g.Config(); !errors.Is(err, c.want) || !strings.Contains(err.Error(), "config") {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestXeCreate(t *testing.T) {
	g := must[Xe](t)(speaking(t, "xe",
		ioctltest.Step{Req: reqXeCreate, Fill: func(arg unsafe.Pointer) {
			c := (*abiXeCreate)(arg)
			if c.Size != 65536 || c.Placement != 0b101 || c.Caching != uint16(XeWriteCombined) || c.Flags != XeNeedsVisibleVRAM || c.Handle != 0 {
				t.Errorf("argument %+v", *c)
			}
			c.Handle = 9
		}},
		ioctltest.Step{Req: reqXeCreate, Errno: unix.EINVAL},
	).Xe())
	if b, err := g.Create(65536, XeWriteCombined, XeNeedsVisibleVRAM, Region{VRAM: true, Instance: 2}, Region{}); err != nil || b != (GEM{Handle: 9, Size: 65536}) {
		t.Errorf("%+v, %v", b, err)
	}
	// An instance that no mask has must not wrap into another region.
	if _, err := g.Create(65536, XeWriteBack, 0, Region{Instance: 64}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("%v", err)
	}
}

func TestAmdgpuRounds(t *testing.T) {
	page := int64(os.Getpagesize())
	g := must[Amdgpu](t)(speaking(t, "amdgpu",
		ioctltest.Step{Req: reqAmdgpuCreate, Fill: func(arg unsafe.Pointer) {
			if c := (*abiAmdgpuCreateIn)(arg); c.BOSize != uint64(page) || c.Domains != 4 || c.DomainFlags != 1 {
				t.Errorf("argument %+v", *c)
			}
			*(*abiAmdgpuCreateOut)(arg) = abiAmdgpuCreateOut{Handle: 8}
		}},
		ioctltest.Step{Req: reqAmdgpuInfo, Errno: unix.EINVAL},
		ioctltest.Step{Req: reqAmdgpuInfo, Errno: unix.ENODEV},
	).Amdgpu())
	if b, err := g.Create(1, AmdgpuVRAM, AmdgpuCPUAccess); err != nil || b != (GEM{Handle: 8, Size: page}) {
		t.Errorf("%+v, %v", b, err)
	}
	if _, err := g.Info(); !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "DEV_INFO") {
		t.Errorf("%v", err)
	}
	if _, err := g.Regions(); !errors.Is(err, unix.ENODEV) || !strings.Contains(err.Error(), "AMDGPU_INFO_MEMORY") {
		t.Errorf("%v", err)
	}
	for _, size := range []int64{0, -1, math.MaxInt64} {
		if _, err := g.Create(size, AmdgpuVRAM, 0); !errors.Is(err, failure.ErrRange) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// virtgpuParam plays an answer to GETPARAM, of which the kernel writes an int.
func virtgpuParam(value uint32) ioctltest.Step {
	return ioctltest.Step{Req: reqVirtgpuGetparam, Fill: func(arg unsafe.Pointer) {
		*(*uint32)(unsafe.Pointer((*abiVirtgpuGetparam)(arg).Value)) = value
	}}
}

// QEMU has blobs where its own host has udmabuf, which build machines lack.
func TestVirtgpu(t *testing.T) {
	page := int64(os.Getpagesize())
	g := must[Virtgpu](t)(speaking(t, "virtio_gpu",
		virtgpuParam(1),
		ioctltest.Step{Req: reqVirtgpuBlob, Fill: func(arg unsafe.Pointer) {
			c := (*abiVirtgpuBlob)(arg)
			if c.BlobMem != 1 || c.BlobFlags != VirtgpuMappable|VirtgpuShareable || c.Size != uint64(2*page) || c.BlobID != 7 || c.Cmd != 0 {
				t.Errorf("argument %+v", *c)
			}
			c.BOHandle = 6
		}},
		ioctltest.Step{Req: reqVirtgpuMap, Fill: func(arg unsafe.Pointer) {
			if h := (*abiVirtgpuMap)(arg).Handle; h != 6 {
				t.Errorf("handle %d", h)
			}
			(*abiVirtgpuMap)(arg).Offset = 1 << 33
		}},
		ioctltest.Step{Req: reqVirtgpuGetCaps, Fill: func(arg unsafe.Pointer) {
			c := (*abiVirtgpuCaps)(arg)
			copy(unsafe.Slice(c.Addr, c.Size), "caps")
			if c.SetID != 2 || c.SetVer != 1 || c.Size != 4 {
				t.Errorf("argument %+v", *c)
			}
		}},
	).Virtgpu())
	if n := must[uint64](t)(g.Param(VirtgpuBlob)); n != 1 {
		t.Errorf("blobs: %d", n)
	}
	if b, err := g.Create(page+1, VirtgpuGuest, VirtgpuMappable|VirtgpuShareable, 7); err != nil || b != (GEM{Handle: 6, Size: 2 * page}) {
		t.Errorf("%+v, %v", b, err)
	}
	if off := must[uint64](t)(g.MmapOffset(6)); off != 1<<33 {
		t.Errorf("offset %#x", off)
	}
	if c := must[[]byte](t)(g.Caps(2, 1, 4)); string(c) != "caps" {
		t.Errorf("%q", c)
	}
}

func TestVirtgpuRefusals(t *testing.T) {
	g := must[Virtgpu](t)(speaking(t, "virtio_gpu",
		ioctltest.Step{Req: reqVirtgpuBlob, Errno: unix.EINVAL}, virtgpuParam(0),
		ioctltest.Step{Req: reqVirtgpuBlob, Errno: unix.EINVAL}, virtgpuParam(1),
		ioctltest.Step{Req: reqVirtgpuGetparam, Errno: unix.EINVAL},
		ioctltest.Step{Req: reqVirtgpuMap, Errno: unix.ENOENT},
		ioctltest.Step{Req: reqVirtgpuGetCaps, Errno: unix.ENOSYS},
	).Virtgpu())
	if _, err := g.Create(1, VirtgpuGuest, 0, 0); !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "blob=on") {
		t.Errorf("no blobs: %v", err)
	}
	if _, err := g.Create(1, VirtgpuHost, 0, 0); !errors.Is(err, unix.EINVAL) || strings.Contains(err.Error(), "blob=on") {
		t.Errorf("not this kind: %v", err)
	}
	_, paramErr := g.Param(99)
	_, mapErr := g.MmapOffset(1)
	_, capsErr := g.Caps(1, 1, 8)
	for err, want := range map[error]error{paramErr: unix.EINVAL, mapErr: unix.ENOENT, capsErr: unix.ENOSYS} {
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	for _, length := range []int{0, -1, maxQuery + 1} {
		if _, err := g.Caps(1, 1, length); !errors.Is(err, failure.ErrRange) {
			t.Errorf("%d bytes of capabilities: %v", length, err)
		}
	}
	for _, size := range []int64{0, -1, math.MaxInt64} {
		if _, err := g.Create(size, VirtgpuGuest, 0, 0); !errors.Is(err, failure.ErrRange) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

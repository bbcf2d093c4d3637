// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
)

// The driver refuses the calls that the real drivers refuse, with their errno; nothing
// stays allocated.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMGPURefusals(t *testing.T) {
	eachSoftGPU(t, func(t *testing.T, g softGPU) {
		vram, system := g.region(t, true), g.region(t, false)
		nowhere := Region{VRAM: true, Instance: 7}
		const mib = 1 << 20
		type refusal struct {
			name string
			want error
			do   func() error
		}
		offset := func(h uint32) func() error { return func() error { _, err := g.offset(h); return err } }
		list := []refusal{
			{"offset of an unknown handle", unix.ENOENT, offset(4711)},
			{"export of an unknown handle", unix.ENOENT, func() error { _, err := g.dev.PrimeHandleToFD(4711, ReadWrite); return err }},
			{"close of an unknown handle", unix.EINVAL, func() error { return g.dev.GEMClose(4711) }},
			{"no bytes in VRAM", failure.ErrRange, func() error { _, err := g.vram(0); return err }},
			{"no bytes in system memory", failure.ErrRange, func() error { _, err := g.system(-1); return err }},
		}
		switch g.Personality {
		case "amdgpu":
			a, _ := g.dev.Amdgpu()
			create := func(n int64, d AmdgpuDomain, f AmdgpuFlag) func() error {
				return func() error { _, err := a.Create(n, d, f); return err }
			}
			list = append(list, []refusal{
				{"doorbell", unix.EINVAL, create(mib, 0x40, 0)},
				{"unknown domain", unix.EINVAL, create(mib, 0x80, 0)},
				{"GDS that is not there", unix.EINVAL, create(mib, 0x8, 0)},
				{"VRAM and GDS", unix.EINVAL, create(mib, AmdgpuVRAM|0x8, 0)},
				{"unknown flag", unix.EINVAL, create(mib, AmdgpuVRAM, 1<<40)},
				{"encrypted without TMZ", unix.EINVAL, create(mib, AmdgpuVRAM, 1<<10)},
				{"more than the GTT", unix.ENOMEM, create(1<<50, AmdgpuGTT, 0)},
				{"overflow", failure.ErrRange, create(1<<63-1, AmdgpuGTT, 0)},
				{"mapping without CPU access", unix.EPERM, func() error {
					b, err := a.Create(mib, AmdgpuVRAM, AmdgpuNoCPUAccess)
					if err != nil {
						return err
					}
					defer g.dev.GEMClose(b.Handle)
					_, err = a.MmapOffset(b.Handle)
					return err
				}},
			}...)
		case "xe":
			x, _ := g.dev.Xe()
			create := func(n int64, c XeCaching, f uint32, r ...Region) func() error {
				return func() error { _, err := x.Create(n, c, f, r...); return err }
			}
			list = append(list, []refusal{
				{"no region", unix.EINVAL, create(mib, XeWriteBack, 0)},
				{"unknown region", unix.EINVAL, create(mib, XeWriteCombined, 0, nowhere)},
				{"unaligned", unix.EINVAL, create(mib+1, XeWriteBack, 0, system)},
				{"part of a VRAM page", unix.EINVAL, create(int64(os.Getpagesize()), XeWriteCombined, 0, vram)},
				{"write-back VRAM", unix.EINVAL, create(mib, XeWriteBack, 0, vram)},
				{"write-back, perhaps VRAM", unix.EINVAL, create(mib, XeWriteBack, 0, vram, system)},
				{"no caching", unix.EINVAL, create(mib, 0, 0, system)},
				{"unknown caching", unix.EINVAL, create(mib, 3, 0, system)},
				{"unknown flag", unix.EINVAL, create(mib, XeWriteBack, 1<<31, system)},
				{"visible VRAM without VRAM", unix.EINVAL, create(mib, XeWriteBack, XeNeedsVisibleVRAM, system)},
				{"scanout, write-back", unix.EINVAL, create(mib, XeWriteBack, 1<<1, system)},
				{"larger than VRAM", unix.E2BIG, create(2*g.VRAM, XeWriteCombined, 0, vram)},
			}...)
		case "i915":
			i, _ := g.dev.I915()
			create := func(n int64, f uint32, r ...Region) func() error {
				return func() error { _, err := i.CreateExt(n, f, r...); return err }
			}
			list = append(list, []refusal{
				{"unknown region", unix.EINVAL, create(mib, 0, nowhere)},
				{"a region twice", unix.EINVAL, create(mib, 0, vram, vram)},
				{"three regions", unix.EINVAL, create(mib, 0, vram, system, nowhere)},
				{"unknown flag", unix.EINVAL, create(mib, 1<<1, vram, system)},
				{"CPU access in VRAM only", unix.EINVAL, create(mib, I915NeedsCPUAccess, vram)},
				{"CPU access in system memory only", unix.EINVAL, create(mib, I915NeedsCPUAccess, system)},
				{"CPU access nowhere", unix.EINVAL, create(mib, I915NeedsCPUAccess)},
			}...)
		}
		for _, c := range list {
			err := c.do()
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v; want %v", c.name, err, c.want)
			}
		}
		if left := g.Buffers(t); len(left) != 0 {
			t.Errorf("left over: %v", left)
		}
	})
}

// VRAM that is full: xe refuses a buffer that can be nowhere else, amdgpu makes
// it in GTT without a word, i915 and xe move others out.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMGPUExhaustion(t *testing.T) {
	eachSoftGPU(t, func(t *testing.T, g softGPU) {
		half := g.VRAM / 2
		if g.Personality == "xe" {
			x, _ := g.dev.Xe()
			only := func() (GEM, error) { return x.Create(half, XeWriteCombined, XeNeedsVisibleVRAM, g.region(t, true)) }
			for range 2 {
				if _, err := only(); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := only(); !errors.Is(err, unix.ENOMEM) {
				t.Errorf("a third half of VRAM: %v, want ENOMEM", err)
			}
			if _, err := g.vram(half); err != nil {
				t.Errorf("one that can be in system memory as well: %v", err)
			}
			return
		}
		var all []exported
		for i := range 3 {
			b := g.export(t, g.vram, half)
			if _, err := b.view.WriteAt([]byte{byte(i)}, half-1); err != nil {
				t.Fatal(err)
			}
			all = append(all, b)
		}
		places := map[string]int{}
		for i, b := range all {
			places[g.Place(t, b.inode)]++
			got := make([]byte, 1)
			if _, err := b.view.ReadAt(got, half-1); err != nil || got[0] != byte(i) {
				t.Errorf("buffer %d: %v, %v", i, got, err)
			}
		}
		if places["vram"] != 2 || places["system"] != 1 {
			t.Errorf("three halves of VRAM are in %v", places)
		}
	})
}

// A GPU that is pulled out: an access to a mapping of it faults, and is an error.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMGPUUnplugged(t *testing.T) {
	eachSoftGPU(t, func(t *testing.T, g softGPU) {
		b := g.export(t, g.vram, 1<<20)
		b.fill(t)
		g.Set(t, "unplug", "now")
		defer g.Rescan(t)
		g.WaitGone(t)
		for name, err := range map[string]error{
			"create":  func() error { _, err := g.system(1 << 20); return err }(),
			"regions": func() error { _, err := g.regions(); return err }(),
			"export":  func() error { _, err := g.dev.PrimeHandleToFD(b.Handle, ReadWrite); return err }(),
			"close":   g.dev.GEMClose(b.Handle),
		} {
			if !errors.Is(err, unix.ENODEV) {
				t.Errorf("%s: %v, want ENODEV", name, err)
			}
		}
		_, readErr := b.view.ReadAt(make([]byte, 10), 0)
		_, writeErr := b.view.WriteAt(make([]byte, 10), 0)
		for _, err := range []error{readErr, writeErr} {
			if !errors.Is(err, unix.EFAULT) || !strings.Contains(err.Error(), "was the device removed?") {
				t.Errorf("access to what is gone: %v", err)
			}
		}
		if err := errors.Join(b.view.Close(), b.buf.Close(), g.dev.Close()); err != nil {
			t.Error(err)
		}
	})
}

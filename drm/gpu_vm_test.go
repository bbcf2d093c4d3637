// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// oneOfEach makes the machine's GPUs speak each driver's ioctls.
const oneOfEach = "personality=amdgpu,xe,i915"

// softGPU is a software GPU, opened, with what the three drivers do alike.
type softGPU struct {
	testenv.SoftGPU
	dev     *Device
	regions func() ([]Region, error)
	offset  func(handle uint32) (uint64, error)
	vram    func(size int64) (GEM, error)
	system  func(size int64) (GEM, error)
	page    int64 // of VRAM
}

func openSoftGPU(t *testing.T, g testenv.SoftGPU) softGPU {
	t.Helper()
	nodes, err := Nodes("", "")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(nodes, func(n Node) bool {
		a, ok := n.PCI()
		return ok && a.String() == g.PCI && n.Type == Render
	})
	if i < 0 {
		t.Fatalf("no render node for %s among %+v", g.PCI, nodes)
	}
	if nodes[i].Driver != "softgpu" || nodes[i].Class != g.Personality {
		t.Errorf("%+v; want driver softgpu and class %s", nodes[i], g.Personality)
	}
	d, err := Open(nodes[i].Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return speakTo(t, g, d)
}

func speakTo(t *testing.T, g testenv.SoftGPU, d *Device) softGPU {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s := softGPU{SoftGPU: g, dev: d, page: 64 << 10}
	switch g.Personality {
	case "amdgpu":
		a, err := d.Amdgpu()
		must(err)
		s.regions, s.offset, s.page = a.Regions, a.MmapOffset, int64(os.Getpagesize())
		s.vram = func(n int64) (GEM, error) { return a.Create(n, AmdgpuVRAM, AmdgpuCPUAccess|AmdgpuVRAMCleared) }
		s.system = func(n int64) (GEM, error) { return a.Create(n, AmdgpuGTT, 0) }
	case "xe":
		x, err := d.Xe()
		must(err)
		s.regions, s.offset = x.Regions, x.MmapOffset
		vram, system := s.region(t, true), s.region(t, false)
		s.vram = func(n int64) (GEM, error) { return x.Create(n, XeWriteCombined, XeNeedsVisibleVRAM, vram, system) }
		s.system = func(n int64) (GEM, error) { return x.Create(n, XeWriteBack, 0, system) }
	case "i915":
		i, err := d.I915()
		must(err)
		s.regions, s.offset = i.Regions, i.MmapOffset
		vram, system := s.region(t, true), s.region(t, false)
		s.vram = func(n int64) (GEM, error) { return i.CreateExt(n, 0, vram, system) }
		s.system = i.Create
	default:
		t.Fatalf("personality %s", g.Personality)
	}
	return s
}

// region is the GPU's VRAM or its system memory.
func (s *softGPU) region(t *testing.T, vram bool) Region {
	t.Helper()
	all, err := s.regions()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(r Region) bool { return r.VRAM == vram })
	if i < 0 || len(all) != 2 {
		t.Fatalf("regions %+v", all)
	}
	return all[i]
}

// exported is a buffer with its dma-buf and a view through the DRM node.
type exported struct {
	GEM
	buf   *dmabuf.Buf
	view  *Mapping
	inode uint64
}

func (s *softGPU) export(t *testing.T, create func(int64) (GEM, error), size int64) exported {
	t.Helper()
	g, err := create(size)
	if err != nil {
		t.Fatal(err)
	}
	e := exported{GEM: g}
	if e.buf, err = s.dev.PrimeHandleToFD(g.Handle, ReadWrite); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.buf.Close() })
	info, err := e.buf.Info()
	if err != nil {
		t.Fatal(err)
	}
	e.inode = info.Inode
	// amdgpu and xe leave the name to the DRM core.
	want := map[string]string{"amdgpu": "drm", "xe": "drm", "i915": "i915"}[s.Personality]
	if e.buf.Size() != g.Size || info.Exporter != want {
		t.Errorf("dma-buf of %d bytes by %s; want %d by %s", e.buf.Size(), info.Exporter, g.Size, want)
	}
	offset, err := s.offset(g.Handle)
	if err != nil {
		t.Fatal(err)
	}
	if e.view, err = s.dev.Mmap(offset, g.Size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.view.Close() })
	return e
}

// fill writes random bytes through the view and returns them.
func (e exported) fill(t *testing.T) []byte {
	t.Helper()
	data := make([]byte, e.Size)
	rand.Read(data)
	if n, err := e.view.WriteAt(data, 0); n != len(data) || err != nil {
		t.Fatal(n, err)
	}
	return data
}

func (e exported) holds(t *testing.T, want []byte) {
	t.Helper()
	got := make([]byte, e.Size)
	if n, err := e.view.ReadAt(got, 0); n != len(got) || err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v; other bytes than were written", n, err)
	}
}

func eachSoftGPU(t *testing.T, run func(t *testing.T, g softGPU), params ...string) {
	t.Helper()
	seen := map[string]bool{}
	for _, g := range testenv.SoftGPUs(t, append(params, oneOfEach)...) {
		if seen[g.Personality] {
			continue
		}
		seen[g.Personality] = true
		t.Run(g.Personality, func(t *testing.T) { run(t, openSoftGPU(t, g)) })
	}
	if len(seen) != 3 {
		t.Errorf("personalities %v", seen)
	}
}

//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMGPURegions(t *testing.T) {
	eachSoftGPU(t, func(t *testing.T, g softGPU) {
		vram, system := g.region(t, true), g.region(t, false)
		if vram.Size != g.VRAM || vram.Visible != g.VRAM || vram.Used != 0 || system.Size < 1<<30 {
			t.Errorf("VRAM %+v of %d bytes, system memory %+v", vram, g.VRAM, system)
		}
		if vram.Page != 0 && vram.Page != g.page {
			t.Errorf("pages of %d bytes, want %d", vram.Page, g.page)
		}
		b := g.export(t, g.vram, 1<<20)
		b.fill(t)
		if vram = g.region(t, true); vram.Used != 1<<20 || vram.VisibleUsed != 1<<20 {
			t.Errorf("after 1 MiB: %+v", vram)
		}
	})
}

//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMGPUIdentity(t *testing.T) {
	eachSoftGPU(t, func(t *testing.T, g softGPU) {
		switch g.Personality {
		case "amdgpu":
			a, _ := g.dev.Amdgpu()
			info, err := a.Info()
			if err != nil || info.DeviceID == 0 || info.Family == 0 || info.APU || info.GartPage != int64(os.Getpagesize()) || info.VRAMType == 0 {
				t.Errorf("%+v, %v", info, err)
			}
			m, err := a.Memory()
			if err != nil || m.VRAM.Usable == 0 || m.VRAM.Largest == 0 || m.GTT.Size == 0 {
				t.Errorf("%+v, %v", m, err)
			}
		case "xe":
			x, _ := g.dev.Xe()
			c, err := x.Config()
			if err != nil || c.DeviceID == 0 || !c.HasVRAM || c.MinAlignment != g.page || c.VABits < 48 {
				t.Errorf("%+v, %v", c, err)
			}
		}
		// Another driver's ioctls are not even tried.
		_, e1 := g.dev.Amdgpu()
		_, e2 := g.dev.Xe()
		_, e3 := g.dev.I915()
		_, e4 := g.dev.Virtgpu()
		refused := 0
		for _, err := range []error{e1, e2, e3, e4} {
			if errors.Is(err, unix.ENOTTY) && strings.Contains(err.Error(), "the driver is "+g.Personality) {
				refused++
			}
		}
		if refused != 3 {
			t.Errorf("%v, %v, %v, %v", e1, e2, e3, e4)
		}
	})
}

// Made, written through the node, exported, imported again: one memory, where
// it was asked for.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMGPUCreate(t *testing.T) {
	eachSoftGPU(t, func(t *testing.T, g softGPU) {
		for place, create := range map[string]func(int64) (GEM, error){"vram": g.vram, "system": g.system} {
			t.Run(place, func(t *testing.T) {
				size := 3 * g.page
				b := g.export(t, create, size)
				if b.Size != size {
					t.Errorf("%d bytes, asked for %d", b.Size, size)
				}
				zero := make([]byte, size)
				b.holds(t, zero)
				data := b.fill(t)
				if at := g.Place(t, b.inode); at != place {
					t.Errorf("in %q", at)
				}
				// Through the dma-buf, without a bracket: brackets move it.
				m, err := b.buf.Map(0, size, dmabuf.ReadWrite)
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				if !bytes.Equal(m.Bytes(), data) {
					t.Error("other bytes through the dma-buf")
				}
				if h, err := g.dev.PrimeFDToHandle(b.buf); err != nil || h != b.Handle {
					t.Errorf("imported again: handle %d, %v; want %d", h, err, b.Handle)
				}
				other := openSoftGPU(t, g.SoftGPU)
				h, err := other.dev.PrimeFDToHandle(b.buf)
				if err != nil {
					t.Fatal(err)
				}
				again, err := other.dev.PrimeHandleToFD(h, ReadWrite)
				if err != nil {
					t.Fatal(err)
				}
				defer again.Close()
				if info, err := again.Info(); err != nil || info.Inode != b.inode {
					t.Errorf("another open of the node exports another buffer: %+v, %v", info, err)
				}
				if want := "drm-memory-" + regionName(g.Personality, place); g.fdinfo(t)[want] == 0 {
					t.Errorf("fdinfo has no %s: %v", want, g.fdinfo(t))
				}
				// The dma-buf and the mapping keep the memory without the handle.
				if err := g.dev.GEMClose(b.Handle); err != nil {
					t.Fatal(err)
				}
				b.holds(t, data)
			})
		}
	})
}

// regionName is what the driver calls a place in fdinfo.
func regionName(driver, place string) string {
	return map[string]map[string]string{
		"amdgpu": {"vram": "vram", "system": "gtt"},
		"xe":     {"vram": "vram0", "system": "gtt"},
		"i915":   {"vram": "local0", "system": "system0"},
	}[driver][place]
}

// fdinfo reads the "drm-…" numbers of the open node.
func (s *softGPU) fdinfo(t *testing.T) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	err := s.dev.Do(func(raw int) error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", raw))
		for line := range strings.Lines(string(text)) {
			var n int64
			if key, value, ok := strings.Cut(line, ":"); ok {
				if _, err := fmt.Sscanf(value, "%d", &n); err == nil {
					out[key] = n
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A mapping shows the buffer wherever the driver takes it.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMGPUEviction(t *testing.T) {
	eachSoftGPU(t, func(t *testing.T, g softGPU) {
		b := g.export(t, g.vram, 1<<20)
		data := b.fill(t)
		for range 3 {
			for _, move := range []struct{ file, place string }{{"evict", "system"}, {"restore", "vram"}} {
				g.Set(t, move.file, fmt.Sprint(b.inode))
				if at := g.Place(t, b.inode); at != move.place {
					t.Fatalf("%s: in %q", move.file, at)
				}
				b.holds(t, data)
				data = b.fill(t)
				b.holds(t, data)
				if at := g.Place(t, b.inode); at != move.place {
					t.Fatalf("the CPU's access moved it to %q", at)
				}
			}
		}
	})
}

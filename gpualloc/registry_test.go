// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// A machine with two GPUs of one driver whose nodes are ordinary files (they
// refuse DRM ioctls), a render-only device, udmabuf and two heaps.
const machine = `
-- dev/udmabuf --
-- dev/dma_heap/system --
-- dev/dma_heap/reserved --
-- dev/dri/card0 --
-- dev/dri/card1 --
-- dev/dri/renderD128 --
-- dev/dri/renderD129 --
-- dev/dri/renderD130 --
-- sys/module/udmabuf/parameters/list_limit --
1024
-- sys/module/udmabuf/parameters/size_limit_mb --
32
-- sys/devices/pci0000:00/0000:03:00.0/driver --
-> ../../../bus/pci/drivers/amdgpu
-- sys/devices/pci0000:00/0000:04:00.0/driver --
-> ../../../bus/pci/drivers/amdgpu
-- sys/devices/platform/mali/driver --
-> ../../../bus/pci/drivers/panfrost
-- sys/bus/pci/drivers/amdgpu/bind --
-- sys/bus/pci/drivers/panfrost/bind --
-- sys/class/drm/card0/dev --
226:0
-- sys/class/drm/card0/device --
-> ../../../devices/pci0000:00/0000:03:00.0
-- sys/class/drm/card1/dev --
226:1
-- sys/class/drm/card1/device --
-> ../../../devices/pci0000:00/0000:04:00.0
-- sys/class/drm/renderD128/dev --
226:128
-- sys/class/drm/renderD128/device --
-> ../../../devices/pci0000:00/0000:03:00.0
-- sys/class/drm/renderD129/dev --
226:129
-- sys/class/drm/renderD129/device --
-> ../../../devices/pci0000:00/0000:04:00.0
-- sys/class/drm/renderD130/dev --
226:130
-- sys/class/drm/renderD130/device --
-> ../../../devices/platform/mali
`

func TestDiscover(t *testing.T) {
	e := env(t, machine+procV2)
	all := Discover(e)
	find := func(spec string) Description {
		t.Helper()
		i := slices.IndexFunc(all, func(d Description) bool { return d.Spec == spec })
		if i < 0 {
			t.Fatalf("%s is missing in %+v", spec, all)
		}
		return all[i]
	}
	if d := find("udmabuf"); !d.Available || d.MaxSize != 32<<20 || len(d.Limits) != 4 || d.Kind != KindSystem {
		t.Errorf("udmabuf: %+v", d)
	}
	if raise := find("udmabuf").Limits[0].Raise; !strings.HasSuffix(raise, "or ask for at most 33554432 bytes, or in Go split the buffer (Options.SegmentSize)") {
		t.Errorf("udmabuf: %s", raise)
	}
	if d := find("heap:system"); !d.Available || d.Device != filepath.Join(e.Dev, "dma_heap/system") || d.Exporter != "system" {
		t.Errorf("heap:system: %+v", d)
	}
	if d := find("drm:renderD128"); d.Available || !strings.Contains(d.Why, "ENOTTY") || d.Remedy == "" ||
		d.PCI == nil || d.PCI.String() != "0000:03:00.0" || d.Driver != "amdgpu" || d.Kind != KindUnknown || d.Device != filepath.Join(e.Dev, "dri/renderD128") ||
		!slices.Equal(d.Aliases, []string{"drm:card0", "drm:amdgpu", "drm:0000:03:00.0"}) {
		t.Errorf("drm:renderD128: %+v", d)
	}
	if d := find("drm:renderD130"); d.Available || !strings.Contains(d.Why, "no primary node") || d.PCI != nil {
		t.Errorf("drm:renderD130: %+v", d)
	}
	if !all[0].Available || all[len(all)-1].Available {
		t.Error("the available do not come first")
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	var again []Description
	if err := json.Unmarshal(text, &again); err != nil || len(again) != len(all) || *find("drm:renderD128").PCI == (pciaddr.Addr{}) {
		t.Errorf("JSON: %v", err)
	}
}

func TestDiscoverNothing(t *testing.T) {
	for _, d := range Discover(Env{Sys: t.TempDir(), Proc: t.TempDir(), Dev: t.TempDir()}) {
		if d.Available || d.Why == "" || d.Remedy == "" {
			t.Errorf("%s on an empty machine: %+v", d.Spec, d)
		}
	}
}

func TestOpenSpecs(t *testing.T) {
	e := env(t, machine+procV2)
	for spec, want := range map[string]string{
		"udmabuf": "udmabuf", "heap:system": "heap:system", "heap:reserved": "heap:reserved",
		"auto": "heap:system", // the GPUs do not answer
	} {
		a, err := Open(spec, e)
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		d := a.Describe()
		if d.Spec != want || spec == "auto" && !strings.Contains(d.Why, "no GPU here") {
			t.Errorf("%s opened %+v", spec, d)
		}
		a.Close()
	}
	for _, c := range []struct {
		spec  string
		want  error
		words []string
	}{
		{"tpu:0", ErrUnknownSpec, []string{`"tpu:0"`, "use auto, or one of: heap:system", "udmabuf"}},
		{"", ErrUnknownSpec, []string{`""`}},
		{"heap:system/gtt", ErrUnknownSpec, []string{`heap:system has no memory called "gtt"`, "; use one of: heap:system"}},
		{"heap:gtt/system", ErrUnknownSpec, []string{"use auto, or one of"}},
		{"drm:amdgpu", ErrAmbiguousSpec, []string{"drm:renderD128 (amdgpu, 0000:03:00.0)", "drm:renderD129 (amdgpu, 0000:04:00.0)"}},
		{"drm:GPU-01234567-89ab-cdef-0123-456789abcdef", ErrUnknownSpec, []string{"DRM knows no UUIDs", "use auto, or one of: heap:system"}},
		{"drm:GPU-0123456789abcdef/vram", ErrUnknownSpec, []string{"DRM knows no UUIDs"}},
		{"drm:01234567-89ab-cdef-0123-456789abcdef", ErrUnknownSpec, []string{"(cuda, rocm, ze)"}},
		{"drm:0000:04:00.0", ErrUnavailable, []string{"ENOTTY"}},
		{"drm:renderD130", ErrUnavailable, []string{"primary node"}},
	} {
		_, err := Open(c.spec, e)
		if !errors.Is(err, c.want) {
			t.Errorf("%q: %v, want %v", c.spec, err, c.want)
			continue
		}
		for _, w := range c.words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %v lacks %q", c.spec, err, w)
			}
		}
	}
	if _, err := Open("drm:renderD77", e); err == nil || strings.Contains(err.Error(), "UUID") {
		t.Errorf("what is no UUID: %v", err)
	}
	if _, err := Open("drm:0000:04:00.0", e); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("the device's errno is lost: %v", err)
	}
}

func TestOpenOnAnEmptyMachine(t *testing.T) {
	e := Env{Sys: t.TempDir(), Proc: t.TempDir(), Dev: t.TempDir()}
	_, err := Open("auto", e)
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "modprobe") || !strings.Contains(err.Error(), "udmabuf") {
		t.Errorf("auto: %v", err)
	}
	_, err = Open("udmabuf", e)
	if !errors.Is(err, ErrUnavailable) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("udmabuf: %v", err)
	}
	_, err = Open("tpu:0", e)
	if !errors.Is(err, ErrUnknownSpec) || !strings.Contains(err.Error(), "none works on this machine: `dmabuf-reg devices` says why") {
		t.Errorf("tpu:0: %v", err)
	}
}

// What "auto" says where nothing works: one line, the remedy of those that are
// there, and EACCES if it is what all of those answer.
func TestOpenAutoRefused(t *testing.T) {
	member := func(group string) string { return "run as root or as a member of group " + group }
	one := func(spec, device string, err error, remedy string) candidate {
		c := candidate{Description: Description{Spec: spec, Device: device}}
		c.refused(&failure.Error{Op: "open", Device: device, Remedy: remedy, Err: err})
		return c
	}
	absent := []candidate{one("cuda", "libcuda", ErrNotInstalled, "install it"), one("rocm", "libhsa-runtime64", ErrNotInstalled, "install it")}
	none := one("heap:system", "/dev/dma_heap/system", unix.ENOENT, "build a kernel")
	card := one("drm:renderD128", "/dev/dri/renderD128", unix.EACCES, member("render"))
	locked := []candidate{
		card, one("drm:renderD128/system", "/dev/dri/renderD128", unix.EACCES, member("render")),
		one("drm:renderD129", "/dev/dri/renderD129", unix.EACCES, member("render")), one("udmabuf", "/dev/udmabuf", unix.EPERM, member("kvm")),
	}
	broken := one("udmabuf", "/dev/udmabuf", unix.EIO, "")
	vanished := candidate{Description: Description{Spec: "udmabuf", Device: "/dev/udmabuf", Available: true}}
	vanished.open = func(Env, Description) (Allocator, error) { return nil, errors.Join(errFake, fs.ErrClosed) }
	for name, c := range map[string]struct {
		all    []candidate
		errno  unix.Errno // 0: none
		words  []string
		remedy string
	}{
		"permission": {slices.Concat(absent, []candidate{none}, locked), unix.EACCES,
			[]string{"none of 7 works (not installed: cuda, rocm); heap:system: open on", "; udmabuf: open on /dev/udmabuf: EPERM", ": allocator not available (EACCES)"},
			"for /dev/dri/renderD128, /dev/dri/renderD129: " + member("render") + "; for /dev/udmabuf: " + member("kvm")},
		"permission and another": {[]candidate{card, broken}, 0, []string{"EACCES", "EIO"}, "for /dev/dri/renderD128: " + member("render")},
		"nothing there":          {slices.Concat(absent, []candidate{none}), 0, []string{"ENOENT", "not installed: cuda, rocm"}, "load a driver (modprobe udmabuf, modprobe vgem)"},
		"several reasons":        {[]candidate{vanished}, 0, []string{"udmabuf: " + errFake.Error() + "; "}, "load a driver (modprobe udmabuf, modprobe vgem)"},
	} {
		_, err := openAuto(c.all, Env{})
		var e *failure.Error
		if !errors.As(err, &e) || !errors.Is(err, ErrUnavailable) || e.Remedy != c.remedy || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line that ends in %q", name, err, c.remedy)
		}
		if n, _ := errno.Of(err); n != c.errno {
			t.Errorf("%s: errno %v, want %v", name, n, c.errno)
		}
		for _, w := range c.words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v lacks %q", name, err, w)
			}
		}
	}
}

// A device that vanishes between Discover and Open answers its own errno, and
// "auto" goes on to the next.
func TestOpenAutoGoesOn(t *testing.T) {
	e := env(t, machine+procV2)
	all := ranked(candidates(e, ""))
	if all[0].Spec != "heap:system" {
		t.Fatalf("best is %s", all[0].Spec)
	}
	if err := os.Remove(all[0].Device); err != nil {
		t.Fatal(err)
	}
	a, err := openAuto(all, e)
	if err != nil || a.Describe().Spec != "udmabuf" {
		t.Fatalf("%v, %v", a, err)
	}
	a.Close()
	if _, err := all[0].try(e); !errors.Is(err, ErrUnavailable) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the vanished heap: %v", err)
	}
}

func TestKinds(t *testing.T) {
	for _, k := range []Kind{KindUnknown, KindSystem, KindVRAM} {
		text, err := k.MarshalText()
		var got Kind = -1
		if err != nil || got.UnmarshalText(text) != nil || got != k {
			t.Errorf("%v does not survive its text %q", k, text)
		}
	}
	var k Kind
	if k.UnmarshalText([]byte("disk")) == nil || Kind(9).String() != "Kind(9)" {
		t.Error("a disk is a kind of memory")
	}
}

// The view joins parts; here they are plain memory.
type memPart struct {
	data   []byte
	fail   error
	closed bool
}

func (m *memPart) ReadAt(p []byte, off int64) (int, error) {
	if m.fail != nil {
		return 0, m.fail
	}
	return copy(p, m.data[off:]), nil
}

func (m *memPart) WriteAt(p []byte, off int64) (int, error) {
	if m.fail != nil {
		return 0, m.fail
	}
	return copy(m.data[off:], p), nil
}
func (m *memPart) Close() error { m.closed = true; return nil }

func TestPartsView(t *testing.T) {
	parts := []*memPart{{data: []byte("abc")}, {data: []byte("d")}, {data: []byte("efgh")}}
	v := &partsView{}
	for _, p := range parts {
		v.add(p, int64(len(p.data)))
	}
	for off := int64(0); off <= 8; off++ {
		for n := 0; n <= 9; n++ {
			got := make([]byte, n)
			k, err := v.ReadAt(got, off)
			want := "abcdefgh"[off:min(8, off+int64(n))]
			if string(got[:k]) != want || (err != nil) != (k < n) {
				t.Errorf("ReadAt(%d bytes, %d) = %q, %v; want %q", n, off, got[:k], err, want)
			}
		}
	}
	if n, err := v.WriteAt([]byte("12345"), 2); n != 5 || err != nil || string(parts[2].data) != "345h" {
		t.Error(n, err, string(parts[2].data))
	}
	for _, c := range [][2]int64{{-1, 1}, {8, 1}, {4, 5}, {9, 0}, {1 << 62, 1}} {
		if n, err := v.WriteAt(make([]byte, c[1]), c[0]); n != 0 || !errors.Is(err, failure.ErrRange) {
			t.Errorf("WriteAt(%d bytes, %d): %d, %v", c[1], c[0], n, err)
		}
	}
	if _, err := v.ReadAt(nil, -1); !errors.Is(err, failure.ErrRange) {
		t.Errorf("ReadAt(-1): %v", err)
	}
	parts[1].fail = errFake
	if n, err := v.ReadAt(make([]byte, 8), 0); n != 3 || !errors.Is(err, errFake) {
		t.Errorf("a failing part: %d, %v", n, err)
	}
	if err := v.Close(); err != nil || !parts[0].closed || !parts[2].closed {
		t.Error("parts stay open", err)
	}
}

// A vendor's memory that is asked for by number: the reason is that the vendor's
// runtime does not work here, or that the program has none.
func TestOpenVendor(t *testing.T) {
	env := Env{Sys: t.TempDir(), Dev: t.TempDir(), Proc: t.TempDir()}
	_, err := Open("cuda:0", env)
	if !errors.Is(err, ErrUnknownSpec) || !strings.Contains(err.Error(), `import _ "github.com/gpurdma/gpurdma/gpualloc/cuda"`) {
		t.Errorf("without the package: %v", err)
	}
	t.Cleanup(func() {
		runtimes.Lock()
		defer runtimes.Unlock()
		runtimes.all = slices.DeleteFunc(runtimes.all, func(r Runtime) bool { return r.Name == "vendor" })
	})
	Register(Runtime{Name: "vendor", Discover: func(Env) []Found {
		f := Found{Description: Description{Spec: "vendor", Exporter: "vendor"}}
		f.Refuse(&failure.Error{Op: "dlopen", Device: "libvendor.so", Remedy: "install it", Err: fs.ErrNotExist})
		return []Found{f}
	}})
	_, err = Open("vendor:0", env)
	if !errors.Is(err, ErrUnavailable) || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "install it") {
		t.Errorf("with it: %v", err)
	}
}

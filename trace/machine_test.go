// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/placement"
)

const iomem = `00000000-00000fff : Reserved
00001000-0009fbff : System RAM
  00001000-00001fff : inner
000a0000-000bffff : PCI Bus 0000:00
00100000-bffd9fff : System RAM
e0000000-e1ffffff : PCI Bus 0000:00
  e0000000-e1ffffff : 0000:05:00.0
100000000-33fffffff : System RAM
4000000000-57ffffffff : System RAM (NVIDIA)
6000000000-60ffffffff : System RAM (kmem)
`

const resource = `0x0000003800000000 0x0000003bffffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x00000000e2000000 0x00000000e200ffff 0x0000000000040200
0x000000000000c000 0x000000000000c07f 0x0000000000040101
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x00000000fff00000 0x00000000ffffffff 0x0000000000000200
`

func TestParseIOMem(t *testing.T) {
	ram, coherent := parseIOMem(iomem)
	if len(ram) != 4 || ram[2] != (placement.Range{Start: 0x1_0000_0000, Size: 0x2_4000_0000}) {
		t.Errorf("RAM %v", ram)
	}
	if len(coherent) != 1 || coherent[0].Start != 0x40_0000_0000 || !strings.Contains(coherent[0].Name, "NVIDIA") {
		t.Errorf("coherent %v", coherent)
	}
	hidden := "00000000-00000000 : System RAM\n00000000-00000000 : Reserved\n"
	if ram, _ := parseIOMem(hidden); len(ram) != 0 {
		t.Errorf("RAM from addresses that are not shown: %v", ram)
	}
}

// The BARs of a function, from a tree, marked as a GPU's by what it calls itself.
func TestReadBARs(t *testing.T) {
	bars := gpuBARs(t)
	if len(bars) != 2 {
		t.Fatalf("%v", bars)
	}
	if b := bars[0]; b.Index != 0 || b.Start != 0x38_0000_0000 || b.Size != 16<<30 || !b.GPU || b.Device != "0000:03:00.0" {
		t.Errorf("%+v", b)
	}
	if b := bars[1]; b.Index != 2 || b.Size != 0x10000 {
		t.Errorf("%+v: ports and the ROM are no BARs", b)
	}
}

func gpuBARs(t *testing.T) []placement.BAR {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "bus/pci/devices/0000:03:00.0")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"resource": resource, "class": "0x030200\n", "vendor": "0x10de\n", "device": "0x2330\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return readBARs(sysfs.New(root), "0000:03:00.0")
}

// find is the search that the programs do.
func find(w []wireWindow, addr, size uint64) uint64 {
	i := 0
	for half := numWindows / 2; half > 0; half /= 2 {
		if j := (i + half) % numWindows; w[j].Start <= addr {
			i += half
		}
	}
	if end := addr + size; w[i].Start <= addr && end <= w[i].End && end > addr {
		return w[i].Kind
	}
	return 0
}

func TestWindows(t *testing.T) {
	m := &placement.Machine{BARs: gpuBARs(t)}
	m.RAM, m.Coherent = parseIOMem(iomem)
	// NVIDIA's memory is in the way of a BAR that claims the same addresses.
	m.BARs = append(m.BARs, placement.BAR{Device: "0000:09:00.0", Range: placement.Range{Start: 0x57_ffff_0000, Size: 0x2_0000}})
	w := windowsOf(m)
	if len(w) != numWindows || !sort.SliceIsSorted(w, func(i, j int) bool { return w[i].Start < w[j].Start }) {
		t.Fatalf("%d windows", len(w))
	}
	for i := 1; i < len(w); i++ {
		if w[i].Start < w[i-1].End {
			t.Errorf("windows %d and %d overlap", i-1, i)
		}
	}
	for _, row := range []struct {
		addr, size uint64
		want       placement.Kind
	}{
		{0x1000, 0x1000, placement.KindRAM},
		{0x3800000000, 0x4_0000_0000, placement.KindBAR},
		{0x3bfffff000, 0x2000, placement.KindOther}, // leaves the BAR
		{0x4000000000, 1, placement.KindCoherent},
		{0x57fffff000, 0x1000, placement.KindCoherent},
		{0x5800000000, 0x1000, placement.KindBAR},
		{0xc0000000, 0x1000, placement.KindOther},
		{0, 1, placement.KindOther},
		{^uint64(0), 2, placement.KindOther},
		{0x1000, 0, placement.KindOther},
	} {
		if got := find(w, row.addr, row.size); got != uint64(row.want) {
			t.Errorf("%#x+%#x: kind %d, want %v", row.addr, row.size, got, row.want)
		}
	}
	// More than fit: GPUs' BARs and RAM stay.
	for i := range uint64(2 * numWindows) {
		m.BARs = append(m.BARs, placement.BAR{Device: "0000:0a:00.0", Range: placement.Range{Start: 0x70_0000_0000 + i<<20, Size: 0x1000}})
	}
	w = windowsOf(m)
	if len(w) != numWindows || find(w, 0x3800000000, 0x1000) != uint64(placement.KindBAR) || find(w, 0x1000, 0x1000) != uint64(placement.KindRAM) {
		t.Error("a machine with many BARs lost the GPU's or RAM")
	}
}

func TestReadMachine(t *testing.T) {
	dir := t.TempDir()
	dev := filepath.Join(dir, "sys/devices/pci0000:00/0000:03:00.0")
	bus := filepath.Join(dir, "sys/bus/pci/devices")
	for _, d := range []string{dev, bus, filepath.Join(dir, "proc")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]string{
		dev + "/resource": resource, dev + "/class": "0x030200\n", dev + "/vendor": "0x10de\n", dev + "/device": "0x2330\n",
		filepath.Join(dir, "proc/iomem"): iomem,
	}
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../../../devices/pci0000:00/0000:03:00.0", filepath.Join(bus, "0000:03:00.0")); err != nil {
		t.Fatal(err)
	}
	m := ReadMachine(filepath.Join(dir, "sys"), filepath.Join(dir, "proc"))
	if len(m.BARs) != 2 || !m.BARs[0].GPU || m.BARs[0].Device != "0000:03:00.0" || len(m.RAM) != 4 {
		t.Errorf("%+v", m)
	}
	if m := ReadMachine(filepath.Join(dir, "none"), filepath.Join(dir, "none")); len(m.BARs)+len(m.RAM) != 0 {
		t.Errorf("a machine from nothing: %+v", m)
	}
}

func TestParseSymbol(t *testing.T) {
	for line, want := range map[string]symbol{
		"ffffffff81000000 T _text":                            {"_text", 0xffffffff81000000, "", true},
		"ffffffffc0a01230 t ib_dereg_mr_user\t[ib_core]":      {"ib_dereg_mr_user", 0xffffffffc0a01230, "ib_core", true},
		"0000000000000000 D vmemmap_base":                     {"vmemmap_base", 0, "", false},
		"ffffffffc0000000 t bpf_prog_6deef7357e7b4530\t[bpf]": {},
		"rubbish":            {},
		"":                   {},
		"ffffffff81000000 T": {},
	} {
		raw, ok := parseSymbol([]byte(line))
		if got := raw.symbol(); ok != (want.name != "") || ok && got != want {
			t.Errorf("%q: %+v, %v", line, got, ok)
		}
	}
}

func TestExporterOps(t *testing.T) {
	for _, name := range []string{"amdgpu_dma_buf_pin", "xe_dma_buf_map", "nv_dma_buf_map", "drm_gem_map_dma_buf", "map_udmabuf", "system_heap_map_dma_buf", "vfio_pci_dma_buf_attach", "i915_gem_map_dma_buf"} {
		if !maybeExporterOp([]byte(name)) {
			t.Errorf("%s is an exporter's operation", name)
		}
	}
	for _, name := range []string{"dma_buf_pin", "dma_buf_map_attachment", "__map_dma_buf", "amdgpu_dma_buf_unpin", "drm_gem_unmap_dma_buf", "amdgpu_dma_buf_detach", "drm_gem_dmabuf_vmap", "ext4_map_blocks"} {
		if maybeExporterOp([]byte(name)) {
			t.Errorf("%s is none", name)
		}
	}
}

// Clear answers where tracing cannot work.
func TestOldKernel(t *testing.T) {
	for release, old := range map[string]bool{
		"5.16.20-1-amd64": true, "4.18.0-553.el8.x86_64": true, "5.17.0": false, "6.1.0-56-amd64": false, "7.2.12+deb13-amd64": false, "unusual": false,
	} {
		err := oldKernel(release)
		if (err != nil) != old {
			t.Errorf("%s: %v", release, err)
		}
		if old {
			mustHave(t, err.Error(), release, "5.17", "newer kernel")
		}
	}
}

func TestSupported(t *testing.T) {
	dir := t.TempDir()
	err := Supported(dir, "")
	if err == nil || !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("no BTF: %v", err)
	}
	mustHave(t, err.Error(), "BTF", "CONFIG_DEBUG_INFO_BTF")
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("kernel/btf/vmlinux", "")
	write("kernel/security/lockdown", "none integrity [confidentiality]\n")
	err = Supported(dir, "")
	if err == nil || !errors.Is(err, os.ErrPermission) {
		t.Fatalf("lockdown: %v", err)
	}
	mustHave(t, err.Error(), "confidentiality", "integrity or none")
	write("kernel/security/lockdown", "[none] integrity confidentiality\n")
	if err := Supported(dir, ""); err != nil && os.Geteuid() == 0 && !strings.Contains(err.Error(), "CAP_") {
		t.Errorf("%v", err)
	}
	if _, err := Open(Config{RingSize: 3000}); err == nil || !strings.Contains(err.Error(), "power of two") {
		t.Errorf("a ring of 3000 bytes: %v", err)
	}
}

// A device that has another one's addresses is named by its own name.
func TestBARChangesHands(t *testing.T) {
	sys := t.TempDir()
	devices := filepath.Join(sys, "bus/pci/devices")
	plug := func(name string) {
		dir := filepath.Join(devices, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{
			"resource": "0x00000000c0000000 0x00000000cfffffff 0x0000000000140204\n" + strings.Repeat("0x0 0x0 0x0\n", 6),
			"class":    "0x030200\n", "vendor": "0x10de\n", "device": "0x2330\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	const first, second = "0000:03:00.0", "0000:04:00.0"
	plug(first)
	j := testJoiner(10)
	j.conv.machine = newMachineTable(sys, sys)
	j.conv.machine.read = time.Now().Add(-time.Hour)
	var c clock
	named := func(id uint64) string {
		t.Helper()
		j.handle(made(&c, id, translated, physical, func(w *wireRecord) { w.Resources[0].Phys = 0xc000_1000 }))
		p := j.live[id].rec.Placement
		if p.Memory != placement.PeerToPeer || len(p.Places) != 1 {
			t.Fatalf("%v", p)
		}
		return p.Places[0].Device
	}
	if got := named(1); got != first {
		t.Errorf("%s", got)
	}
	if err := os.RemoveAll(filepath.Join(devices, first)); err != nil {
		t.Fatal(err)
	}
	plug(second)
	clear(j.conv.machine.seen)
	if got := named(2); got != second {
		t.Errorf("%s", got)
	}
}

// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
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
func find(w []abi.Window, addr, size uint64) uint64 {
	i := 0
	for half := abi.NumWindows / 2; half > 0; half /= 2 {
		if j := (i + half) % abi.NumWindows; w[j].Start <= addr {
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
	w := Windows(m)
	if len(w) != abi.NumWindows || !sort.SliceIsSorted(w, func(i, j int) bool { return w[i].Start < w[j].Start }) {
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
	for i := range uint64(2 * abi.NumWindows) {
		m.BARs = append(m.BARs, placement.BAR{Device: "0000:0a:00.0", Range: placement.Range{Start: 0x70_0000_0000 + i<<20, Size: 0x1000}})
	}
	w = Windows(m)
	if len(w) != abi.NumWindows || find(w, 0x3800000000, 0x1000) != uint64(placement.KindBAR) || find(w, 0x1000, 0x1000) != uint64(placement.KindRAM) {
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
	m := Read(filepath.Join(dir, "sys"), filepath.Join(dir, "proc"))
	if len(m.BARs) != 2 || !m.BARs[0].GPU || m.BARs[0].Device != "0000:03:00.0" || len(m.RAM) != 4 {
		t.Errorf("%+v", m)
	}
	if m := Read(filepath.Join(dir, "none"), filepath.Join(dir, "none")); len(m.BARs)+len(m.RAM) != 0 {
		t.Errorf("a machine from nothing: %+v", m)
	}
}

// SPDX-License-Identifier: Apache-2.0

package pci

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// withConfig is a machine whose function 0000:00:01.0 has this configuration
// space.
func withConfig(t *testing.T, space []byte) sysfs.FS {
	t.Helper()
	s := build(t, "pci0000:00/0000:00:01.0 vendor=0x8086 device=0 class=0x060400")
	if err := os.WriteFile(s.Path("bus/pci/devices/0000:00:01.0/config"), space, 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// space is that of a root port with the ACS control register ctrl.
func space(ctrl uint16) []byte {
	c := make([]byte, cfgSpaceExpSize)
	le := binary.LittleEndian
	le.PutUint16(c, 0x8086)
	c[regStatus] = statusCapList
	c[regCapList] = 0x42 // the lower bits are none of the address
	le.PutUint16(c[0x40:], 0x5001)
	le.PutUint16(c[0x50:], capIDExp)
	le.PutUint16(c[0x52:], uint16(PortRoot)<<4|2)
	le.PutUint32(c[0x100:], 0x200<<20|1<<16|1)
	le.PutUint32(c[0x200:], 1<<16|extCapIDACS)
	le.PutUint16(c[0x204:], 0x5f)
	le.PutUint16(c[0x206:], ctrl)
	return c
}

func read(t *testing.T, s sysfs.FS) Config {
	t.Helper()
	c, err := ReadConfig(s, addr(t, "00:01.0"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestACS(t *testing.T) {
	for ctrl, redirects := range map[uint16]ACSBits{
		0: 0, 0x1d: ACSRequestRedirect | ACSCompletionRedirect, 0x53: 0, 0x20: ACSEgressControl, 0x7f: 0x2c,
	} {
		acs, err := read(t, withConfig(t, space(ctrl))).ACS()
		if err != nil || !acs.Present || acs.Cap != 0x5f || acs.Ctrl != ACSBits(ctrl) || acs.Redirects() != redirects {
			t.Errorf("%#x: %+v, %v, redirects %v", ctrl, acs, err, acs.Redirects())
		}
	}
	if got := (ACSSourceValidation | ACSEgressControl).String(); got != "source validation, egress control" {
		t.Error(got)
	}
	if got := ACSBits(0).String(); got != "none" {
		t.Error(got)
	}
}

func TestConfigInPart(t *testing.T) {
	whole := space(0x1d)
	for n, want := range map[int]error{64: ErrTruncated, 128: ErrTruncated, 512: ErrTruncated, 4096: nil} {
		if acs, err := read(t, withConfig(t, whole[:n])).ACS(); !errors.Is(err, want) || acs.Present != (err == nil) {
			t.Errorf("%d bytes: %+v, %v", n, acs, err)
		}
	}
	// The kernel itself knows no more of a conventional function.
	c := read(t, withConfig(t, whole[:256]))
	if acs, err := c.ACS(); err != nil || acs.Present || !c.Unreachable() {
		t.Errorf("%+v, %v, %v", acs, err, c.Unreachable())
	}
	// A reader without privileges knows that, too.
	if acs, err := (Config{whole[:64], 256}).ACS(); err != nil || acs.Present {
		t.Errorf("%+v, %v", acs, err)
	}
	if root, err := c.RootPort(); err != nil || !root {
		t.Error(root, err)
	}
	if _, err := read(t, withConfig(t, whole[:64])).RootPort(); !errors.Is(err, ErrTruncated) {
		t.Error(err)
	}
	for _, bad := range [][]byte{nil, whole[:63]} {
		if _, err := ReadConfig(withConfig(t, bad), addr(t, "00:01.0")); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
	gone := make([]byte, 4096)
	for i := range gone {
		gone[i] = 0xff
	}
	if _, err := ReadConfig(withConfig(t, gone), addr(t, "00:01.0")); !errors.Is(err, ErrNoAnswer) {
		t.Error(err)
	}
	// A virtual function has neither vendor nor device there.
	virtual := space(0)
	copy(virtual, "\xff\xff\xff\xff")
	if acs, err := read(t, withConfig(t, virtual)).ACS(); err != nil || !acs.Present {
		t.Errorf("a virtual function: %+v, %v", acs, err)
	}
	if _, err := ReadConfig(build(t, machine), addr(t, "03:00.0")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestNoCapabilities(t *testing.T) {
	c := space(0)
	c[regStatus] = 0
	if root, err := read(t, withConfig(t, c)).RootPort(); root || err != nil {
		t.Error(root, err)
	}
	c = space(0)
	c[0x100], c[0x101], c[0x102], c[0x103] = 0, 0, 0, 0
	if acs, err := read(t, withConfig(t, c)).ACS(); acs.Present || err != nil {
		t.Error(acs, err)
	}
}

// Configuration space that a copy has filled, or that is another function's, says nothing.
func TestConfigThatWasNotRead(t *testing.T) {
	zeros, padded, other := make([]byte, cfgSpaceExpSize), space(0), space(0)
	clear(padded[cfgSpaceSize:])
	other[2] = 1
	if acs, err := read(t, withConfig(t, padded)).ACS(); !errors.Is(err, ErrNoExtended) {
		t.Errorf("zeros behind 256 bytes: %+v, %v", acs, err)
	}
	for what, c := range map[string][]byte{"zeros": zeros, "another device": other} {
		if _, err := ReadConfig(withConfig(t, c), addr(t, "00:01.0")); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Lists that lead in a circle, or out of the space, end.
func FuzzConfig(f *testing.F) {
	f.Add(space(0x1d))
	loop := space(0)
	loop[0x51], loop[0x50] = 0x40, 1
	binary.LittleEndian.PutUint32(loop[0x200:], 0x100<<20|2)
	f.Add(loop)
	f.Add(space(4)[:4090])
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, size := range []int64{cfgSpaceSize, cfgSpaceExpSize} {
			c := Config{data, size}
			acs, err := c.ACS()
			if acs.Present && (err != nil || len(data) < cfgSpaceExpSize || size == cfgSpaceSize) {
				t.Errorf("ACS from %d bytes, %v", len(data), err)
			}
			_, _ = c.RootPort()
			_ = c.Unreachable()
		}
	})
}

func TestBARs(t *testing.T) {
	s := build(t, machine)
	const text = "0x00000000fe000000 0x00000000fe0000ff 0x0000000000040101\n" + // I/O
		"0x00000000fe100000 0x00000000fe100fff 0x0000000000040200\n" +
		"0x0000000000000000 0x00000000000fffff 0x0000000000040200\n" + // no address
		"0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(s.Path("bus/pci/devices/0000:03:00.0"), "resource"), []byte(text+strings.Repeat("0x0 0x0 0x0\n", max(0, 7-strings.Count(text, "\n")))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(text)
	got, err := BARs(s, addr(t, "03:00.0"))
	if d := cmp.Diff([]BAR{{Index: 1, Start: 0xfe100000, Size: 0x1000}}, got); d != "" || err != nil {
		t.Error(d, err)
	}
	big := "0x0000000800000000 0x0000000fffffffff 0x000000000014220c\n"
	put("0x1000 0x1fff 0x200\n" + big + "0x0 0x0 0x0\n0x0 0x0 0x0\n0x0 0x0 0x0\n0x0 0x0 0x0\n0xf0000000000 0xfffffffffff 0x200\n")
	if b, ok := LargestBAR(s, addr(t, "03:00.0")); !ok || b != (BAR{1, 0x800000000, 0x800000000, true}) {
		t.Errorf("%+v, %v: a bridge window is no BAR", b, ok)
	}
	if b, ok := LargestBAR(s, addr(t, "04:00.0")); ok {
		t.Errorf("%+v", b)
	}
	for text, want := range map[string]bool{
		"0x1000 0x1fff 0x200\n": false, "0x1000 0x1fff 0x200\n0x0 0xfff 0x40200\n": false, // a smaller or equal one without
		"0x1000 0x1fff 0x200\n0x0 0xfffff 0x40200\n": true, "0x1000 0x10fff 0x20040200\n0x1000 0x1fff 0x200\n": true, "0x0 0x0 0x0\n": true,
	} {
		put(text)
		if got, err := Unplaced(s, addr(t, "03:00.0")); got != want || err != nil {
			t.Errorf("%q: unplaced %v, %v", text, got, err)
		}
	}
	if _, err := Unplaced(s, addr(t, "7f:00.0")); err == nil {
		t.Error("a function that is not there")
	}
	put("0x1 0xffffffffffffffff 0x200\n")
	if b, ok := LargestBAR(s, addr(t, "03:00.0")); !ok || b.Size != math.MaxUint64 {
		t.Errorf("%+v, %v", b, ok)
	}
}

// A file that is no function's has no regions: neither placed nor without a place.
func TestRegionsOfOtherFiles(t *testing.T) {
	s := build(t, machine)
	for _, text := range []string{"", "nonsense", "0x1000 0x1fff 0x200\nnonsense\n", "0x1000 0x1fff", "0x1000 0x1fff many",
		strings.Repeat("0x1000 0x1fff 0x200\n", 6)} { // cut before the ROM's line
		if err := os.WriteFile(filepath.Join(s.Path("bus/pci/devices/0000:03:00.0"), "resource"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if all, err := Regions(s, addr(t, "03:00.0")); !errors.Is(err, fs.ErrInvalid) || all != nil {
			t.Errorf("%q: %v, %v", text, all, err)
		}
		if unplaced, err := Unplaced(s, addr(t, "03:00.0")); unplaced || err == nil {
			t.Errorf("%q: unplaced %v, %v", text, unplaced, err)
		}
	}
}

func TestLargestSize(t *testing.T) {
	for text, want := range map[string]uint64{
		"0000000000020000\n": 128 << 30, "0000000000007f00": 16 << 30, "0x1": 1 << 20, "0000080000000000": 1 << 63,
		"0": 0, "": 0, "many": 0, "0000100000000000": 0, "10000000000000000": 0,
	} {
		if got, ok := LargestSize(text); got != want || ok != (want > 0) {
			t.Errorf("%q: %d, %v; want %d", text, got, ok, want)
		}
	}
}

func directory(t *testing.T, s sysfs.FS, name string) {
	t.Helper()
	if err := os.MkdirAll(s.Path(name), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestIOMMUType(t *testing.T) {
	s := build(t, machine+"pci0000:00/0000:00:02.0/iommu_group type=DMA-FQ\npci0000:00/0000:00:01.0/iommu_group type=\n")
	if got, err := IOMMUType(s, addr(t, "03:00.0")); !errors.Is(err, ErrNoGroups) {
		t.Errorf("a copy without the directory of groups: %q, %v", got, err)
	}
	directory(t, s, "class/mem")
	if got, err := IOMMUType(s, addr(t, "03:00.0")); !errors.Is(err, ErrNoGroups) {
		t.Errorf("a copy without the directory kernel: %q, %v", got, err)
	}
	directory(t, s, "kernel") // a whole sysfs, of a kernel without IOMMUs
	for of, want := range map[string]string{"00:02.0": "DMA-FQ", "03:00.0": ""} {
		if got, err := IOMMUType(s, addr(t, of)); got != want || err != nil {
			t.Errorf("%s: %q, %v", of, got, err)
		}
	}
	if _, err := IOMMUType(s, addr(t, "00:01.0")); err == nil {
		t.Error("an empty type is a type")
	}
	directory(t, s, "class/iommu/dmar0") // an IOMMU that is on has groups
	if got, err := IOMMUType(s, addr(t, "03:00.0")); !errors.Is(err, ErrNoGroups) {
		t.Errorf("without groups, and with an IOMMU: %q, %v", got, err)
	}
	directory(t, s, "kernel/iommu_groups/7/devices/0000:03:00.0") // and the function's link to the group was not copied
	if got, err := IOMMUType(s, addr(t, "03:00.0")); !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "group 7") {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := IOMMUType(s, addr(t, "09:00.0")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestLinksOfAFunction(t *testing.T) {
	s := build(t, machine)
	link := func(of, name, target string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(s.Path("bus/pci/devices/0000:"+of), name)); err != nil {
			t.Fatal(err)
		}
	}
	link("03:00.0", "iommu_group", "../../../../../../kernel/iommu_groups/17")
	link("04:00.0", "iommu_group", "iommu_group") // the mark of what a snapshot could not read
	link("04:00.1", "physfn", "../0000:04:00.0")
	link("00:02.0", "physfn", "physfn")
	if got, err := IOMMUGroup(s, addr(t, "81:00.0")); !errors.Is(err, ErrNoGroups) {
		t.Errorf("a copy without the directory of groups: %q, %v", got, err)
	}
	directory(t, s, "kernel/iommu_groups")
	for of, want := range map[string]string{"03:00.0": "17", "81:00.0": ""} {
		if got, err := IOMMUGroup(s, addr(t, of)); got != want || err != nil {
			t.Errorf("%s: %q, %v", of, got, err)
		}
	}
	directory(t, s, "kernel/iommu_groups/17")
	if got, err := IOMMUGroup(s, addr(t, "81:00.0")); !errors.Is(err, ErrNoGroups) {
		t.Errorf("a group whose functions were not copied: %q, %v", got, err)
	}
	directory(t, s, "kernel/iommu_groups/17/devices")
	if got, err := IOMMUGroup(s, addr(t, "81:00.0")); !errors.Is(err, ErrNoGroups) {
		t.Errorf("a group without the links to its functions: %q, %v", got, err)
	}
	directory(t, s, "kernel/iommu_groups/17/devices/0000:03:00.0")
	if got, err := IOMMUGroup(s, addr(t, "81:00.0")); got != "" || err != nil {
		t.Errorf("a function of no group: %q, %v", got, err)
	}
	if got, err := IOMMUGroup(s, addr(t, "04:00.0")); err == nil {
		t.Errorf("group %q", got)
	}
	if pf, ok, err := PhysicalFunction(s, addr(t, "04:00.1")); pf != addr(t, "04:00.0") || !ok || err != nil {
		t.Error(pf, ok, err)
	}
	if pf, ok, err := PhysicalFunction(s, addr(t, "04:00.0")); ok || err != nil {
		t.Error(pf, ok, err)
	}
	if pf, ok, err := PhysicalFunction(s, addr(t, "00:02.0")); ok || err == nil {
		t.Error(pf, ok, err)
	}
}

func TestRootBus(t *testing.T) {
	s := build(t, machine+`
pci0000:80/0000:80:00.2
pci0000:80/0000:80:05.5/pci10000:e0/10000:e0:06.0
pci0000:80/0000:80:05.5/pci10000:e0/10000:e0:06.0/10000:e1:00.0
pci0001:00/not-a-function
`)
	for of, want := range map[string][2]string{
		"03:00.0":       {"pci0000:00", "0000:00:01.0"},
		"81:00.0":       {"pci0000:80", "0000:80:00.2"},
		"10000:e1:00.0": {"pci10000:e0", "10000:e0:06.0"},
	} {
		bus, first, ok, err := RootBus(s, addr(t, of))
		if bus != want[0] || first != addr(t, want[1]) || !ok || err != nil {
			t.Errorf("%s: %s, %v, %v, %v; want %v", of, bus, first, ok, err, want)
		}
	}
	up, err := Upstream(s, addr(t, "10000:e1:00.0"))
	if len(up) != 1 || up[0] != addr(t, "10000:e0:06.0") || err != nil {
		t.Errorf("%v, %v: a controller is no bridge", up, err)
	}
	if _, _, ok, err := RootBus(s, addr(t, "09:00.0")); ok || !errors.Is(err, fs.ErrNotExist) {
		t.Error(ok, err)
	}
}

func TestBusAddress(t *testing.T) {
	data := make([]byte, stdHeaderSize)
	for i, v := range []uint32{0xf0000000, 0x0000000c, 0x00002000, 0x0000e001, 0xe0000004, 0xfffffff4} {
		binary.LittleEndian.PutUint32(data[regBAR0+4*i:], v)
	}
	c := Config{data, cfgSpaceExpSize}
	for bar, want := range map[int]uint64{-1: 0, 0: 0xf0000000, 1: 0x2000 << 32, 3: 0, 4: 0xfffffff4_e0000000, 5: 0xfffffff0, 6: 0} {
		if got, ok := c.BusAddress(bar); got != want || ok != (want != 0) {
			t.Errorf("BAR %d: %#x, %v, want %#x", bar, got, ok, want)
		}
	}
	if got, ok := (Config{data[:regBAR0+4], cfgSpaceExpSize}).BusAddress(1); ok {
		t.Errorf("beyond what was read: %#x", got)
	}
}

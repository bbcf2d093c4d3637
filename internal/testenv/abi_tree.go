// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"encoding/binary"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Processors of a Tree.
const (
	EPYC      = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 23\nflags\t\t: fpu vme\n\nprocessor\t: 1\nvendor_id\t: none\ncpu family\t: x\n\n"
	Bulldozer = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 21\nflags\t\t: fpu vme\n\n"
	Hygon     = "processor\t: 0\nvendor_id\t: HygonGenuine\ncpu family\t: 24\nflags\t\t: fpu vme\n\n"
	Xeon      = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nflags\t\t: fpu vme\n\n"
	Grace     = "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\n\n"
)

// Kernel configurations of a Tree. ConfigEnd has an option of lib/Kconfig, which comes late: a file with
// it is whole.
const (
	ConfigEnd     = "CONFIG_HAS_IOMEM=y\n"
	WithP2PDMA    = "CONFIG_PCI=y\nCONFIG_DMA_SHARED_BUFFER=y\nCONFIG_PCI_P2PDMA=y\nCONFIG_INFINIBAND_ON_DEMAND_PAGING=y\n" + ConfigEnd
	WithoutP2PDMA = "CONFIG_PCI=y\nCONFIG_DMA_SHARED_BUFFER=y\n# CONFIG_PCI_P2PDMA is not set\n# CONFIG_DMABUF_MOVE_NOTIFY is not set\nCONFIG_INFINIBAND_ON_DEMAND_PAGING=y\n" + ConfigEnd
)

// Tree is a machine that is files below a directory.
type Tree struct {
	Release string // "7.2.12+deb13-amd64" if it is ""; "-": no file
	Config  string // WithP2PDMA if it is ""; "-": no file
	CPU     string // EPYC if it is ""; "-": no file
	// Functions has a line for each PCI function: its path below devices/ and
	// attributes, whose blanks are written _. Some are special: driver:NAME,
	// rdma:NAME (an RDMA device), group=N:TYPE (of the IOMMU), acs=CTRL and ats=CTRL (control registers),
	// rebar=SIZES (of BAR 0, a bit each from 1 MiB up), devctl=N and devctl2=N (of PCI Express), type=N (PCI Express type), and
	// config=N for how much of the configuration space can be read: 64 of 4096
	// is what an unprivileged user sees, 256 what the kernel itself has, -1 is no file.
	// The value - is an attribute that has no file.
	Functions string
	Files     map[string]string // others, by path
	Links     map[string]string // directories, by path of what leads to them
	Texts     map[string]string // links that lead nowhere, as those of namespaces
}

// Write writes the tree below a new directory, and returns that.
func (f Tree) Write(t testing.TB) string {
	t.Helper()
	root := TreeDir(t)
	put := func(name, text string) {
		if path.Base(name) == "resource" {
			text = Regions(text)
		}
		WriteFile(t, filepath.Join(root, name), text)
	}
	or := func(s, def string) string {
		if s == "" {
			return def
		}
		return s
	}
	release := or(f.Release, "7.2.12+deb13-amd64")
	if release != "-" {
		put("proc/sys/kernel/osrelease", release+"\n")
	}
	if c := or(f.Config, WithP2PDMA); c != "-" {
		put("boot/config-"+release, c)
	}
	if c := or(f.CPU, EPYC); c != "-" {
		put("proc/cpuinfo", c)
	}
	if err := os.MkdirAll(filepath.Join(root, "sys/kernel/iommu_groups"), 0o755); err != nil { // it is empty without an IOMMU
		t.Fatal(err)
	}
	for line := range strings.Lines(f.Functions) {
		if fields := strings.Fields(line); len(fields) > 0 {
			writeFunction(t, filepath.Join(root, "sys"), fields[0], fields[1:], put)
		}
	}
	for name, text := range f.Files {
		put(name, text)
	}
	f.serve(put)
	for name, target := range f.Links {
		Link(t, filepath.Join(root, target), filepath.Join(root, name))
	}
	for name, text := range f.Texts {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(text, name); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// serve makes the uverbs devices that no file is of: ib_uverbs, where it is loaded, serves all
// RDMA devices.
func (f Tree) serve(put func(name, text string)) {
	const class = "sys/class/infiniband_verbs/"
	if _, loaded := f.Files[class+"abi_version"]; !loaded {
		return
	}
	served, n := map[string]bool{}, 0
	for name, text := range f.Files {
		if rest, ok := strings.CutPrefix(name, class+"uverbs"); ok {
			if number, _, _ := strings.Cut(rest, "/"); number != "" {
				i, _ := strconv.Atoi(number)
				n = max(n, i+1)
			}
			served[strings.TrimSpace(text)] = true
		}
	}
	var nics []string
	for _, word := range strings.Fields(f.Functions) {
		if nic, ok := strings.CutPrefix(word, "rdma:"); ok {
			nics = append(nics, nic)
		}
	}
	for name := range f.Links { // those of no PCI function
		if nic, ok := strings.CutPrefix(name, "sys/class/infiniband/"); ok {
			nics = append(nics, nic)
		}
	}
	slices.Sort(nics)
	for _, nic := range nics {
		if !served[nic] {
			put(fmt.Sprintf("%suverbs%d/ibdev", class, n), nic+"\n")
			served[nic] = true
			n++
		}
	}
}

// TreeName is in the name of every tree's directory.
const TreeName = "machine-tree-"

// TreeDir is a new directory in memory, where there is such a place: a machine
// has hundreds of files.
func TreeDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", TreeName)
	if err != nil {
		dir, err = os.MkdirTemp(t.TempDir(), TreeName)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func writeFunction(t testing.TB, sys, dir string, attrs []string, put func(name, text string)) {
	t.Helper()
	at := path.Join("sys/devices", dir)
	values := map[string]string{"vendor": "0x1af4", "device": "0x1110", "class": "0x050000", "dma_mask_bits": "64"}
	c, size := configuration{acs: -1, ats: -1, devctl: devctl}, configSize
	for _, attr := range attrs {
		name, value, _ := strings.Cut(attr, "=")
		n, err := strconv.ParseInt(value, 0, 32)
		switch name {
		case "acs":
			c.acs = int(n)
		case "ats":
			c.ats = int(n)
		case "rebar":
			c.rebar = uint32(n)
		case "devctl":
			c.devctl = int(n)
		case "devctl2":
			c.devctl2 = int(n)
		case "type":
			c.kind = int(n)
		case "config":
			size = int(n)
		default:
			err = nil
			values[name] = value
		}
		if err != nil {
			t.Fatal(attr, err)
		}
	}
	// The kernel makes this file for each function. Only of GPUs does it matter.
	if _, has := values["resource"]; !has && isGPU(values["class"]) {
		values["resource"] = "0x0000200000000000_0x0000203fffffffff_0x000000000014220c"
	}
	c.vendor, c.device = idOf(values["vendor"]), idOf(values["device"])
	if size >= 0 {
		put(path.Join(at, "config"), string(c.space()[:size]))
	}
	for name, value := range values {
		if value == "-" {
			continue
		}
		device := filepath.Join(filepath.Dir(sys), at)
		if driver, ok := strings.CutPrefix(name, "driver:"); ok {
			Link(t, filepath.Join(sys, "bus/pci/drivers", driver), filepath.Join(device, "driver"))
			continue
		}
		if name == "group" {
			number, kind, _ := strings.Cut(value, ":")
			group := path.Join("sys/kernel/iommu_groups", number)
			Link(t, filepath.Join(filepath.Dir(sys), group), filepath.Join(device, "iommu_group"))
			Link(t, device, filepath.Join(filepath.Dir(sys), group, "devices", path.Base(dir)))
			put(path.Join(group, "type"), kind+"\n")
			continue
		}
		if nic, ok := strings.CutPrefix(name, "rdma:"); ok {
			dir := filepath.Join(device, "infiniband", nic)
			Link(t, device, filepath.Join(dir, "device"))
			Link(t, dir, filepath.Join(sys, "class/infiniband", nic))
			continue
		}
		put(path.Join(at, name), strings.ReplaceAll(value, "_", " ")+"\n")
	}
	if i := strings.LastIndex(dir, "pci"); i >= 0 {
		Link(t, filepath.Join(sys, "devices", dir), filepath.Join(sys, "bus/pci/devices", path.Base(dir)))
	}
}

// Regions is a function's file resource, whose first regions are given: the kernel's file has
// seven lines or more. A text that is none of regions stays as it is.
func Regions(text string) string {
	lines := 0
	for line := range strings.Lines(text) {
		if len(strings.Fields(line)) != 3 || !strings.HasSuffix(line, "\n") {
			return text
		}
		lines++
	}
	if lines == 0 || lines > 6 {
		return text
	}
	return text + strings.Repeat("0x0 0x0 0x0\n", 7-lines)
}

// isGPU reports a class of display controllers, of accelerators, or the one that a function
// without a class has.
func isGPU(class string) bool {
	return strings.HasPrefix(class, "0x03") || strings.HasPrefix(class, "0x12") || class == "0x050000"
}

// WriteFile writes a file and the directories above it.
func WriteFile(t testing.TB, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Link makes a directory and a relative link that leads to it.
func Link(t testing.TB, target, name string) {
	t.Helper()
	for _, dir := range []string{target, filepath.Dir(name)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	rel, err := filepath.Rel(filepath.Dir(name), target)
	if err == nil {
		err = os.Symlink(rel, name)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// configSize is PCI_CFG_SPACE_EXP_SIZE.
const configSize = 4096

// configuration is what is said of a function's.
type configuration struct {
	vendor, device  uint16
	kind            int
	acs, ats        int // -1: it has no such capability
	rebar           uint32
	devctl, devctl2 int
}

// devctl is relaxed ordering, packets of 512 bytes, read requests of 4 KiB.
const devctl = 0x5050

// idOf reads a vendor or device. Of noise it is what no function has.
func idOf(text string) uint16 {
	n, err := strconv.ParseUint(text, 0, 16)
	if err != nil {
		return 0xfffe
	}
	return uint16(n)
}

// space is that of a PCI Express function, which has other extended
// capabilities, too.
func (f configuration) space() []byte {
	c := make([]byte, configSize)
	le := binary.LittleEndian
	le.PutUint16(c[0:], f.vendor)
	le.PutUint16(c[2:], f.device)
	c[0x06] = 0x10 // capability list
	c[0x34] = 0x50
	le.PutUint16(c[0x50:], 0x6005) // MSI, then at 0x60
	le.PutUint16(c[0x60:], 0x0010) // PCI Express, the last
	le.PutUint16(c[0x62:], uint16(f.kind)<<4|2)
	c[0x64] = 2 // packets of 512 bytes
	le.PutUint16(c[0x68:], uint16(f.devctl))
	le.PutUint16(c[0x88:], uint16(f.devctl2))
	le.PutUint32(c[0x100:], 0x148<<20|1<<16|0x0001) // AER, then at 0x148
	last := 0x148
	le.PutUint32(c[last:], 1<<16|0x000b) // vendor-specific
	add := func(at int, id uint32, can, ctrl int) {
		if ctrl < 0 {
			return
		}
		le.PutUint32(c[last:], le.Uint32(c[last:])|uint32(at)<<20)
		le.PutUint32(c[at:], 1<<16|id)
		le.PutUint16(c[at+4:], uint16(can))
		le.PutUint16(c[at+6:], uint16(ctrl))
		last = at
	}
	add(0x160, 0x000d, 0x7f, f.acs)
	add(0x170, 0x000f, 0, f.ats)
	if f.rebar != 0 {
		add(0x180, 0x0015, 0, 0)
		le.PutUint32(c[0x184:], f.rebar<<4)
		c[0x188] = 1 << 5 // one BAR, the first
	}
	return c
}

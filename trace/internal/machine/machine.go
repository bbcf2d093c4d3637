// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// Read reads the memory map of the machine: the BARs of all PCI
// functions from sysfs, and RAM from iomem of procfs, which shows addresses
// only to root. sys and proc are their roots, "" for /sys and /proc. What
// cannot be read is left out: a placement that needs it is then Unknown.
func Read(sys, proc string) *placement.Machine {
	m := &placement.Machine{}
	s := sysfs.New(sys)
	names, err := s.List("bus/pci/devices")
	if err == nil {
		for _, name := range names {
			m.BARs = append(m.BARs, readBARs(s, name)...)
		}
	}
	if proc == "" {
		proc = "/proc"
	}
	if text, err := os.ReadFile(filepath.Join(proc, "iomem")); err == nil {
		m.RAM, m.Coherent = parseIOMem(string(text))
	}
	return m
}

func readBARs(s sysfs.FS, device string) (out []placement.BAR) {
	a, err := pciaddr.Parse(device)
	if err != nil {
		return nil
	}
	bars, err := pci.BARs(s, a)
	if err != nil {
		return nil
	}
	gpu := false
	if f, err := pci.ReadFunction(s, a); err == nil {
		// Display controllers, processing accelerators (0x12), and functions of any other
		// class that have a DRM driver.
		_, err := s.List(filepath.Join("bus/pci/devices", device, "drm"))
		gpu = f.IsDisplay() || f.Class>>16 == 0x12 || err == nil
	}
	for _, b := range bars {
		out = append(out, placement.BAR{
			Device: device, Index: b.Index, GPU: gpu,
			Range: placement.Range{Start: b.Start, Size: b.Size},
		})
	}
	return out
}

// parseIOMem reads the top level of /proc/iomem. Coherent GPU memory is RAM
// that the driver added and named after itself.
func parseIOMem(text string) (ram []placement.Range, coherent []placement.Coherent) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, " ") {
			continue
		}
		span, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " : ")
		from, to, ok2 := strings.Cut(span, "-")
		if !ok || !ok2 {
			continue
		}
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err1 != nil || err2 != nil || end <= start { // 0-0: not shown to this user
			continue
		}
		r := placement.Range{Start: start, Size: end - start + 1}
		detail, isRAM := strings.CutPrefix(name, "System RAM")
		lower := strings.ToLower(name)
		switch {
		case isRAM && (strings.Contains(lower, "nvidia") || strings.Contains(lower, "amdgpu")):
			coherent = append(coherent, placement.Coherent{Name: strings.Trim(detail, " ()") + " memory", Range: r})
		case isRAM:
			ram = append(ram, r)
		}
	}
	return ram, coherent
}

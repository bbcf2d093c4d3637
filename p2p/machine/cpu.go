// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/placement"
)

// CPU has the facts that the kernel's rule for processors uses.
type CPU struct {
	Vendor string // "AuthenticAMD"; "" on all but x86
	Family int
	Known  bool
}

// zen is the first family of AMD processors on which all host bridges pass
// peer-to-peer traffic.
const zen = 0x17

// Routes is the kernel's cpu_supports_p2pdma().
func (c CPU) Routes() placement.Answer {
	switch {
	case !c.Known:
		return placement.AnswerUnknown
	case c.Vendor == "AuthenticAMD" && c.Family >= zen:
		return placement.Yes
	}
	return placement.No
}

// PassThrough is the kernel's parameter for an IOMMU that does not translate, in its
// form for x86. Checks print this form; a finding about a machine prints that of its CPU.
const PassThrough = "iommu=pt"

// PassThrough is the kernel's parameter for an IOMMU that does not translate, on this CPU.
func (c CPU) PassThrough() string {
	if c.Known && c.Vendor == "" {
		return "iommu.passthrough=1"
	}
	return PassThrough
}

// String is the vendor and the family, or says that the processor is not known.
func (c CPU) String() string {
	switch {
	case c.Vendor == "" && !c.Known:
		return "a processor that is not known"
	case c.Vendor == "":
		return "a processor other than x86"
	}
	return fmt.Sprintf("%s family %#x", c.Vendor, c.Family)
}

// readCPU reads the first processor, because the kernel looks at the first one.
func readCPU(proc procfs.FS) CPU {
	text, err := files.ReadFile(proc.Path("cpuinfo"))
	if err != nil {
		return CPU{}
	}
	var c CPU
	other := false
	// The family matters for AMD alone.
	known := func(family bool) CPU {
		c.Known = family || c.Vendor != "AuthenticAMD"
		return c
	}
	family := false
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break // it was cut
		}
		key, value, ok := strings.Cut(line, ":")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case !ok && c.Vendor != "": // the blank line behind the first
			return known(family)
		case key == "vendor_id":
			c.Vendor = value
		case key == "cpu family":
			n, err := strconv.Atoi(value)
			c.Family, family = n, err == nil
		case key == "CPU implementer" || key == "isa" || key == "cpu" && strings.HasPrefix(value, "POWER"):
			other = true
		}
	}
	if c.Vendor != "" {
		return known(family)
	}
	return CPU{Known: other}
}

// CachesGPUs reports a processor that caches the memory of NVIDIA's GPUs. Grace has
// Neoverse V2, and so have others. No x86 does it; of another Arm core than those
// that are known it is not known.
func (m *Machine) CachesGPUs() placement.Answer {
	cpu := m.Read("proc/cpuinfo")
	maker, _ := cpu.Line("CPU implementer")
	part, _ := cpu.Line("CPU part")
	switch core := maker + " " + part; {
	case m.CPU.Vendor != "":
		return placement.No
	case core == graceCore:
		return placement.Yes
	case slices.Contains(otherCores, core):
		return placement.No
	}
	return placement.AnswerUnknown
}

// graceCore is Neoverse V2, by maker and part. otherCores are N1, V1 and N2.
const graceCore = "0x41 0xd4f"

var otherCores = []string{"0x41 0xd0c", "0x41 0xd40", "0x41 0xd49"}

// Arch is Go's name for the machine's architecture: "amd64", "arm64", "ppc64le". It is "" if
// /proc/cpuinfo does not show the architecture.
func (m *Machine) Arch() string {
	cpu := m.Read("proc/cpuinfo")
	_, arm := cpu.Line("CPU implementer")
	name, _ := cpu.Line("cpu\t")
	switch {
	case m.CPU.Vendor != "":
		return "amd64"
	case arm:
		return "arm64"
	case strings.HasPrefix(name, "POWER"):
		return "ppc64le"
	}
	return ""
}

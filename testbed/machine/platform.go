// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"maps"
	"slices"
)

// platform is what QEMU and the kernel are told on one architecture to get the same
// machine: a PCIe root bus named pcie.0, and an IOMMU before it where one is asked for.
type platform struct {
	board    string
	firmware []string // QEMU's options for it
	// split is added to the board's name where it has an IOMMU, and iommu are the
	// options that make one.
	iommuBoard string
	iommu      []string
	iommuArgs  map[string][]string // the kernel's, by Node.IOMMU

	memoryMiB int // of a node that does not say

	emulated string // the processor of a node that does not say, where it is emulated
	plain    string // that of topologies
	passing  string // one whose host bridge lets peer-to-peer pass, if there is one
	cpus     []string
}

// DefaultArch is that of a machine that does not say.
const DefaultArch = "amd64"

var platforms = map[string]platform{
	"amd64": {
		board: "q35",
		// Interrupt remapping wants the split irqchip; TCG ignores it.
		iommuBoard: ",kernel-irqchip=split",
		iommu:      []string{"-device", "intel-iommu,intremap=on,caching-mode=on"},
		iommuArgs: map[string][]string{
			"pt": {"intel_iommu=on", "iommu=pt"}, "translate": {"intel_iommu=on", "iommu=nopt"},
		},
		memoryMiB: 3 << 10, // a third of which is above 4 GiB
		emulated:  emulatedCPU,
		plain:     "max",
		passing:   "EPYC",
		// What matters is whether the kernel lets peer-to-peer traffic pass the host
		// bridge: it does for AMD from family 0x17 on, and for Intel by a list of host
		// bridges that has none of QEMU's.
		cpus: []string{
			"max",            // under emulation an AMD of an older family: refused
			"EPYC",           // AMD family 0x17: allowed
			"Nehalem",        // Intel: refused
			"Skylake-Server", // Intel: refused
		},
	},
	// The firmware gives the kernel ACPI, as on servers; without it the second host
	// bridge is not found. Whatever the processor, the kernel lets peer-to-peer traffic
	// pass a host bridge by its list alone, which has none of QEMU's: refused.
	"arm64": {
		board:      "virt,gic-version=3",
		firmware:   []string{"-L", "/usr/share/qemu-efi-aarch64", "-bios", "QEMU_EFI.fd"},
		iommuBoard: ",iommu=smmuv3",
		iommuArgs: map[string][]string{
			"pt": {"iommu.passthrough=1"}, "translate": {"iommu.passthrough=0", "iommu.strict=1"},
		},
		memoryMiB: 4 << 10, // from 1 GiB on, so that a quarter is above 4 GiB
		// It has both page sizes, and no pointer authentication, which takes its time
		// where it is emulated.
		emulated: "neoverse-n1",
		plain:    "neoverse-n1",
		cpus:     []string{"neoverse-n1"},
	},
}

// platform is that of a machine's architecture.
func (m Machine) platform() platform { return platforms[m.arch()] }

func (m Machine) arch() string {
	if m.Arch == "" {
		return DefaultArch
	}
	return m.Arch
}

// Architectures lists those that machines can have.
func Architectures() []string { return slices.Sorted(maps.Keys(platforms)) }

// Foreign says whether a variation of a machine's name is the processor of another
// architecture, so that the machine is not one of this.
func Foreign(arch, variation string) bool {
	if slices.Contains(platforms[arch].cpus, variation) {
		return false
	}
	for _, p := range platforms {
		if slices.Contains(p.cpus, variation) {
			return true
		}
	}
	return false
}

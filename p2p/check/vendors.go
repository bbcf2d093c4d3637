// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"

	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// OnAMD reports whether amdgpu drives a GPU. If not, it skips the check.
func OnAMD(l *Look) bool {
	if len(l.Driven("amdgpu")) == 0 {
		l.Skip("no GPU of amdgpu")
		return false
	}
	return true
}

// OnNVIDIA reports whether NVIDIA's driver drives a GPU. If not, it skips the check.
func OnNVIDIA(l *Look) bool {
	if len(l.Driven("nvidia")) == 0 {
		l.Skip("no GPU of NVIDIA's driver")
		return false
	}
	return true
}

// Coherent says whether the processor may cache the memory of NVIDIA's GPUs.
func Coherent(l *Look) placement.Answer {
	return l.Machine.CachesGPUs()
}

// OneGroup says whether two functions are in one IOMMU group by the rule of NVIDIA's driver: the driver
// compares pointers, so that two functions without a group are in one. g and n are the readings of the
// links of a and b to their groups.
func OneGroup(l *Look, a, b pciaddr.Addr) (one placement.Answer, g, n machine.Reading) {
	g, n = l.Link("sys/bus/pci/devices", a.String(), "iommu_group"), l.Link("sys/bus/pci/devices", b.String(), "iommu_group")
	switch {
	case g.Err != nil && !g.Gone() || n.Err != nil && !n.Gone():
		return placement.AnswerUnknown, g, n
	case g.Gone() && n.Gone(), g.Err == nil && n.Err == nil && Base(g.Text) == Base(n.Text):
		return placement.Yes, g, n
	}
	return placement.No, g, n
}

// mlx5Virtual are the device IDs of mlx5's virtual functions, by mlx5_core's table. Cards of all later
// kinds share the last two.
var mlx5Virtual = []uint16{0x1012, 0x1014, 0x1016, 0x1018, 0x101a, 0x101c, 0x101e, 0xa2d3}

// VirtualFunctions returns the PCI functions of the NICs that are virtual functions.
func VirtualFunctions(l *Look) []*Function {
	return slices.DeleteFunc(l.NICFunctions(), func(f *Function) bool { return !l.Machine.Sys.Exists(f.Dir + "/physfn") })
}

// IsVirtual reports whether a function is a virtual function. A guest has no link to the physical
// function; there, mlx5's virtual functions are recognized by their device IDs.
func IsVirtual(l *Look, f *Function) bool {
	return l.Machine.Sys.Exists(f.Dir+"/physfn") || f.Err == nil && f.Vendor == machine.VendorMellanox && slices.Contains(mlx5Virtual, f.Device)
}

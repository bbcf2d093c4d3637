// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"slices"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// chipsets are the chipsets that, by NVIDIA's driver, cannot pass peer-to-peer: Grace
// (TH500), Altra, and AmpereOne with up to 160 cores. The table has the PCI functions by
// which the driver recognizes them. osinit.c and nvcst.h of 580, 590 and 595.
var chipsets = map[uint16][]uint16{
	machine.VendorNVIDIA: {machine.GraceGPU, 0x22b2, 0x22b3, 0x22b4, 0x22b8, 0x22b9},
	machine.Ampere:       {0xe000, 0xe00d, 0xe00e, 0xe010, 0xe100, 0xe110, 0xe200, 0xe201, 0xe202, 0xe203, 0xe204, 0xe205, 0xe206, 0xe207},
}

// nvidiaGate is nv_grdma_pci_topology_supported(). It first lets all importers attach to a
// GPU whose memory the CPU caches. Next it follows a parameter of the driver. Then it lets all
// attach in a guest, and requires a common bridge on the chipsets above. None of these is x86.
func nvidiaGate(m *machine.Machine, gpu pciaddr.Addr) Gate {
	gate, read := gates[NVIDIASeries(m)]
	if !read {
		return GateUnread
	}
	if !gate {
		return GateOpen
	}
	params := m.Read("proc/driver/nvidia/params")
	value, _ := params.Line("GrdmaPciTopoCheckOverride")
	if value == "1" {
		return GateOpen
	}
	closed := value == "2"
	switch {
	case value != "0" && !closed:
		return GateParameter
	case m.CPU.Vendor != "" && closed:
		return GateClosed
	case m.CPU.Vendor != "":
		return GateOpen
	}
	// Below this port the CPU usually caches the GPU's memory. No file shows whether it does.
	switch cached, known := belowGrace(m, gpu); {
	case closed && (cached || !known):
		return GateParameter // the driver does not ask it where the memory is coherent
	case closed:
		return GateClosed
	case cached || !known || !m.CPU.Known:
		return GateUnknown
	}
	switch RootWithoutPeers(m) {
	case placement.No:
		return GateOpen
	case placement.Yes:
		if m.Virtual.Is == placement.No {
			return GateBridge
		}
	}
	return GateUnknown
}

// belowGrace reports a GPU below Grace's root port for its own GPU. known is false if the
// port cannot be read.
func belowGrace(m *machine.Machine, gpu pciaddr.Addr) (below, known bool) {
	up, err := pci.Upstream(m.Sys, gpu)
	if err != nil {
		return false, false
	}
	for _, a := range up {
		port, err := pci.ReadFunction(m.Sys, a)
		if err != nil {
			return false, false
		}
		below = below || port.Vendor == machine.VendorNVIDIA && port.Device == machine.GraceGPU
	}
	return below, true
}

// RootWithoutPeers says whether the machine has a chipset on which NVIDIA's driver lets only
// NICs below a common bridge attach, such as Grace's, Altra's and AmpereOne's. NVIDIA's driver
// and RootWithoutPeers recognize the chipset by the IDs of its PCI functions.
func RootWithoutPeers(m *machine.Machine) placement.Answer {
	m.Chipset.Once.Do(func() {
		names, err := m.Sys.List("bus/pci/devices")
		if err != nil {
			return
		}
		answer := placement.No
		for _, name := range names {
			vendor, err1 := m.Sys.ReadUint("bus/pci/devices/"+name+"/vendor", 16)
			device, err2 := m.Sys.ReadUint("bus/pci/devices/"+name+"/device", 16)
			switch {
			case err1 != nil || err2 != nil:
				answer = placement.AnswerUnknown
			case slices.Contains(chipsets[uint16(vendor)], uint16(device)):
				m.Chipset.Listed = placement.Yes
				return
			}
		}
		m.Chipset.Listed = answer
	})
	return m.Chipset.Listed
}

// The values of DmaRemapPeerMmio, a parameter of NVIDIA's kernel module: with 1 the driver maps
// its memory in the importer's IOMMU.
const (
	RemapOff = "0"
	RemapOn  = "1"
)

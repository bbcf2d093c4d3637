// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// coherentIDs are the device IDs of GPUs that C2C connects to Grace: GH200, GB200 and GB300.
// The CPU caches their memory, and the memory has pages (open-gpu-kernel-modules, g_nv_name_released.h).
var coherentIDs = map[uint16]bool{0x2342: true, 0x2343: true, 0x2345: true, 0x2348: true, 0x2941: true, 0x31c2: true, 0x31c3: true}

// coherentNames are words in the names of these models.
var coherentNames = []string{"GH200", "GB200", "GB300"}

// coherentSince is the first series whose nv-dmabuf.c maps such memory by its pages. Where the
// series is not known, the model says how the memory is made.
const coherentSince = 535

// coherentGPU reports a GPU whose memory NVIDIA's driver maps in the same way as system memory.
func coherentGPU(m *machine.Machine, f pci.Function) bool {
	if f.Vendor != machine.VendorNVIDIA {
		return false
	}
	if series := NVIDIASeries(m); series > 0 && series < coherentSince {
		return false
	}
	model := modelOf(m, f.Addr).Text
	for _, name := range coherentNames {
		if strings.Contains(model, name) {
			return true
		}
	}
	return coherentIDs[f.Device]
}

// MayBeCoherent reports whether a GPU of NVIDIA may have memory that the CPU caches
// (ClassNVIDIACoherent): it is not known how its driver exports memory, or its model is in no table and
// it is below the root port that Grace has for its own GPU.
func MayBeCoherent(m *machine.Machine, e Exporter) bool {
	if e.Driver != "nvidia" || e.PCI == nil {
		return false
	}
	switch e.Class {
	case ClassNVIDIA:
		below, known := belowGrace(m, *e.PCI)
		return m.CPU.Vendor == "" && (below || !known)
	case ClassUnknown:
		f, err := pci.ReadFunction(m.Sys, *e.PCI)
		return !e.Proprietary && err == nil && coherentGPU(m, f)
	}
	return false
}

// modelOf reads the name of a GPU from NVIDIA's driver into the Text of the Reading. The Text is ""
// if the driver has no name for it.
func modelOf(m *machine.Machine, a pciaddr.Addr) machine.Reading {
	r := m.Read("proc/driver/nvidia/gpus", a.String(), "information")
	r.Text, _ = r.Line("Model")
	return r
}

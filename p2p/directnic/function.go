// SPDX-License-Identifier: Apache-2.0

package directnic

import "github.com/gpurdma/gpurdma/internal/pci"
import (
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Tri is yes, no or unknown. Its values are those of placement.Answer.
type Tri int

// The answers.
const (
	Unknown Tri = iota
	Yes
	No
)

// String returns "unknown", "yes" or "no".
func (t Tri) String() string {
	switch t {
	case Yes:
		return "yes"
	case No:
		return "no"
	}
	return "unknown"
}

// answer turns a known fact into an answer.
func answer(b bool) Tri {
	if b {
		return Yes
	}
	return No
}

// all is Yes if all answers are. One No decides, and so does one Unknown where
// there is no No. It is Unknown of no answers at all.
func all(answers ...Tri) Tri {
	if len(answers) == 0 {
		return Unknown
	}
	out := Yes
	for _, a := range answers {
		switch a {
		case No:
			return No
		case Unknown:
			out = Unknown
		}
	}
	return out
}

// ATS is the address translation service of a function.
type ATS struct {
	Known   bool
	Capable bool // the function has the capability
	Enabled bool // the IOMMU's driver has turned it on
}

// Function has the facts that the caller has read about a PCI function.
type Function struct {
	Addr     pciaddr.Addr
	Vendor   uint16
	Device   uint16
	Class    uint32         // 24 bits: base class, subclass, programming interface
	Upstream []pciaddr.Addr // the bridges above, nearest first; none of a root port

	// Port is the PCI Express type of a bridge. Another type than a root,
	// upstream or downstream port counts as not read.
	Port pci.Port
	ACS  pci.ACS
	// ACSErr says why ACS is not known: a process without privileges can read
	// only 64 bytes of the configuration space, and a machine without ECAM has
	// only 256.
	ACSErr error
	ATS    ATS

	Group      string // the number of the IOMMU group; "" if it has none
	GroupKnown bool
	Node       int // the NUMA node; negative if the firmware names none
	Driver     string

	// VPDRead says that the vital product data were read, which only root can
	// do.
	VPDRead bool
	Card    string // keyword V3, which is the same in all functions of one card
	VU      string // keyword VU, by which mlx5_ib finds the NIC of a DMA function
}

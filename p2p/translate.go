// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Translating is the kernel's parameter for an IOMMU that translates. UndoesPT describes what the
// parameter costs.
const (
	Translating = "iommu.passthrough=0"
	UndoesPT    = "it undoes iommu=pt: all DMA is translated then, and ISO-IOMMU-MODE warns about that"
)

// Translate returns the remedy for a NIC that has too few address bits for a BAR: an IOMMU that
// translates. If no IOMMU is on, the way to turn it on depends on the processor.
func Translate(m *machine.Machine, nic pciaddr.Addr) chain.Remedy {
	const lower = "let the firmware place the BARs lower, or "
	r := chain.Remedy{Change: lower + "let the IOMMU translate", Command: Translating, Weakens: UndoesPT}
	if kind, err := pci.IOMMUType(m.Sys, nic); err == nil && kind == "" {
		r = chain.Remedy{Change: lower, Weakens: "all DMA is translated then, and ISO-IOMMU-MODE warns about that"}
		switch m.CPU.Vendor {
		case "GenuineIntel":
			r.Change += "turn the IOMMU on in the firmware (VT-d)"
			if !strings.HasPrefix(m.Parameter("intel_iommu"), "on") {
				r.Change, r.Command = r.Change+" and by the kernel's parameter", "intel_iommu=on"
			}
		case "AuthenticAMD", "HygonGenuine":
			r.Change += "turn the IOMMU on in the firmware (AMD-Vi)"
		default:
			r.Change += "turn the IOMMU on in the firmware"
		}
	}
	if words := untranslating(m); len(words) > 0 {
		r.Change += ", and take " + strings.Join(words, " and ") + " off the kernel's command line"
	}
	return r
}

// untranslating are the parameters on the command line that keep an IOMMU off or from translating.
func untranslating(m *machine.Machine) []string {
	var out []string
	for _, word := range m.BootWords() {
		key, value, _ := strings.Cut(word, "=")
		var bad []string
		switch key {
		case "iommu":
			bad = []string{"off", "pt"}
		case "intel_iommu", "amd_iommu":
			bad = []string{"off"}
		case "iommu.passthrough":
			bad = []string{"1", "y", "Y", "on"}
		}
		if slices.ContainsFunc(strings.Split(value, ","), func(v string) bool { return slices.Contains(bad, v) }) && !slices.Contains(out, word) {
			out = append(out, word)
		}
	}
	return out
}

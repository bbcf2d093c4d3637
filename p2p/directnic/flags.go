// SPDX-License-Identifier: Apache-2.0

package directnic

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
)

// Flags are the ACS bits that a port should have. config_acs= has one letter for each
// bit, the lowest bit last: "1" turns the bit on, "0" turns it off, and "x" leaves it
// as the firmware has set it.
type Flags struct {
	Mask  pci.ACSBits // the bits that are decided
	Value pci.ACSBits // those of them that are on
}

// width is the number of bits that the kernel takes and that String writes.
const width = 7

// ParseFlags reads letters such as "xx110x1". An empty string decides no bit, as in
// the kernel.
func ParseFlags(s string) (Flags, error) {
	var f Flags
	for i := range len(s) {
		letter := s[len(s)-1-i]
		switch {
		case letter == 'x' || letter == 'X':
		case letter != '0' && letter != '1':
			return Flags{}, fmt.Errorf("ACS flags %q: %q is none of 0, 1 and x", s, letter)
		case i >= width:
			return Flags{}, fmt.Errorf("ACS flags %q: there are %d bits, and the kernel refuses a value for any beyond", s, width)
		default:
			f.Mask |= 1 << i
			if letter == '1' {
				f.Value |= 1 << i
			}
		}
	}
	return f, nil
}

// String writes the letters of all bits that ACS has.
func (f Flags) String() string {
	var b strings.Builder
	for i := width - 1; i >= 0; i-- {
		switch bit := pci.ACSBits(1) << i; {
		case f.Mask&bit == 0:
			b.WriteByte('x')
		case f.Value&bit != 0:
			b.WriteByte('1')
		default:
			b.WriteByte('0')
		}
	}
	return b.String()
}

// Holds reports whether a control register has the bits that the flags decide.
func (f Flags) Holds(control pci.ACSBits) bool { return control&f.Mask == f.Value }

// Apply returns the value of the control register that the kernel writes for a port
// with these flags. Bits that the flags leave open keep the firmware's value: the
// kernel's default and disable_acs_redir= have no effect on such a port
// (drivers/pci/pci.c, __pci_config_acs, from commit 9cf8a952d57b on).
func (f Flags) Apply(firmware pci.ACSBits) pci.ACSBits { return firmware&^f.Mask | f.Value }

// missing are the bits that have to be turned on, and surplus those to turn off.
func (f Flags) missing(control pci.ACSBits) pci.ACSBits { return f.Value &^ control }
func (f Flags) surplus(control pci.ACSBits) pci.ACSBits { return f.Mask &^ f.Value & control }

// with joins two flags. It is false where they disagree about a bit.
func (f Flags) with(g Flags) (Flags, bool) {
	common := f.Mask & g.Mask
	return Flags{f.Mask | g.Mask, f.Value | g.Value}, f.Value&common == g.Value&common
}

func must(s string) Flags {
	f, err := ParseFlags(s)
	if err != nil {
		panic(err)
	}
	return f
}

// The values of rdma_topo's compute_acs and kernel_acs_isolated. The letters are
// direct translated, egress control, upstream forwarding, completion redirect,
// request redirect, translation blocking, source validation.
var (
	// dmaPortFlags is for the port above the DMA function, whose requests the switch
	// sends straight to the GPU.
	dmaPortFlags = must("xx110x1")
	// besideDMA is for the port toward the GPU beside a DMA function. The switch
	// sends the GPU's completions straight back.
	besideDMA = must("xx101x1")
	// aboveDMA is for the root port above both. Without source validation the kernel
	// puts all functions below the port into one IOMMU group.
	aboveDMA = must("xx111x0")
	// isolated is what the kernel sets where there is an IOMMU
	// (drivers/pci/pci.c, pci_std_enable_acs).
	isolated = must("xx111x1")
	// isolatedVera is the same for a root port of Vera, which cannot turn completion
	// redirect on.
	isolatedVera = must("xx101x1")
	// open is for a host that uses its devices itself.
	open = must("xx000x0")
	// translated is for the port toward a NIC that a guest has. The switch sends
	// requests that ATS translated straight to the GPU.
	translated = must("1x111x1")
)

// kernelDefault is the value that the kernel sets in a kind of port by itself.
func kernelDefault(k kind) Flags {
	if k == veraRoot {
		return isolatedVera
	}
	return isolated
}

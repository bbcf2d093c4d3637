// SPDX-License-Identifier: Apache-2.0

package machine

import "github.com/gpurdma/gpurdma/internal/pci"

// LargestBAR is the largest memory region of a function, as pci.LargestBAR reads it. It is read
// once: every pair of a GPU asks for it.
func (m *Machine) LargestBAR(a Addr) (pci.BAR, bool) {
	b := Once(m, "largest BAR of "+a.String(), func() largestBAR {
		bar, ok := pci.LargestBAR(m.Sys, a)
		return largestBAR{bar, ok}
	})
	return b.bar, b.ok
}

type largestBAR struct {
	bar pci.BAR
	ok  bool
}

// Unplaced reports a function whose BAR has no address, as pci.Unplaced reads it, once.
func (m *Machine) Unplaced(a Addr) (bool, error) {
	u := Once(m, "BAR without an address of "+a.String(), func() unplacedBAR {
		is, err := pci.Unplaced(m.Sys, a)
		return unplacedBAR{is, err}
	})
	return u.is, u.err
}

type unplacedBAR struct {
	is  bool
	err error
}

// DMABits is how many address bits a function has. It is read once.
func (m *Machine) DMABits(a Addr) (uint64, error) {
	d := Once(m, "address bits of "+a.String(), func() dmaBits {
		bits, err := m.Sys.ReadUint("bus/pci/devices/"+a.String()+"/dma_mask_bits", 64)
		return dmaBits{bits, err}
	})
	return d.bits, d.err
}

type dmaBits struct {
	bits uint64
	err  error
}

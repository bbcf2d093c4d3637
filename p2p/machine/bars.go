// SPDX-License-Identifier: Apache-2.0

package machine

import "github.com/gpurdma/gpurdma/internal/pci"
import (
	"github.com/gpurdma/gpurdma/pciaddr"
)

// LargestBAR returns the largest memory BAR of a function; false if it has none. It is read
// once.
func (m *Machine) LargestBAR(a pciaddr.Addr) (pci.BAR, bool) {
	return OnceValues(m, "largest BAR of "+a.String(), func() (pci.BAR, bool) { return pci.LargestBAR(m.Sys, a) })
}

// BusAddress returns the bus address of a function's largest BAR; false if the function has no
// BAR, or if its configuration space does not have the address. It is read once.
func (m *Machine) BusAddress(a pciaddr.Addr) (uint64, bool) {
	return OnceValues(m, "bus address of "+a.String(), func() (uint64, bool) {
		bar, ok := m.LargestBAR(a)
		c, err := pci.ReadConfig(m.Sys, a)
		if !ok || err != nil {
			return 0, false
		}
		return c.BusAddress(bar.Index)
	})
}

// Unplaced reports whether a BAR of a function has no address. It is read once.
func (m *Machine) Unplaced(a pciaddr.Addr) (bool, error) {
	return OnceValues(m, "BAR without an address of "+a.String(), func() (bool, error) { return pci.Unplaced(m.Sys, a) })
}

// DMABits returns the number of address bits that a function has for DMA, by the DMA mask of its
// driver. It is read once.
func (m *Machine) DMABits(a pciaddr.Addr) (uint64, error) {
	return OnceValues(m, "address bits of "+a.String(), func() (uint64, error) {
		return m.Sys.ReadUint("bus/pci/devices/"+a.String()+"/dma_mask_bits", 64)
	})
}

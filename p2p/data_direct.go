// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"fmt"
	"path"
	"slices"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/directnic"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// dataDirect describes the other way of a pair whose NIC has a DMA function: programs that register
// with mlx5's Data Direct flag have the data moved by that function. It is "" for other pairs.
func dataDirect(m *machine.Machine, e drivers.Exporter, i drivers.Importer) string {
	if e.Driver != "nvidia" || e.PCI == nil {
		return ""
	}
	dma, ok := DMAFunction(m, i)
	if !ok {
		return "" // NIC-DATADIRECT says why
	}
	return fmt.Sprintf("with mlx5's Data Direct flag the NIC's DMA function %v moves the data, %s; without it the NIC itself does",
		dma, wayTo(m, *e.PCI, dma))
}

// DMAFunction returns the PCI function that moves the data of an mlx5 NIC for programs that
// register with the Data Direct flag; false if no such function is known to exist and to be usable.
func DMAFunction(m *machine.Machine, i drivers.Importer) (pciaddr.Addr, bool) {
	if i.PCI == nil || i.Driver != "mlx5_core" || !hasMovers(m) {
		return pciaddr.Addr{}, false
	}
	nic := *i.PCI
	if pf, is, err := pci.PhysicalFunction(m.Sys, nic); err == nil && is {
		nic = pf
	}
	move := ACSPlan(m).Mover(nic)
	return move.DMA, move.Has == directnic.Yes && move.Usable == directnic.Yes
}

// hasMovers reports a machine with a DMA function of ConnectX.
func hasMovers(m *machine.Machine) bool {
	return machine.Once(m, "DMA functions", func() bool {
		return slices.ContainsFunc(functionsOf(m, canMove), func(a pciaddr.Addr) bool {
			device, err := m.Sys.ReadUint(path.Join(functionDir, a.String(), "device"), 16)
			return err == nil && device == directnic.DMAFunction
		})
	})
}

// wayTo says how two functions are connected.
func wayTo(m *machine.Machine, a, b pciaddr.Addr) string {
	switch way := p2pdma.Path(m, a, b); {
	case way.Unread != nil:
		return "on a way that could not be read"
	case way.Common != nil:
		return fmt.Sprintf("%d steps from the GPU below the bridge %v", way.Steps, *way.Common)
	default:
		return fmt.Sprintf("%d steps from the GPU over the root", way.Steps)
	}
}

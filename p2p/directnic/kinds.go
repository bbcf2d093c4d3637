// SPDX-License-Identifier: Apache-2.0

package directnic

// kind is the part that a function can play in a shape.
type kind int

const (
	otherKind kind = iota
	nicKind
	dmaKind         // the DMA function of a ConnectX NIC, in the GPU's PCI segment
	switchKind      // a port of a switch of ConnectX
	blueFieldSwitch // a port of a switch of BlueField-3
	graceRoot
	veraRoot
	anyRoot // a root port of another processor
	gpuKind
)

const (
	mellanox = 0x15b3
	nvidia   = 0x10de

	connectX8 = 0x1023
	// anyVirtual is the virtual function of ConnectX-4 and all later cards, by
	// the table of mlx5_core (drivers/net/ethernet/mellanox/mlx5/core/main.c).
	anyVirtual = 0x101e
	// DMAFunction is the PCI device ID of a ConnectX card's DMA function: the only
	// entry of mlx5_data_direct_pci_table
	// (drivers/infiniband/hw/mlx5/data_direct.c).
	DMAFunction = 0x2100
)

type id struct{ vendor, device uint16 }

// kinds is rdma_topo's table pci_device_types. BlueField-3's NIC (15b3:a2dc) is in
// that table and no shape has it. 15b3:197d, 15b3:197e and 15b3:1024 are parts of
// later cards, by the PCI ID repository; rdma_topo does not know them.
var kinds = map[id]kind{
	{nvidia, 0x22b1}: graceRoot,
	{nvidia, 0x22b2}: graceRoot,
	{nvidia, 0x22b8}: graceRoot,
	{nvidia, 0x2f95}: veraRoot,
	{nvidia, 0x2f96}: veraRoot,

	{mellanox, 0x1021}:      nicKind, // ConnectX-7
	{mellanox, connectX8}:   nicKind,
	{mellanox, 0x1025}:      nicKind, // ConnectX-9
	{mellanox, DMAFunction}: dmaKind, // of ConnectX-8

	{mellanox, 0x1979}: switchKind,
	{mellanox, 0x197c}: switchKind,
	{mellanox, 0x197b}: blueFieldSwitch,
}

const (
	bridgeClass     = 0x060400
	displayClass    = 0x03
	networkClass    = 0x02
	processingClass = 0x1200 // AMD's accelerators without a display
)

func kindOf(f Function) kind {
	if k, ok := kinds[id{f.Vendor, f.Device}]; ok {
		return k
	}
	switch {
	case f.Vendor == nvidia && f.Class>>16 == displayClass:
		return gpuKind
	case f.Class == bridgeClass && len(f.Upstream) == 0:
		return anyRoot
	}
	return otherKind
}

// planned reports a kind of port for which every shape has a value.
func (k kind) planned() bool {
	return k == switchKind || k == blueFieldSwitch || k == graceRoot || k == veraRoot
}

func (k kind) root() bool { return k == graceRoot || k == veraRoot || k == anyRoot }

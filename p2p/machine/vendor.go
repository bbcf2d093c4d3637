// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"sync"

	"github.com/gpurdma/gpurdma/placement"
)

// PCI vendor IDs, of devices with rules of their own.
const (
	VendorIntel  = 0x8086
	VendorGoogle = 0x1ae0
)

// VendorMellanox is the vendor of mlx5. ConnectX8 is the first of its cards with direct
// data, DirectData the function of such a card that moves the data, and DirectDriver
// the driver that uses that function for the NIC (from 6.12 on).
const (
	VendorMellanox = 0x15b3
	ConnectX8      = 0x1023
	DirectData     = 0x2100
	DirectDriver   = "mlx5_ib"
)

// VendorNVIDIA and Ampere are PCI vendor IDs, of chipsets on which NVIDIA's driver needs a common bridge.
const (
	VendorNVIDIA = 0x10de
	Ampere       = 0x1def
	// GraceGPU is the device ID of Grace's root port for the GPU that C2C connects to it.
	GraceGPU = 0x22b1
)

// chipset has the facts about the machine's chipset, for NVIDIA's gate.
type chipset struct {
	Once   sync.Once
	Listed placement.Answer
}

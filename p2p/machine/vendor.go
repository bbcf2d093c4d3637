// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"sync"

	"github.com/gpurdma/gpurdma/placement"
)

// Vendors of host bridges of which the kernel trusts some, by their PCI IDs.
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

// Vendors of root ports: NVIDIA, and Ampere Computing, which makes the Altra processors.
const (
	VendorNVIDIA = 0x10de
	Ampere       = 0x1def
	// GraceGPU is the root port of the GPU that C2C connects to Grace.
	GraceGPU = 0x22b1
)

// chipset has the facts about the machine's chipset, for NVIDIA's gate.
type chipset struct {
	Once   sync.Once
	Listed placement.Answer
}

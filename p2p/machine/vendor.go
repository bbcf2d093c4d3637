// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"sync"

	"github.com/gpurdma/gpurdma/placement"
)

const (
	VendorIntel  = 0x8086
	VendorGoogle = 0x1ae0
)

// mellanox is the vendor of mlx5, connectX8 the first of its cards with direct
// data, directData the function of such a card that moves it, and directDriver
// what binds that function for the NIC's driver (from 6.12 on).
const (
	VendorMellanox = 0x15b3
	ConnectX8      = 0x1023
	DirectData     = 0x2100
	DirectDriver   = "mlx5_ib"
)

const (
	VendorNVIDIA = 0x10de
	Ampere       = 0x1def
	// GraceGPU is the root port of the GPU that Grace is joined to by C2C.
	GraceGPU = 0x22b1
)

// chipset is what is known of the machine's, for NVIDIA's gate.
type chipset struct {
	Once   sync.Once
	Listed placement.Answer
}

// SPDX-License-Identifier: Apache-2.0

package placement

import "context"

// Key names a registration as the one who made it knows it. Fields that are
// not known are zero; at least one of LKey, RKey and Inode must be given.
type Key struct {
	Device string // RDMA device, "mlx5_0"
	PID    int    // the process, in the initial PID namespace
	LKey   uint32 // of the MR
	RKey   uint32
	Inode  uint64 // of the dma-buf
}

// Prover knows where registrations are, because it watched the kernel make
// them. Package trace has one.
type Prover interface {
	// Prove returns the placement of the newest live registration that the
	// key names, as of now: one that moved since is Stale. It waits until the
	// registration was seen or ctx ends, and then answers Unknown with the
	// reason, and no error. An error means that the prover itself failed.
	Prove(ctx context.Context, key Key) (Placement, error)
}

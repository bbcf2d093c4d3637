// SPDX-License-Identifier: Apache-2.0

package placement

import "context"

// Key names a registration by what the program that has made it knows. Fields
// that it does not know are zero; at least one of LKey, RKey and Inode must be
// set.
type Key struct {
	Device string // RDMA device, "mlx5_0"
	PID    int    // the process, in the initial PID namespace
	LKey   uint32 // of the MR
	RKey   uint32
	Inode  uint64 // of the dma-buf
}

// Prover knows where the bytes of registrations are, because it has watched the
// kernel make the registrations. trace.Tracer is one.
type Prover interface {
	// Prove returns the present placement of the newest registration that the
	// key names and that still exists; if its buffer has moved since, the
	// placement is Stale. Prove waits until the prover has seen the
	// registration. If ctx ends first, it returns Unknown with the reason, and
	// no error. An error means that the prover itself has failed.
	Prove(ctx context.Context, key Key) (Placement, error)
}

// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"context"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// wire is the part of RDMA that the checks use. The real one is rdma; tests put
// faulty ones in its place, to see that the checks find every fault.
type wire interface {
	// register makes a range of the buffer accessible to the peer. Its first
	// byte is addressed by iova.
	register(s span, iova uint64, access ibvfd.Access) (registered, error)
	// src and dst are the local ends of WRITE and READ: registered host memory.
	src() []byte
	dst() []byte
	// move transfers n bytes between the local end, from index at on, and the
	// buffer's offset off, addressed through r. It returns when the transfer
	// has completed, failed or ctx has ended, with the time the NIC took.
	move(ctx context.Context, o op, r registered, off int64, at, n int) (time.Duration, error)
	// settle makes sure that no transfer is under way any more.
	settle() error
}

// registered is a range that is registered.
type registered interface {
	describe(*Report)
	close() error
}

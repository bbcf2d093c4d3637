// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rails"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// Link is a connection over one NIC, or with a rail for each of several. done is the context of the
// completion of an operation. One goroutine at a time may use a Link.
type Link interface {
	// Receive makes the next message go into memory of this side.
	Receive(into rails.Local, done any) error
	// Begin begins a write, a read or a message. A message has no remote memory.
	Begin(kind operation.Kind, here rails.Local, there rails.Remote, flags operation.Flags, done any) error
	// Atomic begins a fetch-and-add of x, or a compare-and-swap of x for y.
	Atomic(kind operation.Kind, result rails.Local, there rails.Remote, x, y uint64, done any) error
	// Take waits for completions. Those of one NIC are of all its connections.
	Take(ctx context.Context, list []operation.Completion) (int, error)
	// Offer gives the peer access to memory, and Offered returns what the peer has offered.
	Offer(ctx context.Context, here rails.Local, access ibvfd.Access) error
	Offered(ctx context.Context) (rails.Remote, error)
	// Gone waits until the connection has ended.
	Gone(ctx context.Context) error
	// Now returns the state of each rail; of one NIC there is one.
	Now() ([]RailState, error)
	Close() error
}

// RailState is a rail, and what this side has done over it.
type RailState struct {
	rails.State
	Counts workqueue.KindCounts // of all kinds
}

// All returns all bytes of memory that NICs have registered.
func All(bufs []*memory.Buffer) rails.Local { return Part(bufs, 0, bufs[0].Size()) }

// Part returns some bytes of it.
func Part(bufs []*memory.Buffer, off, n int64) rails.Local {
	return rails.Local{Bufs: bufs, Off: off, Len: n}
}

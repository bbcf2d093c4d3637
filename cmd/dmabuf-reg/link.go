// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rails"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// link is a connection as a line uses it: over one NIC, or with a rail for each of several. One
// goroutine at a time may use it.
type link interface {
	// receive makes the next message go into memory of this side.
	receive(into rails.Local, done any) error
	// begin begins a write, a read or a message. A message has no remote memory.
	begin(kind operation.Kind, here rails.Local, there rails.Remote, flags operation.Flags, done any) error
	// atomic begins a fetch-and-add of x, or a compare-and-swap of x for y.
	atomic(kind operation.Kind, result rails.Local, there rails.Remote, x, y uint64, done any) error
	// take waits for completions. Those of one NIC are of all its connections.
	take(ctx context.Context, list []operation.Completion) (int, error)
	// offer gives the peer access to memory, and offered returns what the peer has offered.
	offer(ctx context.Context, here rails.Local, access ibvfd.Access) error
	offered(ctx context.Context) (rails.Remote, error)
	// gone waits until the connection has ended.
	gone(ctx context.Context) error
	// now returns the state of each rail; of one NIC there is one.
	now() ([]railState, error)
	close() error
}

// railState is a rail, and what this side has done over it.
type railState struct {
	rails.State
	counts workqueue.KindCounts // of all kinds
}

// all returns all bytes of memory that NICs have registered.
func all(bufs []*memory.Buffer) rails.Local { return part(bufs, 0, bufs[0].Size()) }

// part returns some bytes of it.
func part(bufs []*memory.Buffer, off, n int64) rails.Local {
	return rails.Local{Bufs: bufs, Off: off, Len: n}
}

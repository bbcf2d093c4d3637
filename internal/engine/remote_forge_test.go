// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/layout"
)

// forged returns the descriptor with other pieces.
func forged(rb *memory.RemoteBuffer, change func(p *lower.Piece)) *memory.RemoteBuffer {
	return memory.Forge(rb, rb.Access(), rb.Token(), change)
}

// withToken returns the descriptor with another token.
func withToken(rb *memory.RemoteBuffer, token uint64) *memory.RemoteBuffer {
	return memory.Forge(rb, rb.Access(), token, func(*lower.Piece) {})
}

// withAccess returns the descriptor with another access.
func withAccess(rb *memory.RemoteBuffer, access ibvfd.Access) *memory.RemoteBuffer {
	return memory.Forge(rb, access, rb.Token(), func(*lower.Piece) {})
}

// described returns the description of memory through a layout, under keys that have ended.
func described(t testing.TB, token uint64, l layout.Layout) *memory.RemoteBuffer {
	n := memory.NewNIC(newFabric().Device("fake0", fewSGEs), memory.NICOptions{})
	b := must(n.AllocHost(64))(t)
	rb := must(n.Grant(b.All(), allAccess, token))(t)
	for _, err := range []error{rb.Grant().Withdraw(), b.Close(), n.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return must(rb.View(l))(t)
}

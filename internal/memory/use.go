// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"github.com/gpurdma/gpurdma/internal/lower"
)

// The uses that keep a Buffer's memory: operations under way, and keys of peers.

// Use keeps the memory until core.unuse.
func (b *Buffer) Use() error {
	b.mu.Lock()
	open := b.refs > 0 && !b.retired && b.core.use()
	b.mu.Unlock()
	if !open {
		return b.isClosed()
	}
	return nil
}

// usable is use by an endpoint of that NIC.
func (b *Buffer) usable(nic *NIC) error {
	if b.core.nic != nic {
		return errNotHere
	}
	return b.Use()
}

// Unuse ends a use.
func (b *Buffer) Unuse() { b.core.unuse() }

// UnuseLater ends a use, for callers that hold a lock.
func (b *Buffer) UnuseLater() { b.core.unuseLater() }

// NIC returns the NIC that the memory is registered with.
func (b *Buffer) NIC() *NIC { return b.core.nic }

// HostBytes returns the memory of a Buffer of AllocHost.
func (b *Buffer) HostBytes() []byte { return b.core.hostMem.Bytes()[b.off : b.off+b.size] }

// Window returns n bytes from off on as memory of an operation.
func (b *Buffer) Window(off, n int64) lower.Window {
	return lower.Window{Layout: b.layout, Spaces: b.mem, Off: off, Len: n}
}

// Piece returns the first piece of the memory, under its local key.
func (b *Buffer) Piece() lower.Piece { return b.mem[0].Memory[0] }

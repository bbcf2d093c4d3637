// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/binary"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/wire"
	"github.com/gpurdma/gpurdma/layout"
)

// reforged decodes a descriptor that a peer has changed on its way: the access, the token, and
// the pieces of memory.
func reforged(rb *memory.RemoteBuffer, access ibvfd.Access, token uint64, change func(p *lower.Piece)) *memory.RemoteBuffer {
	data, err := rb.MarshalBinary()
	if err != nil {
		panic(err)
	}
	in := wire.NewReader("forged", data)
	b := binary.BigEndian.AppendUint64([]byte{in.Byte()}, in.Uint64())
	b = binary.BigEndian.AppendUint64(b, token)
	in.Uint64()
	in.Uvarint()
	b = binary.AppendUvarint(b, uint64(access))
	sources := in.Uvarint()
	b = binary.AppendUvarint(b, sources)
	for range sources {
		pieces := in.Uvarint()
		b = binary.AppendUvarint(b, pieces)
		for range pieces {
			p := lower.Piece{Addr: in.Uvarint(), Length: in.Int64(), Key: in.Uint32()}
			change(&p)
			b = binary.AppendUvarint(b, p.Addr)
			b = binary.AppendUvarint(b, uint64(p.Length))
			b = binary.BigEndian.AppendUint32(b, p.Key)
		}
	}
	out := new(memory.RemoteBuffer)
	if err := out.UnmarshalBinary(append(b, in.Rest()...)); err != nil {
		panic(err)
	}
	return out
}

// forged is reforged with other pieces.
func forged(rb *memory.RemoteBuffer, change func(p *lower.Piece)) *memory.RemoteBuffer {
	return reforged(rb, rb.Access(), rb.Token(), change)
}

// withToken is reforged with another token.
func withToken(rb *memory.RemoteBuffer, token uint64) *memory.RemoteBuffer {
	return reforged(rb, rb.Access(), token, func(*lower.Piece) {})
}

// withAccess is reforged with another access.
func withAccess(rb *memory.RemoteBuffer, access ibvfd.Access) *memory.RemoteBuffer {
	return reforged(rb, access, rb.Token(), func(*lower.Piece) {})
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

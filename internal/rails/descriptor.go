// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/wire"
)

// several is the first byte of descriptors for several rails; one for a single rail has its version.
const several = 0x80

// Encode encodes a descriptor for all its rails.
func Encode(first *memory.RemoteBuffer, o *Others) ([]byte, error) {
	one, err := first.MarshalBinary()
	if err != nil || o == nil {
		return one, err
	}
	b := binary.AppendUvarint([]byte{several, byte(len(o.by))}, uint64(len(one)))
	b = append(b, one...)
	for i := 1; i < len(o.by); i++ {
		var more []byte
		if rb := o.On(i); rb != nil {
			if more, err = rb.MarshalBinary(); err != nil {
				return nil, err
			}
		}
		b = append(binary.AppendUvarint(b, uint64(len(more))), more...)
	}
	return b, nil
}

// Decode decodes what Encode has encoded, and checks all of it.
func Decode(data []byte) (*memory.RemoteBuffer, *Others, error) {
	first := new(memory.RemoteBuffer)
	if len(data) == 0 || data[0] != several {
		return first, nil, first.UnmarshalBinary(data)
	}
	in := wire.NewReader("remote memory over several rails", data[1:])
	n := int(in.Byte())
	o := &Others{given: make([]*memory.RemoteBuffer, n), by: make([]atomic.Pointer[memory.RemoteBuffer], n)}
	for i := range n {
		body := in.Take(in.Count(1))
		if in.Err != nil {
			return nil, nil, in.Err
		}
		if len(body) == 0 && i > 0 {
			continue
		}
		rb := first
		if i > 0 {
			rb = new(memory.RemoteBuffer)
			o.given[i] = rb
		}
		if err := rb.UnmarshalBinary(body); err != nil {
			return nil, nil, err
		}
		if i > 0 && rb.Size() != first.Size() {
			return nil, nil, in.Fail("%d bytes over rail %d, and %d over the first", rb.Size(), i, first.Size())
		}
	}
	if n == 0 {
		return nil, nil, in.Fail("no rails")
	}
	return first, o, in.End()
}

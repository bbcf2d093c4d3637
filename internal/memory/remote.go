// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/wire"
	"github.com/gpurdma/gpurdma/layout"
)

// RemoteBuffer describes memory of a peer: NIC.Grant made it there, and the peer sent it.
// It never changes.
type RemoteBuffer struct {
	id     uint64
	token  uint64 // of the connection, or endpoint, whose keys these are
	access ibvfd.Access
	spaces []lower.Space
	memory []uint64 // names the memory of each of spaces: slices of one memory have one name
	layout layout.Layout
	name   string // that the peer has exported it under; may be empty
	viewed bool   // View has made it
	grant  *Grant // nil unless Grant made it here, or View made it of such a RemoteBuffer

	keyless bool         // the peer's NIC does not reach the memory
	apart   bool         // the keys for atomics, if the peer allows them, are not these
	moved   bool         // the peer has seen that its NIC reaches another memory than the device's
	gone    *atomic.Bool // the peer has withdrawn it; nil for memory of this side
}

// remoteAccess is all access that a peer can be given.
const remoteAccess = ibvfd.AccessRemoteRead | ibvfd.AccessRemoteWrite | ibvfd.AccessRemoteAtomic

// ID returns the ID of the peer's Buffer; of a View, the first Buffer's.
func (r *RemoteBuffer) ID() uint64 { return r.id }

// Named returns the same memory under the name that it is exported with.
func (r *RemoteBuffer) Named(name string) *RemoteBuffer {
	n := *r
	n.name = name
	return &n
}

// String names the memory for messages.
func (r *RemoteBuffer) String() string {
	if r.name != "" {
		return fmt.Sprintf("the peer's memory %q", r.name)
	}
	return fmt.Sprintf("the peer's buffer %x", r.id)
}

// WithID returns the same memory under another ID.
func (r *RemoteBuffer) WithID(id uint64) *RemoteBuffer {
	n := *r
	n.id = id
	return &n
}

// Size returns the number of bytes of the layout.
func (r *RemoteBuffer) Size() int64 { return r.layout.Size() }

// Access returns the access that the peer allows.
func (r *RemoteBuffer) Access() ibvfd.Access { return r.access }

// Keyless reports whether the peer's NIC does not reach the memory: another one does, whose descriptor
// has keys.
func (r *RemoteBuffer) Keyless() bool { return r.keyless }

// Apart returns the memory with an access whose atomics use other keys.
func (r *RemoteBuffer) Apart(access ibvfd.Access) *RemoteBuffer {
	n := *r
	n.access, n.apart = access, access&ibvfd.AccessRemoteAtomic != 0
	return &n
}

// HasAtomics reports whether the keys are for atomics.
func (r *RemoteBuffer) HasAtomics() bool {
	return r.access&ibvfd.AccessRemoteAtomic != 0 && !r.apart && !r.keyless
}

// Moved reports whether the peer has seen, before it exported the memory, that its NIC reaches another
// memory than the device's.
func (r *RemoteBuffer) Moved() bool { return r.moved }

// Withdraw says that the peer has withdrawn the memory.
func (r *RemoteBuffer) Withdraw() {
	if r.gone != nil {
		r.gone.Store(true)
	}
}

// Withdrawn reports whether the peer has withdrawn the memory, as far as this side knows.
func (r *RemoteBuffer) Withdrawn() bool { return r.gone != nil && r.gone.Load() }

// Layout returns the layout of the memory.
func (r *RemoteBuffer) Layout() layout.Layout { return r.layout }

// Token returns the number of the connection, or the endpoint, with which the keys end.
func (r *RemoteBuffer) Token() uint64 { return r.token }

// Grant returns the keys, if they are for memory of this side; nil otherwise.
func (r *RemoteBuffer) Grant() *Grant { return r.grant }

// View returns the same memory through another layout, whose sources are those of the memory.
// It returns [failure.ErrRange] if the layout has bytes outside the memory.
func (r *RemoteBuffer) View(l layout.Layout) (*RemoteBuffer, error) {
	v := *r
	v.layout, v.viewed = l, true
	if err := v.check("make a view of " + r.String()); err != nil {
		return nil, err
	}
	return &v, nil
}

// Weight returns about how many bytes of memory a descriptor takes.
func (r *RemoteBuffer) Weight() int {
	n := 256
	for _, s := range r.spaces {
		n += 64 + 32*len(s.Memory)
	}
	return n + r.layout.Weight()
}

func (r *RemoteBuffer) check(op string) error {
	return r.layout.Check(op, func(i int) (int64, bool) {
		if i >= len(r.spaces) {
			return 0, false
		}
		return r.spaces[i].Memory.Size(), true
	})
}

// A descriptor on the wire is: version, id, token, flags, access as uvarint, the number of sources, for
// each source its memory's name, the number of pieces and their addresses, lengths and keys, then the
// layout. Version 1 had no names of memory, version 2 none without keys.
const remoteVersion = 3

// Flags of a descriptor.
const (
	flagKeyless = 1 << iota
	flagMoved
	flagApart
)

// MaxRemoteWire is the longest descriptor that UnmarshalBinary takes, in bytes.
const MaxRemoteWire = layout.MaxWire + 256<<10

// MarshalBinary encodes the descriptor for the peer.
func (r *RemoteBuffer) MarshalBinary() ([]byte, error) {
	b := []byte{remoteVersion}
	b = binary.BigEndian.AppendUint64(b, r.id)
	b = binary.BigEndian.AppendUint64(b, r.token)
	flags := byte(0)
	if r.keyless {
		flags |= flagKeyless
	}
	if r.moved {
		flags |= flagMoved
	}
	if r.apart {
		flags |= flagApart
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(r.access))
	b = binary.AppendUvarint(b, uint64(len(r.spaces)))
	for i, s := range r.spaces {
		b = binary.BigEndian.AppendUint64(b, r.memory[i])
		b = binary.AppendUvarint(b, uint64(len(s.Memory)))
		for _, p := range s.Memory {
			b = binary.AppendUvarint(b, p.Addr)
			b = binary.AppendUvarint(b, uint64(p.Length))
			b = binary.BigEndian.AppendUint32(b, p.Key)
		}
	}
	b, err := r.layout.AppendBinary(b)
	if err != nil {
		return nil, err
	}
	if len(b) > MaxRemoteWire {
		return nil, &failure.Error{Op: "encode remote memory", Detail: fmt.Sprintf("%d bytes, of at most %d", len(b), MaxRemoteWire), Err: failure.ErrLimit}
	}
	return b, nil
}

// UnmarshalBinary decodes a peer's descriptor, and checks all of it.
func (r *RemoteBuffer) UnmarshalBinary(data []byte) error {
	in := wire.NewReader("remote buffer", data)
	if len(data) > MaxRemoteWire {
		return in.Fail("%d bytes, of at most %d", len(data), MaxRemoteWire)
	}
	if v := in.Byte(); in.Err == nil && v != remoteVersion {
		return in.Fail("version %d; this is version %d", v, remoteVersion)
	}
	out := RemoteBuffer{id: in.Uint64(), token: in.Uint64()}
	flags := in.Byte()
	if flags&^(flagKeyless|flagMoved|flagApart) != 0 {
		return in.Fail("flags %#x", flags)
	}
	out.keyless, out.moved, out.gone = flags&flagKeyless != 0, flags&flagMoved != 0, new(atomic.Bool)
	out.apart = flags&flagApart != 0
	access := in.Uvarint()
	if access&^uint64(remoteAccess) != 0 {
		return in.Fail("access %#x", access)
	}
	out.access = ibvfd.Access(access)
	out.spaces = make([]lower.Space, in.Count(15))
	out.memory = make([]uint64, len(out.spaces))
	for i := range out.spaces {
		out.memory[i] = in.Uint64()
		out.spaces[i] = lower.NewSpace(readMemory(&in))
	}
	if in.Err != nil {
		return in.Err
	}
	if err := out.layout.UnmarshalBinary(in.Rest()); err != nil {
		return err
	}
	if err := out.check("decode the peer's memory"); err != nil {
		return err
	}
	*r = out
	return nil
}

// readMemory reads the pieces of one source.
func readMemory(r *wire.Reader) lower.Memory {
	m := make(lower.Memory, r.Count(6))
	total := int64(0)
	for i := range m {
		p := &m[i]
		p.Addr, p.Length, p.Key = r.Uvarint(), r.Int64(), r.Uint32()
		switch {
		case r.Err != nil:
			return nil
		case p.Length == 0 || p.Length > math.MaxInt64-total || uint64(p.Length) > math.MaxUint64-p.Addr:
			r.Fail("%d bytes at address %#x", p.Length, p.Addr)
			return nil
		}
		total += p.Length
	}
	if len(m) == 0 {
		r.Fail("a source without memory")
	}
	return m
}

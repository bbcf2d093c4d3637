// SPDX-License-Identifier: Apache-2.0

package fi

import (
	"errors"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// Key describes memory for a peer (fi_mr_key): its address, size, key and access rights. The side
// that has the memory makes it by [Endpoint.Key], and sends it by [Endpoint.Offer], or by its own
// means, encoded by MarshalBinary. It does not change.
type Key struct {
	rb *memory.RemoteBuffer
	ep *Endpoint // the endpoint that has made it; nil if the key was decoded
}

// Key makes a key to local memory for a peer; with AddrUnspec, for all peers of the endpoint.
// access is RemoteRead, RemoteWrite or both. With both the peer may also use atomics, if the NIC
// has atomics.
//
// Each call registers the bytes anew. The key ends by its Close or with the connection, and a key
// for all peers with the endpoint. From then on the NIC refuses it. All keys of a Domain are in
// one protection domain: a peer that must not reach the memory for other peers needs a Domain of
// its own.
func (e *Endpoint) Key(mem IOV, to Addr, access Flags) (*Key, error) {
	a, err := access.access()
	if err != nil {
		return nil, err
	}
	peer, span := operation.Peer(to), mem.engine()
	var rb *memory.RemoteBuffer
	if access == RemoteRead|RemoteWrite {
		rb, err = e.ep.Share(peer, span, a|ibvfd.AccessRemoteAtomic)
	}
	if rb == nil && (err == nil || errors.Is(err, EOPNOTSUPP)) { // the NIC has no atomics
		rb, err = e.ep.Share(peer, span, a)
	}
	if err != nil {
		return nil, coded(err)
	}
	return &Key{rb, e}, nil
}

// Size returns the number of bytes.
func (k *Key) Size() int64 {
	if k.rb == nil {
		return 0
	}
	return k.rb.Size()
}

// Access returns the access rights: RemoteRead, RemoteWrite, and Atomic if atomics are allowed.
func (k *Key) Access() (f Flags) {
	if k.rb == nil {
		return 0
	}
	a := k.rb.Access()
	if a&ibvfd.AccessRemoteRead != 0 {
		f |= RemoteRead
	}
	if a&ibvfd.AccessRemoteWrite != 0 {
		f |= RemoteWrite
	}
	if a&ibvfd.AccessRemoteAtomic != 0 {
		f |= Atomic
	}
	return f
}

// All returns all bytes, as remote memory of an operation.
func (k *Key) All() RMAIOV { return RMAIOV{Key: k, Length: k.Size()} }

// Part returns length bytes from offset on, as remote memory of an operation.
func (k *Key) Part(offset, length int64) RMAIOV { return RMAIOV{k, offset, length} }

// MarshalBinary encodes the key, for a program that sends it to the peer by its own means.
func (k *Key) MarshalBinary() ([]byte, error) {
	if k.rb == nil {
		return nil, errorOf("encode a key", "it is the zero Key", "", EINVAL)
	}
	b, err := k.rb.MarshalBinary()
	return b, coded(err)
}

// UnmarshalBinary decodes a key of a peer. It trusts none of the bytes, and returns [EINVAL] if
// they are no key.
func (k *Key) UnmarshalBinary(data []byte) error {
	rb := new(memory.RemoteBuffer)
	if err := rb.UnmarshalBinary(data); err != nil {
		return coded(err)
	}
	*k = Key{rb: rb}
	return nil
}

// Close withdraws a key that Endpoint.Key has made. The peer's next access fails, and ends the
// connection. A second Close does nothing. A key of a peer cannot be withdrawn here: Close
// returns [EINVAL].
func (k *Key) Close() error {
	if k.ep == nil {
		return errorOf("withdraw a key", "it is a peer's", "the peer withdraws it", EINVAL)
	}
	return coded(k.ep.ep.Unshare(k.rb))
}

// RMAIOV is remote memory of an operation: Length bytes of a Key from Offset on (struct
// fi_rma_iov). Offset 0 is the first byte for which the key was made. The zero RMAIOV has no
// bytes.
type RMAIOV struct {
	Key            *Key
	Offset, Length int64
}

func (v RMAIOV) engine() memory.RemoteSpan {
	s := memory.RemoteSpan{Offset: v.Offset, Length: v.Length}
	if v.Key != nil {
		s.Buf = v.Key.rb
	}
	return s
}

// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/wire"
)

// MaxName is the longest name of an export, in bytes.
const MaxName = 254

// MaxOffer is the longest offer: the length of the name, the name, and the descriptor, or
// nothing if the name is not offered any more.
const MaxOffer = 1 + len(atomics) + MaxName + memory.MaxRemoteWire

// atomics begins the name under which the keys for atomics on memory are offered.
const atomics = "\x00"

// ForAtomics returns the name under which the keys for atomics are offered, for memory that is exported
// under a name.
func ForAtomics(name string) string { return atomics + name }

// IsForAtomics reports whether ForAtomics has returned a name.
func IsForAtomics(name string) bool { return strings.HasPrefix(name, atomics) }

func appendName(b []byte, name string) []byte { return append(append(b, byte(len(name))), name...) }

// CheckName refuses names that cannot be offered.
func CheckName(op, name string) error {
	switch {
	case IsForAtomics(name):
		return &failure.Error{Op: op, Detail: fmt.Sprintf("the name %q", name), Remedy: "use one that does not begin with a zero byte", Err: failure.ErrRange}
	case name != "" && len(name) <= MaxName:
		return nil
	}
	return &failure.Error{Op: op, Detail: fmt.Sprintf("a name of %d bytes", len(name)), Remedy: fmt.Sprintf("use 1 to %d", MaxName), Err: failure.ErrRange}
}

// EncodeOffer returns the body of an offer of memory, under a name if that is not empty.
func EncodeOffer(name string, rb *memory.RemoteBuffer) ([]byte, error) {
	wire, err := rb.MarshalBinary()
	if err != nil {
		return nil, err
	}
	return append(appendName(nil, name), wire...), nil
}

// EncodeWithdrawal returns the body of the offer that withdraws a name.
func EncodeWithdrawal(name string) []byte { return appendName(nil, name) }

// DecodeOffer decodes an offer of a peer. The memory is nil if a name is withdrawn.
func DecodeOffer(body []byte) (name string, rb *memory.RemoteBuffer, err error) {
	in := wire.NewReader("offer", body)
	name = string(in.Take(int(in.Byte())))
	if in.Err != nil {
		return "", nil, in.Err
	}
	if rest := in.Rest(); len(rest) > 0 || name == "" {
		rb = new(memory.RemoteBuffer)
		if err := rb.UnmarshalBinary(rest); err != nil {
			return "", nil, err
		}
	}
	return name, rb, nil
}

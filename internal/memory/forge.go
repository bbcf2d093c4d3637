// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"slices"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
)

// Forge returns a descriptor that a hostile program has changed in its own memory: the access,
// the token, and the pieces. It checks nothing: tests show that the peer's NIC does.
func Forge(r *RemoteBuffer, access ibvfd.Access, token uint64, change func(p *lower.Piece)) *RemoteBuffer {
	f := *r
	f.access, f.token, f.spaces = access, token, nil
	for _, s := range r.spaces {
		m := slices.Clone(s.Memory)
		for i := range m {
			change(&m[i])
		}
		f.spaces = append(f.spaces, lower.NewSpace(m))
	}
	return &f
}

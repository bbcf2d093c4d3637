// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/layout"
)

// Side is one end of a transfer: the bytes of Layout's run from Offset on. Memory is
// the memory of the layout's sources, by their numbers.
type Side struct {
	Layout layout.Layout
	Memory []Memory
	Offset int64
}

// Lower begins a transfer of length bytes by op. The sides must have them.
func Lower(op ibvfd.Opcode, local, remote Side, length int64, lim Limits) *Lowering {
	x := new(Lowering)
	Start(x, op, []Window{local.window(length)}, []Window{remote.window(length)}, length, lim)
	return x
}

// window is length bytes of a side.
func (s *Side) window(length int64) Window {
	mem := make([]Space, len(s.Memory))
	for i, m := range s.Memory {
		mem[i] = NewSpace(m)
	}
	return Window{Layout: s.Layout, Spaces: mem, Off: s.Offset, Len: length}
}

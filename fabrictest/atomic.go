// SPDX-License-Identifier: Apache-2.0

package fabrictest

import (
	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memnic"
)

// AtomicOp is a fetch-and-add or a compare-and-swap that has read its 8 bytes and has not
// written them.
type AtomicOp struct {
	Kind gpurdma.OpKind
	At   *NIC   // the NIC that carries it out, on the machine that has the memory
	Old  uint64 // the value that the NIC has read
}

// OnAtomic sets a function that runs between the read and the write of each atomic. A NIC's
// atomics are atomic only with one another: the function, or a goroutine that it waits for,
// may change the memory by CPU, or through another NIC, and the atomic then overwrites the
// change. The function must not wait for an atomic of the same NIC, nor for the end of the
// connection. nil removes it.
func (n *Network) OnAtomic(between func(AtomicOp)) {
	if between == nil {
		n.net.OnAtomic(nil)
		return
	}
	n.net.OnAtomic(func(a memnic.Atomic) {
		kind := gpurdma.OpCompareSwap
		if a.Op == ibvfd.OpFetchAdd {
			kind = gpurdma.OpFetchAdd
		}
		n.mu.Lock()
		at := n.nics[a.Device.Number()]
		n.mu.Unlock()
		between(AtomicOp{Kind: kind, At: at, Old: a.Old})
	})
}

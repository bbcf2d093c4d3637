// SPDX-License-Identifier: Apache-2.0

package fabrictest

import (
	"time"

	"github.com/gpurdma/gpurdma/internal/memnic"
)

// Placement is a write, or a part of a write, that a NIC has acknowledged, and whose bytes are on
// their way to the memory.
type Placement struct {
	ID   uint64 // its number in the Network
	From *NIC   // the NIC that has sent it
	To   *NIC   // the NIC that has received it
	Size int    // in bytes
	// Relaxed reports whether it may overtake other writes: true unless the memory has
	// StrictOrdering.
	Relaxed bool
}

// If OnPlace's function returns Held, the bytes arrive when they are pushed.
const Held = memnic.Held

// OnPlace sets a function that says when the bytes of a write reach the memory. It returns 0 for at
// once, Held for when they are pushed, or a time after which they arrive unless they are pushed
// before. The write may complete before its bytes arrive. Bytes are pushed
//
//   - by a message, a notification, an atomic or a write with Delivered that follows on the same
//     connection, but not by a read: package gpurdma orders reads with nothing;
//   - by a later write to memory with StrictOrdering of the same GPU, when its own bytes reach
//     the memory;
//   - by Place and PlaceAll;
//   - when the connection ends, if the memory is the host's, or when the memory is not exported any
//     more.
//
// The function must return soon, and must not call the Network. nil removes it. Writes whose bytes
// wait then still wait.
func (n *Network) OnPlace(when func(Placement) time.Duration) {
	if when == nil {
		n.net.OnPlace(nil)
		return
	}
	n.net.OnPlace(func(p memnic.Placement) time.Duration { return when(n.placement(p)) })
}

// OnCorrupt sets a function for programs that use gpurdma.Config.Verify. When the bytes of a write
// reach the memory, the function returns the number of the bit that is to be wrong, counted from 0,
// or -1 for none. A write of many bytes may have several Placements, each with a call. The function
// must return soon, and must not call the Network. nil removes it.
func (n *Network) OnCorrupt(bit func(Placement) int64) {
	if bit == nil {
		n.net.OnCorrupt(nil)
		return
	}
	n.net.OnCorrupt(func(p memnic.Placement) int64 { return bit(n.placement(p)) })
}

func (n *Network) placement(p memnic.Placement) Placement {
	n.mu.Lock()
	defer n.mu.Unlock()
	return Placement{ID: p.ID, From: n.nics[p.FromNumber], To: n.nics[p.ToNumber], Size: p.Size, Relaxed: p.Relaxed}
}

// Waiting returns the writes whose bytes have not all reached the memory, in order of arrival
// at each NIC.
func (n *Network) Waiting() (list []Placement) {
	for _, p := range n.net.Waiting() {
		list = append(list, n.placement(p))
	}
	return list
}

// Place brings size bytes of a waiting write to the memory, from off on. Calls may take the parts
// in any order. If the write may not overtake others, Place also brings the bytes before that part,
// and earlier writes. It returns false if no write with this ID waits, or if the write has no such
// part.
func (n *Network) Place(id uint64, off, size int) bool { return n.net.Place(id, off, size) }

// PlaceAll brings all bytes of all waiting writes to the memory.
func (n *Network) PlaceAll() { n.net.PlaceAll() }

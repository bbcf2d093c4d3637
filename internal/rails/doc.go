// SPDX-License-Identifier: Apache-2.0

// Package rails makes one connection of several: a rail for each NIC. On each rail package engine has
// a connection of its own. A Set holds the NICs of a program. The side that calls makes the first rail,
// and then the others in the background: rail n joins the NICs that come n places after those of the
// first rail, on both sides. A side exports memory over every rail whose NIC reaches
// it, with keys for that NIC.
//
// With one rail an operation goes straight to the queue of its connection. With several, a
// scheduler keeps the operations in order. It cuts a large operation into slices, and gives each
// slice to the rail that is expected to carry it first. A small operation goes over one rail. A rail
// that was too slow for any slice gets one now and then, so that its rate does not stay an old one. Some
// operations must not overtake earlier ones: those that overlap an earlier one, messages,
// notifications, atomics and fences. They wait until the bytes of the earlier ones are in the
// memory, unless all of these went over the same rail, which keeps the order by itself.
//
// A completion does not prove that the bytes are in the memory. Before such an operation goes over
// another rail than the ones before it, the scheduler reads one byte back over the earlier rail:
// the answer follows the bytes into the memory. Writes to memory that cannot be read back are not
// cut, and the operations that must follow them go over the same rail.
//
// Atomics go over the NIC that package homes chooses on the side that has the memory. That side
// offers keys for atomics apart from those for other operations. Messages go over one rail, the
// home. While they wait there for the peer's program, reads and writes go over the other rails, unless
// they follow a write that went over the home. When the home loses its link, another rail takes its
// place.
//
// Change it to choose rails, cut operations or order them in another way.
package rails

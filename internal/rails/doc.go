// SPDX-License-Identifier: Apache-2.0

// Package rails makes one connection of several: a rail for each NIC, over which package engine
// has a connection of its own. A Set is the NICs of a program. The side that calls makes the first
// rail, and then the others in the background, each from the NIC whose number is the rail's to the
// peer's NIC of that number. Memory is exported over every rail whose NIC reaches it, with keys for that
// NIC.
//
// With one rail a work goes straight to the queue of its connection. With several, a scheduler
// keeps the operations in order: a large one is cut into slices, which go to the rail that is
// expected to carry them first; a small one goes over one rail. An operation that overlaps an
// earlier one, a message, a notification, an atomic and a fence wait until the bytes of the
// earlier ones are in the memory, unless these went over the same rail, which keeps the order by
// itself. Atomics go over the NIC that package homes chooses on the side that has the memory; the keys for
// them are offered apart from those for other operations. A completion does not say that the bytes are in the memory: before an operation goes to
// another rail than the ones before it, a byte is read back over the earlier rail, which pushes
// them there. Writes that cannot be read back are not cut, and operations that must follow them go over
// their rail. Messages go over one rail, the home; when it loses its link, another rail takes its place.
//
// Change it to choose rails, cut operations or order them in another way.
package rails

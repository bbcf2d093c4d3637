// SPDX-License-Identifier: Apache-2.0

// Package handshake bounds the callers of a listener from their first byte until they are
// connected: how many there are, how long each phase of a handshake may take, and which caller
// loses its place when there is none for the next one.
//
// A caller has a place among those of [Pending] and is in a [Phase]. When all places are
// taken, the next caller
//
//   - replaces a caller that has kept the listener waiting for longer than the patience with its
//     address, if that caller is of the same address, or of an address with more places, or of
//     one whose last callers did not connect. Of several such callers the listener replaces the
//     first in this order: one of an address whose callers did not connect; one that has sent
//     nothing and is not the only one of its address; one of the address with most places; one
//     in the earliest phase; the one that has been longest in its phase;
//   - or is refused, if no caller can be replaced, and the last callers of its address did not
//     connect either;
//   - or waits until a place is free. The listener accepts no other caller meanwhile: they wait
//     in the kernel's queue, which loses none of them.
//
// An address is a /32 of IPv4 or a /64 of IPv6. The patience with an address is the time that the
// listener waits for a caller of it while other callers need the place. It is a second at first.
// Each caller that does not connect halves the patience, and callers that connect restore it. So
// the listener waits for callers that make progress, however many an address has, and an address
// that only opens connections soon delays no others. Only the time counts during which the
// listener waits for the caller: not its own work, nor the time during which a busy machine does
// not run the process. While the kernel's queue is half full the patience is less, and callers
// that have sent nothing get none. Callers that have sent something get four times the patience
// while others of their address connect.
//
// TLS computations are not limited in number: the places bound them, and all of them together
// take a fraction of a second of one processor. A lower limit would need a release at each read,
// because a distant caller must not hold a processor while its packets travel.
//
// pending.go has the places, phase.go the phases, and queue.go the kernel's queue. Change source.go to count
// addresses by another prefix.
package handshake

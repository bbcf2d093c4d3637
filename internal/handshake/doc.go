// SPDX-License-Identifier: Apache-2.0

// Package handshake bounds the callers of a listener from their first byte until they are
// connected: how many there are, how long each phase of a handshake may take, and who loses
// a place when there is none for the next caller.
//
// A caller has a place among those of [Pending] and is in a [Phase]. When all places are
// taken, the next caller
//
//   - replaces a caller that the listener has waited for beyond the patience with its address,
//     and that is of the same address, or of one with more places, or of one whose last
//     callers did not connect. Of several, a caller goes first whose address had callers that
//     did not connect; then one who has sent nothing and is not the only one of its address;
//     then one of the address with most places; then one who is least far; then one who is
//     longest in its phase;
//   - or is refused, where nobody can be replaced and the last callers of its address did not
//     connect either;
//   - or waits until a place is free. Meanwhile nobody else is accepted: further callers wait
//     in the kernel's queue, which loses none of them.
//
// An address is a /32 of IPv4 or a /64 of IPv6. How long a caller of it is waited for while
// others need the place, its patience, is a second at first. It is halved by each caller that
// does not connect, and comes back as callers connect. So callers of an address that make
// progress are waited for, however many they are, and those of an address that only opens
// connections soon keep nobody waiting. Only time during which the listener waits for the
// caller counts, and none in which it computes, or does not get to run because the machine is
// busy. While the kernel's queue is half full there is less patience, and with those who have
// sent nothing none. Those who have sent something are waited for four times as long while
// others of their address connect.
//
// There is no limit on how many callers may be in TLS's arithmetic at once: the places bound
// them, and all of them together take a fraction of a second of one processor. A lower limit
// would have to give its turn up at each read, for a caller far away must not hold a processor
// while its packets travel.
package handshake

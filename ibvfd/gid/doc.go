// SPDX-License-Identifier: Apache-2.0

// Package gid chooses a GID: the address, of those that a port of a NIC has, by which
// a connection goes. A [Wish] says what the choice must fit, such as the peer's address,
// the RoCE version or the VLAN; the answer comes with its reason.
package gid

// To choose by another property of a GID, change gid.go.

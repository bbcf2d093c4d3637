// SPDX-License-Identifier: Apache-2.0

// Package memstream is connections of bytes in the memory of one process, with the behaviour of TCP:
// listeners, deadlines, half-closed connections, resets, and hosts that fall silent. Change it to
// make such connections fail in another way.
package memstream

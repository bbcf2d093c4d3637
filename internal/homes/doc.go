// SPDX-License-Identifier: Apache-2.0

// Package homes decides over which NIC the peers' atomics on each memory go. The atomics of one NIC
// are atomic only with one another, so all peers use one NIC for a memory: its home. When fewer peers
// have a link to the home than to another NIC, the home moves: the atomics of all peers end and their
// keys are withdrawn, and then all peers get keys for the other NIC. Change this package to choose or
// move homes in another way. Package rails has the keys and the peers.
package homes

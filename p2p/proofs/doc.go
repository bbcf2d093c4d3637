// SPDX-License-Identifier: Apache-2.0

// Package proofs keeps live proofs in a file, so that later runs of the same boot can use them.
//
// A record holds for one pair, one boot, the drivers and the firmware that were loaded, one kind and
// size class of memory, and no other importer. [Store.Recall] uses a record only while all of this
// is as it was, and while no link's evidence has changed; otherwise it says what has changed. A line
// of the kernel's log that is newer than the proof wins over it.
//
// To let a record depend on one more fact of the machine, change circumstances.go.
package proofs

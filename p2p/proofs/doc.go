// SPDX-License-Identifier: Apache-2.0

// Package proofs keeps live proofs in a file, so that later runs of the same boot can use them.
//
// A record is valid for one pair, one boot, the drivers and the firmware that were loaded, one kind
// and size class of memory, and no other importer. [Store.Recall] uses a record only if none of
// these, and no link's evidence, has changed since; otherwise it says what has changed. A line of
// the kernel's log that is newer than the proof overrules it.
//
// To let a record depend on one more fact of the machine, change circumstances.go.
package proofs

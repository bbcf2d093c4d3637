// SPDX-License-Identifier: Apache-2.0

// Package fd gives a file descriptor one owner.
//
// A raw integer can be closed twice, used after close, or leaked by an early
// return; each of these bites somewhere else, because the kernel hands the
// number out again. An FD closes once, answers os.ErrClosed afterwards, cannot
// be closed under a running operation, and reports its creation stack when a
// test leaks it.
//
// track.go has the report of leaks. Change it to give descriptors another rule of ownership.
package fd

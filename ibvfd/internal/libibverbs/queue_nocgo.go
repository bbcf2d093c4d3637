// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package libibverbs

import "golang.org/x/sys/unix"

// Queues live in C memory. Without cgo no device opens through the library, so none is
// made.
type (
	// SendQueue is empty.
	SendQueue struct {
		WR                 []SendWR
		SGE                []SGE
		SGEs               int
		AtomicWrite, Flush bool
	}
	// RecvQueue is empty.
	RecvQueue struct {
		WR   []RecvWR
		SGE  []SGE
		SGEs int
	}
	// CompletionQueue is empty.
	CompletionQueue struct{ WC []WC }
)

// Post posts nothing.
func (*SendQueue) Post(int) (int, unix.Errno) { return 0, unix.ENOSYS }

// Post posts nothing.
func (*RecvQueue) Post(int) (int, unix.Errno) { return 0, unix.ENOSYS }

// Poll fails.
func (*CompletionQueue) Poll(int) int { return -1 }

// Free does nothing.
func (*SendQueue) Free() {}

// Free does nothing.
func (*RecvQueue) Free() {}

// Free does nothing.
func (*CompletionQueue) Free() {}

// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package ibvfd

import "golang.org/x/sys/unix"

// Queues live in C memory. Without cgo no context opens, so none is made.
type (
	sendQueue struct {
		ud      *parent
		foreign *foreignKeys
		every   int
	}
	recvQueue       struct{}
	completionQueue struct{}
)

func (*sendQueue) post([]SendWR) (int, postRefusal, unix.Errno) {
	return 0, postProvider, unix.ENOSYS
}

func (*recvQueue) post([]RecvWR) (int, postRefusal, unix.Errno) {
	return 0, postProvider, unix.ENOSYS
}

func (*completionQueue) poll([]WC) int { return -1 }

func (*sendQueue) free()       {}
func (*recvQueue) free()       {}
func (*completionQueue) free() {}

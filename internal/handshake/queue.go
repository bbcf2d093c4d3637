// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// queueOf returns a function that reports whether the kernel's queue of callers that wait for
// Accept is half full. When it is full the kernel drops packets of callers, which try again after
// one, three and seven seconds. A listener of another kind than TCP has no such queue.
func queueOf(l net.Listener) func() bool {
	unknown := func() bool { return false }
	c, ok := l.(syscall.Conn)
	if !ok {
		return unknown
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return unknown
	}
	return func() (halfFull bool) {
		_ = raw.Control(func(fd uintptr) {
			// These fields describe the queue of a socket that listens.
			if i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				halfFull = i.Sacked > 0 && i.Unacked >= i.Sacked/2
			}
		})
		return halfFull
	}
}

// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// queueOf returns what reports whether the kernel's queue of callers that wait for Accept is
// half full. When it is full the kernel drops what callers send, and they try again after one,
// three and seven seconds. Of a listener that is not TCP's nothing is known.
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
			// Of a socket that listens the kernel gives its queue in these fields.
			if i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				halfFull = i.Sacked > 0 && i.Unacked >= i.Sacked/2
			}
		})
		return halfFull
	}
}

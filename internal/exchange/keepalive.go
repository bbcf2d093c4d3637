// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// KeepAlive has the times after which a stream detects that the peer's machine does not answer.
type KeepAlive struct {
	Silence     time.Duration // of a stream in memory
	Idle, Every time.Duration // until a silent stream is probed, and between probes
	Count       int           // probes without an answer
}

// Apply makes a stream detect it.
func (k KeepAlive) Apply(c net.Conn) {
	if s, ok := c.(interface{ SetSilence(time.Duration) }); ok { // a stream in memory
		s.SetSilence(k.Silence)
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: k.Idle, Interval: k.Every, Count: k.Count})
		_ = t.SetNoDelay(true)
		// Bytes that were sent and not acknowledged count, too.
		if raw, err := t.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int((k.Idle + time.Duration(k.Count)*k.Every).Milliseconds()))
			})
		}
	}
}

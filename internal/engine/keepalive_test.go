// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// Both sides of an exchange over TCP set keepalive, and a timeout for unacknowledged bytes;
// TestVMPeerVanishes shows their effect.
func TestKeepalive(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	for name, e := range map[string]*Endpoint{"who connects": w.a, "who listens": w.b} {
		tcp := e.connTo(e.Peers()[0]).links.last.tcp.(*net.TCPConn)
		raw := must(tcp.SyscallConn())(t)
		for what, opt := range map[string]struct{ level, name, want int }{
			"SO_KEEPALIVE":     {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			"TCP_KEEPIDLE":     {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 5},
			"TCP_KEEPINTVL":    {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 2},
			"TCP_KEEPCNT":      {unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 5},
			"TCP_USER_TIMEOUT": {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 15000},
		} {
			w.ok(raw.Control(func(fd uintptr) {
				if got, err := unix.GetsockoptInt(int(fd), opt.level, opt.name); got != opt.want || err != nil {
					t.Errorf("%s, %s: %d, %v, want %d", name, what, got, err, opt.want)
				}
			}))
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"fmt"
	"time"
)

// Phase is a phase of a handshake.
type Phase int

// The phases, in order.
const (
	FirstByte Phase = iota
	TLS
	Hello
	Ready
)

// The limits hold even if no other caller needs the place. A lost packet costs up to a second in
// the first phase (the kernel's first retransmission), and less in the later ones.
const (
	// firstByteLimit bounds the time from accept to the caller's first byte, which
	// follows the caller's last packet of TCP's own handshake. Over rdma_cm it bounds
	// the establishment of the queue pair.
	firstByteLimit = 5 * time.Second
	// tlsLimit bounds TLS: one more flight of the caller, and the computations of both.
	tlsLimit = 5 * time.Second
	// helloLimit bounds the wait for the hello, before which the caller makes its
	// queue pairs.
	helloLimit = 5 * time.Second
	// readyLimit bounds the wait for the caller's ready, before which the caller
	// connects its queue pairs.
	readyLimit = 5 * time.Second
)

func (p Phase) limit() time.Duration {
	switch p {
	case FirstByte:
		return firstByteLimit
	case TLS:
		return tlsLimit
	case Hello:
		return helloLimit
	}
	return readyLimit
}

// String returns the step that the caller has not done yet.
func (p Phase) String() string {
	switch p {
	case FirstByte:
		return "it has sent nothing"
	case TLS:
		return "its TLS handshake is not complete"
	case Hello:
		return "it has sent no complete hello"
	case Ready:
		return "it has not confirmed the connection"
	}
	return fmt.Sprintf("phase %d", int(p))
}

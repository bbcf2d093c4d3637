// SPDX-License-Identifier: Apache-2.0

// Package exchange has the messages by which two sides make and end a connection, and the
// protection of the stream on which they are exchanged.
//
// The exchange runs over TCP, or over a stream of rdma_cm. A message is its body's length in 4
// bytes, its kind in one byte, and the body.
//
//	initiator            acceptor
//	hello            ->
//	                 <-  hello, its queue pairs ready to receive and send
//	ready            ->
//	                 <-  ready, when the connection waits for Accept
//
// If the program has a text for the peer, it follows the hello. After ready both sides may send
// offers at any time. An offer without memory withdraws a name; the other side answers it by
// forgot. A side that ends the connection sends bye. When its queue pairs are destroyed, it sends
// gone, and closes the stream. In place of any message up to ready a side may send a reject: it
// has the reason for the end, and is the side's last message.
//
// The answer to a hello of another version is a hello of which only the version is valid: every
// version reads that far, and reports the difference.
//
// To add a message, change message.go, and raise Version in hello.go.
package exchange

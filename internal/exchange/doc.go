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
//
// A hello may say that a text of the program follows it. After that both sides may send offers
// at any time. An offer without memory withdraws a name, and is answered by forgot. A side that
// ends the connection sends bye; when its NIC does nothing more for the connection, it sends
// gone, and closes the stream. In place of any message before that a side may send a reject: it
// gives the reason why the side ends the connection, and is its last message.
//
// A hello of another version is answered by a hello of which only our version is valid: each
// version reads that far, and reports the difference.
package exchange

// SPDX-License-Identifier: Apache-2.0

// Package gpurdma moves bytes between the memory of GPUs and hosts by RDMA.
//
// Open opens NICs as a Fabric. Fabric.Alloc allocates a Buffer of a GPU's memory or of the
// host's; Fabric.Register takes memory that exists. Fabric.Listen and Fabric.Dial make
// connections, as in package net. A Conn exports memory to its peer under a name, imports what
// the peer has exported, and writes, reads, adds and swaps there:
//
//	conn, err := fab.Dial(ctx, "10.0.0.1:7471", gpurdma.Config{TLS: tlsConfig})
//	weights, err := conn.Import(ctx, "weights")
//	err = conn.Write(ctx, weights.All(), local.All())
//
// A Span is local memory, a Remote is the peer's. Both are made by All, Range and View; View
// takes a Layout, for bytes that are not contiguous. A Span or a Remote that cannot be carries
// its error, and the operation that uses it returns the error before anything is posted.
//
// # Blocking calls, batches and queues
//
// A method of Conn with a context returns its own result. When the context ends, the call
// returns its error at once. Work requests that the NIC does not have yet are withdrawn. Those
// that it has may still be carried out, and their memory stays in use until then. Conn.Start returns a Transfer
// without waiting, and Transfer.Cancel withdraws it. A Batch is posted and waited for as a
// whole. A Queue is for event loops: it takes slices of Op, and gives completions with the
// caller's tags, without an allocation.
//
// # Who polls
//
// A connection makes progress without calls of the program. Each NIC of a Fabric has one
// goroutine that takes completions when the NIC has raised an event, and two kinds that wait
// for events in the poller of Go's runtime: one goroutine for the events of the device, and one
// for those of each completion queue. A connection has one goroutine that reads what the peer
// says over TCP, and a listener has one. So an idle Fabric with one NIC has 2 goroutines, 4 with
// a connection, and one more for each further connection and each listener. A connection whose memory is staged has another one while bytes are copied. A call that waits
// looks for its completion by itself for up to 200 microseconds, and then sleeps.
//
// # Ordering
//
// Writes, messages and atomics of one connection are carried out in the order in which they
// were posted. Reads are ordered neither with one another nor with other operations. An
// operation with Fence starts when all operations posted before it have completed. Connections
// are not ordered with one another.
//
// A write that has completed is acknowledged by the peer's NIC. Its bytes may still be on the
// way from the NIC to the memory, in any order. They are in the memory when the peer's program
// has got a notification or a message that was posted with the write or after it, or when a
// write with Delivered has completed. A read, and another connection, may see older bytes before
// that. A program that polls memory needs StrictOrdering for the memory that it polls.
//
// # Messages and notifications
//
// Send sends a message, and Notify a few bytes that the peer gets after the bytes of a write.
// The peer's program takes them by Receive and ReceiveNotification. A sender that is ahead of
// the receiver's program by Config.Messages waits; so do the operations behind it. A receiver
// that is slow loses nothing.
//
// # Lifetimes
//
// The memory that a peer was given is the peer's to use until Unexport, or until the connection
// ends. Conn.Close says whether everything that was under way has ended well. Buffer.Close
// gives a buffer up; its memory is freed when no operation and no key of a peer needs it.
// Fabric.Close closes all that is still open.
//
// # Revocation
//
// A GPU's driver may take registered memory away. Then every access to it fails: with an error
// of the peer's NIC if the memory is the peer's, and of the own NIC otherwise. It ends the
// connection and is the only sign of the revocation. Close the Buffer, register its source
// again, and connect anew.
package gpurdma

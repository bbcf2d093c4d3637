// SPDX-License-Identifier: Apache-2.0

// Package engine moves bytes between the memory of GPUs and hosts by RDMA.
//
// An Endpoint has connections to peers over a NIC of package memory, and moves bytes between
// that package's buffers and those of peers: one-sided reads and writes, atomics, and
// messages.
//
// This package makes connections and ends them: it has the exchange between two hosts, listeners,
// the table of peers, the links of a connection, and the goodbye. Change it to make or end
// connections in another way. Package offers has the memory that two sides offer each other. Four
// packages carry operations out: rma has the calls, request makes their work requests, workqueue
// orders and ends them, and progress polls for completions.
//
// # Ordering
//
// Writes, messages and atomics to one peer are carried out in the order in which they were
// posted. Reads have a queue of their own: they are ordered neither with one another nor with
// other operations. An operation with FlagFence starts when all operations posted to that peer
// before it have completed. Operations to different peers are not ordered.
//
// The peer's NIC takes operations in this order. Its writes may reach the memory in any order
// until a completion or a message says that they have arrived: by default memory is registered
// in memory.RelaxedOrdering. A program that polls memory without waiting for a completion or a
// message needs memory.StrictOrdering for the memory that it polls: for the flag that follows
// the data, not for the data.
//
// # Completions
//
// Operations are asynchronous: their memory belongs to the NIC until the completion.
// Endpoint.Poll and Endpoint.Wait return completions with the context that the operation was
// given. They also post operations that wait in queues: the program has to call one of them,
// unless EndpointOptions.Background is set.
//
// Posting an operation waits neither for the copy of staged memory nor for other connections.
// A goroutine of the connection copies the bytes of a staged Buffer, before the NIC reads them
// and after the NIC has written them; operations that were posted to the same peer later wait
// for it.
//
// # Revocation
//
// A GPU's driver may want to move registered memory, or to take it away for good. Most drivers of
// NICs pin the memory, so that the GPU's driver can do neither (bnxt_re, efa, mana, ionic). mlx5
// follows a move, and programs do not notice it. After the driver has taken memory away, every
// access to it fails: for ever with irdma, and until the memory can be mapped again with mlx5.
// The error is a remote access error if the memory is a peer's, and a local one if it is the
// caller's own. It ends the connection, as all such errors do, and is the only sign of the
// revocation. The endpoints stay usable: connect anew, and ask the peer for a new key, which it
// can give when its driver has given the memory back. If the memory was the caller's own, the
// Buffer stays registered with the memory that the driver has taken: close it, and register its
// source again.
//
// # Events
//
// A NIC may give up a connection, or fail altogether, without a completion. Then its asynchronous
// events end the connection with an *rc.EventError. NICOptions.Event receives all events. A port
// that goes down ends a connection only when the retries of an operation in flight are used up;
// the errors then say that the port is down. A program that has no operations in flight, and only
// lends its memory, learns of a connection's end by [Endpoint.Lost].
//
// # Lifetimes
//
// Close endpoints, then buffers, then the NIC; Close of an object that is still in
// use returns failure.ErrInUse. The keys that a peer was given for a Buffer end with the
// connection that they were given for.
package engine

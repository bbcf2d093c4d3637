// SPDX-License-Identifier: Apache-2.0

// Package gpurdma moves bytes between GPUs, and the memory of hosts, by RDMA.
//
// OpenNIC opens an RDMA device. NIC.Register takes a buffer of package
// gpualloc, and NIC.AllocHost makes one in host memory: both are Buffers, which
// have slices, reference counts, and an honest answer to the question whether
// the NIC reaches their bytes directly. Where it does not, a Buffer is staged:
// the NIC uses pinned host memory in its place, and the bytes are copied before and
// after operations. A Layout describes bytes that are not contiguous. An
// Endpoint has connections to peers and moves bytes: one-sided reads and
// writes, atomics, and messages.
//
// # Layouts
//
// A Layout is a shape: a list of extents (SG), a block repeated in several
// dimensions (Interleaved), strands taken in turn (RoundRobin), or these nested
// (Layout.Repeat, Concat). A Region is buffers seen through a layout, which can
// be assigned anew between any two operations. What crosses the network is a
// few bytes, whatever the number of blocks; Lower makes work requests of it.
// These types and functions are those of package layout.
//
// # Ordering
//
// Writes, messages and atomics to one peer are carried out in the order in
// which they were posted. Reads have a queue of their own: they are ordered
// neither with one another nor with anything else. FlagFence orders: a fenced
// operation starts when everything posted before it to that peer has
// completed. Operations to different peers are not ordered.
//
// That is the order in which the peer's NIC takes them. Into the memory what it
// writes may go in any order, until a completion or a message says that it is
// there: memory is registered in RelaxedOrdering. Who looks for bytes without
// waiting for either has to have them in StrictOrdering: the flag behind the
// data, not the data.
//
// # Completions
//
// Operations are asynchronous: their memory belongs to the NIC until the
// completion, which Endpoint.Poll and Endpoint.Wait return with the context
// that the operation was given. They also drive what waits in queues; somebody
// has to call them.
//
// Posting an operation waits neither for the copy of staged memory nor for other
// connections. A goroutine of the connection copies what a staged Buffer has, before
// the NIC reads it and after the NIC has written it; operations that were posted to
// the same peer later wait behind it.
//
// # Revocation
//
// A GPU's driver may want to move memory that is registered, or to take it
// away for good. Most NICs pin it, and the GPU's driver is refused (bnxt_re,
// efa, mana, ionic). mlx5 follows what is moved, and nobody notices. Of what is
// taken away, every access fails from then on, for ever with irdma, and until
// the memory can be mapped again with mlx5: with a remote access error where it
// is a peer's, with a local one where it is one's own. That ends the
// connection, as all such errors do, and nothing else tells of it. The
// endpoints go on: connect anew, and ask for a new key, which the peer can give
// when its driver has given the memory back. Where that was one's own the
// Buffer stays registered with what is gone: close it, and register its source
// again.
//
// # Events
//
// A NIC may give a connection up, or end altogether, where no completion comes to
// tell: its asynchronous events do, and the connection then ends with an
// [*EventError]. NICOptions.Event sees all of them. A port that goes down ends a
// connection only when the retries of what is under way are used up; the errors
// then say that it is down. Who has no operations under way, and only lends its
// memory, learns of a connection's end by [Endpoint.Lost].
//
// # Lifetimes
//
// Close endpoints, then regions and buffers, then the NIC; what is still used
// answers dmabuf.ErrInUse. The keys that a peer was given for a Buffer end with
// the connection that they were given for.
package gpurdma

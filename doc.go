// SPDX-License-Identifier: Apache-2.0

// Package gpurdma moves bytes between the memory of GPUs and hosts by RDMA.
//
// Open opens NICs as a Fabric. Fabric.Alloc allocates a Buffer of a GPU's memory or of the
// host's; Fabric.Register takes memory that the program has. Fabric.Listen and Fabric.Dial make
// connections, as in package net. A Conn exports memory to its peer under a name, imports what
// the peer has exported, and writes, reads, adds and swaps there:
//
//	conn, err := fab.Dial(ctx, "10.0.0.1:7471", gpurdma.Config{TLS: tlsConfig})
//	weights, err := conn.Import(ctx, "weights")
//	err = conn.Write(ctx, weights.All(), local.All())
//
// A Span is local memory, a Remote is memory of the peer. All, Range and View make both; View
// takes a Layout, for bytes that are not contiguous. A Span or a Remote that is not valid carries
// its error: an operation that uses it returns the error, and posts nothing.
//
// # Blocking calls, batches and queues
//
// A method of Conn with a context waits for its operation. When the context ends, the method
// returns the context's error at once, and withdraws the work requests that the NIC does not have
// yet. The NIC may still carry out the others, and uses their memory until then. Conn.Start
// returns a Transfer when it has posted the operation; Transfer.Cancel withdraws it. A Batch
// posts several operations and waits for all of them. A Queue is for event loops: it posts slices
// of Op, and returns completions with the caller's tags. It allocates nothing.
//
// # Progress
//
// A connection makes progress without calls of the program. Each NIC of a Fabric has one
// goroutine that takes completions, one that waits for the events of the device, and one for each
// completion queue, which waits for the queue's events. A connection has one that reads the
// peer's messages over TCP, and about three for each rail if there are several; a listener has one
// that accepts. So an idle Fabric with one NIC has 2 goroutines, 4 with a connection, and one more for each further connection and each
// listener. A connection with staged memory has another one while it copies bytes. A call that
// waits polls for up to 200 microseconds, and then sleeps.
//
// # Ordering
//
// Over one NIC, writes, messages and atomics of a connection are carried out in the order in which
// they were posted. Reads are ordered neither with one another nor with other operations. An
// operation with Fence starts when all operations posted before it have completed. Connections
// are not ordered with one another.
//
// A write that has completed is acknowledged by the peer's NIC. Its bytes may still be on the way
// from the NIC to the memory, in any order. They are in the memory when the peer's program has
// received a notification or a message that was posted with the write or after it, or when a
// write with Delivered has completed. A read, and another connection, may see older bytes before
// that. A program that polls memory needs StrictOrdering for the memory that it polls.
//
// # Messages and notifications
//
// Send sends a message, and Notify sends a few bytes after the bytes of a write. The peer's
// program takes them by Receive and ReceiveNotification. While it has not taken as many as its
// Config.Messages, the next one waits, and so do the operations posted after it. A slow receiver
// loses none of them.
//
// # Verified writes
//
// With Config.Verify this side sends CRC32C sums of a write's bytes with its notification: of all
// bytes, or of about 1 % of the blocks of 64 KiB, drawn anew for each write. It reads the bytes when the
// write is posted, when SetReady's function has returned, or when a Fence lets the write begin. The
// peer flushes and reads its memory when its program takes the notification, and once more if a sum
// differs. If it still differs, ReceiveNotification returns the note with a *CorruptError, and the
// connection goes on. Memory of a GPU is read as ReadAt reads it.
//
// Nothing else may change the peer's bytes from the write until the peer's program has taken the
// notification: not that program, not another peer, and not a later write or atomic of this side.
// Otherwise the later bytes are reported as wrong. So a program waits for an answer to the
// notification before it writes to the same bytes again. A write must not write the same byte of the
// peer twice. Writes without Notify are not verified.
//
// # Lost links
//
// A connection ends with its link, unless both sides set Config.Outlive. Then it outlives the link: a
// queue pair that fails, a port that is down, an exchange over TCP that is cut. The side that has called
// makes another link when packets pass again, through the same Listener, which must be open; neither
// Admit nor Accept has to do with it. Operations that are under way, and new ones, wait meanwhile, or
// until their contexts end. If there is no other link within Config.PeerTimeout, the connection ends with
// ErrPeerGone. Keys, exported memory and imported memory stay valid.
//
// Both sides first destroy their queue pairs. So what the lost link has still kept in the network reaches
// no memory any more. Then they compare which messages and notifications have arrived. Each arrives once,
// in order. Operations posted before the last of them are done. Writes after it and reads are carried out
// again, in order: their bytes may be written twice, but not after the peer's program has received a
// notification or a message that was posted after them. An atomic that the NIC had returns
// ErrOutcomeUnknown, and is not carried out again. Rail.Lost counts links, Stats.Repeats operations.
//
// An operation that the peer's NIC refuses, or with which link after link ends for Config.PeerTimeout,
// returns its error; the connection goes on with another link. A peer whose program has started anew does
// not know the connection, which then ends with ErrPeerGone.
//
// # Several NICs
//
// A connection of a Fabric of several NICs uses all of them, unless Config.NIC names one. It has a rail
// from each NIC to the peer's NIC at the same place in Open's list. Dial makes the first rail, and the
// others follow in the background: Conn.Rails lists them. A Listener at ":port" tells the callers its
// NICs' addresses: the exchange of each rail goes to its own NIC. An operation of 256 KiB or more is cut,
// and its parts go over the rails that are expected to carry them first; a smaller one goes over one rail.
// An operation that overlaps an earlier one, a message, a notification and a fence come after what was
// posted before, over any rail: those bytes are in the memory first. Other operations do not wait for one
// another. Config.Ordering changes these rules. When a rail loses its link, the others carry out its
// operations, and it makes another. If a NIC is removed, the peer's writes that it had, its own side's
// reads, and the first operation that follows writes which it had acknowledged end with ErrOutcomeUnknown.
// Export and Import wait for the first rail. After Config.PeerTimeout without a link the connection ends.
//
// All peers' atomics on a memory go over one NIC of the side that has it: a NIC's atomics are atomic only
// with one another. When another NIC has links to more of these peers, atomics under way end first, and
// later ones go over that NIC. They stay where they are while a connection of one NIC, a descriptor of
// Share or a Remote of several memories has atomics on it. Export and Share need a rail to it.
//
// A NIC may not reach memory that another NIC of the Fabric reaches. The memory is then registered with
// the others only, and never staged. Operations go over rails whose NICs reach the memory on both sides.
// While none of these has a link, they wait, for Config.PeerTimeout at most. Buffer.Paths has the reason
// for each NIC. If Buffer.Prove has seen that a NIC reaches a copy in system memory, the rail of that NIC
// carries bytes only if there is no better one; the peer knows it, too, if Prove came before Export.
//
// # Lifetimes
//
// A peer may use exported memory until Unexport, or until the connection ends. Conn.Close reports
// whether the end of all operations is known. Buffer.Close closes a buffer; its memory is freed
// when no slice, no operation and no key of a peer uses it. Fabric.Close closes the rest.
//
// # Revocation
//
// A GPU's driver may take registered memory away. Then every access to it fails, with an error of
// the NIC on the side that has the memory. The error ends the link, and is the only sign of
// the revocation. Close the Buffer, register its source again, and connect anew.
package gpurdma

// Each type has a file. To change how bytes are moved, look below: internal/rails, internal/engine.

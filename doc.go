// SPDX-License-Identifier: Apache-2.0

// Package gpurdma moves bytes between the memory of GPUs and hosts by RDMA.
//
// Open opens NICs as a Fabric. Fabric.Alloc allocates a Buffer of a GPU's memory or of the host's; Fabric.Register
// makes a Buffer of memory that the program already has. Fabric.Listen and Fabric.Dial make connections, as in
// package net. A Conn exports memory to its peer under a name, imports memory that the peer has exported, and writes,
// reads, adds and swaps there:
//
//	conn, err := fab.Dial(ctx, "10.0.0.1:7471", gpurdma.Config{TLS: tlsConfig})
//	weights, err := conn.Import(ctx, "weights")
//	err = conn.Write(ctx, weights.All(), local.All())
//
// A Span is local memory, a Remote is memory of the peer. All, Range and View make both; View takes a Layout, for
// bytes that are not contiguous. A Span or a Remote that is not valid carries its error: an operation that uses it
// returns the error, and posts nothing.
//
// # Blocking calls, batches and queues
//
// A method of Conn with a context waits for its operation. When the context ends, the method returns the context's
// error at once, and withdraws the work requests that the NIC does not have yet. The NIC may still carry out the
// others, and uses their memory until then. Conn.Start returns a Transfer when it has posted the operation;
// Transfer.Cancel withdraws it. A Batch posts several operations and waits for all of them. A Queue is for event
// loops: it posts slices of Op, returns completions with the caller's tags, and allocates nothing for them.
//
// # Progress
//
// A connection makes progress without calls of the program: goroutines of the package do its work. A NIC has one that
// takes completions, and one that waits for the device's events. A completion queue, which connections share, has one
// that waits for the queue's events. A connection has one that reads the peer's messages over TCP, and about three
// for each rail if it has several rails. While the CPU copies bytes of staged memory, the connection has one more. A
// Listener has one that accepts. So a Fabric with one NIC has 2 goroutines, 4 with its first connection, and one more
// for each further connection and each Listener. A call that waits polls for up to 200 microseconds, then sleeps.
//
// # Ordering
//
// Over one NIC, writes, messages and atomics of a connection are carried out in the order in which they were posted.
// Reads are ordered neither with one another nor with other operations. An operation with Fence starts when all
// operations posted before it have completed. Connections are not ordered with one another.
//
// When a write completes, the peer's NIC has acknowledged it. Its bytes may still be on the way from the NIC to the
// memory, in any order. They are in the memory when the peer's program has received a notification or a message that
// was posted with the write or after it, or when a write with Delivered has completed. Before that a read, or an
// operation of another connection, may see older bytes. A program that polls memory registers it with StrictOrdering.
//
// # Messages and notifications
//
// Send sends a message. Notify sends a note of a few bytes after the bytes of a write. The peer's program takes
// messages by Receive, and notes by ReceiveNotification. The peer's Config.Messages says how many of them the peer
// keeps for its program. While it keeps as many, the next one waits on this side, and so do the operations posted
// after it. So a slow receiver loses none of them.
//
// # Verified writes
//
// With Config.Verify this side sends CRC32C sums of a write's bytes with its notification: of all bytes, or of about
// 1 % of the blocks of 64 KiB, drawn anew for each write. This side reads the bytes when the write is posted, when
// SetReady's function has returned, or when a Fence lets the write begin. The peer flushes and reads its memory when
// its program takes the notification. If a sum differs, the peer reads once more. If it still differs,
// ReceiveNotification returns the note with a *CorruptError, and the connection goes on. It reads a GPU's memory as
// ReadAt does.
//
// From the write until the peer's program has taken the notification, nothing else may change these bytes: not that
// program, not another peer, and not a later write or atomic of this side. Otherwise the peer reports the later bytes
// as wrong. So a program waits for an answer to the notification before it writes to the same bytes again. A write
// must not write the same byte of the peer twice. Writes without Notify are not verified.
//
// # Lost links
//
// The queue pairs of a connection, and its TCP connection, are its link. A queue pair that fails, a port that goes
// down or a cut TCP connection ends the link, and with it the connection. If both sides set Config.Outlive, the
// connection outlives the link. The side that dialed then makes another link when packets pass again. It dials the
// same Listener, which must be open; Admit and Accept have no part in it. Operations wait until the connection has a
// link again, or until their contexts end. If it has none for Config.PeerTimeout, it ends with ErrPeerGone. Keys,
// exported memory and imported memory stay valid.
//
// Both sides first destroy the queue pairs of the lost link, so that none of its packets reaches memory any more.
// Then each side tells the other which messages and notifications have arrived. Each of them arrives once, in order.
// Writes posted before the last that has arrived are done. Later writes, and reads that have not completed, are
// carried out again, in order. A write's bytes may so be written twice, but not after the peer's program has received
// a notification or a message that was posted after the write. An atomic that the NIC had returns ErrOutcomeUnknown,
// and is not carried out again. Rail.Lost counts lost links, and Stats.Repeats the repeated operations.
//
// An operation returns its error if the peer's NIC refuses it, or if it ends one link after the other for
// Config.PeerTimeout; the connection goes on with another link. A peer whose program has been restarted does not know
// the connection, which then ends with ErrPeerGone.
//
// # Several NICs
//
// A connection of a Fabric of several NICs uses all of them, unless Config.NIC names one. It has a rail from each NIC
// to the peer's NIC at the same place in Open's list; the shorter list begins again at its end. Dial makes the first
// rail, and the others follow in the background: Conn.Rails lists them. Over rdma_cm a connection has one rail. A
// Listener at ":port" tells callers the addresses of its NICs, so that each rail's TCP connection goes to the rail's
// own NIC. Export and Import wait for the first rail. A connection ends when no rail has had a link for
// Config.PeerTimeout.
//
// An operation of 256 KiB or more is cut, and its parts go over the rails that are expected to carry them first; a
// smaller one goes over one rail. An operation that overlaps an earlier one starts when the bytes of the earlier one
// are in the memory. A message, a notification, an atomic and a fence wait in this way for everything posted before
// them. Other operations do not wait for one another. Config.Ordering changes these rules.
//
// When a rail loses its link, the other rails carry out its operations, and it makes another link. If the peer's NIC
// is removed, writes that it had end with ErrOutcomeUnknown. So does the first operation that must follow writes
// which that NIC had acknowledged: their bytes may not be in the memory. If this side's NIC is removed, reads that it
// had end with ErrOutcomeUnknown.
//
// The atomics of one NIC are atomic only with one another. So the atomics of all peers on a memory go over one NIC of
// the side that has the memory. Export and Share with Atomic fail on a connection without a rail to that NIC. When
// another NIC has links to more of these peers, atomics under way end first, and later ones go over the other NIC.
// The NIC does not change while a connection of one NIC, a descriptor of Share or a View of several buffers has
// atomics on the memory.
//
// If some NICs of the Fabric reach a memory and others do not, the memory is registered with those that reach it, and
// is not staged. Operations on it go over rails whose NICs reach the memory on both sides. While none of these rails
// has a link, operations wait, for Config.PeerTimeout at most. Buffer.Paths has the reason for each NIC. If
// Buffer.Prove has seen that a NIC reaches only a copy in system memory, the rail of that NIC carries bytes only if
// no better rail does; the peer does the same if Prove came before Export.
//
// # Lifetimes
//
// A peer may use exported memory until Unexport, or until the connection ends. Conn.Close reports whether the end of
// all operations is known. Buffer.Close closes a buffer; its memory is freed when no slice, no operation and no key
// of a peer uses it. Fabric.Close closes everything that the program has not closed.
//
// # Revocation
//
// A GPU's driver may take registered memory away. Then every access to it fails, with an error of the NIC on the side
// that has the memory. The error ends the link, and is the only sign of the revocation. Close the Buffer, register
// its source again, and connect anew.
package gpurdma

// Each type has a file. To change how bytes are moved, look below: internal/rails, internal/engine.

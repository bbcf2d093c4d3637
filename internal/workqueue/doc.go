// SPDX-License-Identifier: Apache-2.0

// Package workqueue takes the works of one connection from their posting to their end. It posts
// their work requests in order, when fences, credits and the room of the queue pairs allow that.
// It runs the slow parts of staged works in a goroutine, takes completions, receives messages, and
// ends all works when the connection ends. It counts the works by kinds of operations. Change it to
// order, bound, withdraw, complete or count works in another way. Package request makes the work
// requests of a work; package engine makes and ends connections.
//
// A Queue's mutex is held for microseconds: to post, and to take completions. Copies of staged
// memory, waiting until a source is ready, and the drain of a connection that has ended run
// without it. The order of locks is: a completion queue's mutex, a Queue's, and those of what
// the connections of an endpoint share (Pool, slab, completions). A Sink gets completions with
// the Queue's mutex held: it must call nothing of the connection.
package workqueue

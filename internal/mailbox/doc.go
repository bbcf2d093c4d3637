// SPDX-License-Identifier: Apache-2.0

// Package mailbox is the memory and the credits of the messages that a connection receives by
// itself. A Box keeps that many receives posted as the program asked for, and copies what arrives
// into lists that the program takes from. A side may send a message only with a credit: it
// begins with as many as the peer keeps receives, and gets one back when the peer's program has
// taken a message. So no message finds its receiver not ready, and the lists have no more
// messages than the depth. Credits come back in messages that need no credit themselves: one
// carries at least half of all credits, and so at most two of them are on their way.
//
// Change it to bound or to send messages in another way. The works that carry messages are in
// package workqueue.
package mailbox

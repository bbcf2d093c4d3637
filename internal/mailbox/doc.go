// SPDX-License-Identifier: Apache-2.0

// Package mailbox has the memory and the credits of the messages that a connection receives by
// itself. A Box has the memory of as many receives as the program asked for, and copies messages
// that arrive into lists, from which the program takes them. A side may send a message only with
// a credit: it begins with as many as the peer keeps receives, and gets one back when the peer's
// program has taken a message. So every message finds a receive, and the lists have at most as
// many messages as there are receives. Credits come back in messages that need no credit
// themselves: one carries at least half of all credits, and so at most two of them are on their
// way.
//
// A note may have a trailer of package verify behind it. Box checks it, and Take returns it decoded.
//
// Change it to bound or to send messages in another way. The works that carry messages are in
// package workqueue.
package mailbox

// SPDX-License-Identifier: Apache-2.0

package operation

// Peer is an entry of an endpoint's address table (fi_addr_t). The zero Peer is no entry.
// Peers are not reused: after a Peer has left the table, its use returns ErrNotConnected.
//
// A Peer whose connection is lost stays in the table, so that it can report the reason, until
// it is removed, or until the table is full and a new peer needs a place: then the oldest lost
// Peer leaves the table. Peers that Insert added stay.
type Peer int

// Completion says that an operation has ended, with success or an error.
type Completion struct {
	Context any // of the operation
	Op      Kind
	Peer    Peer
	Len     int64  // bytes moved; of a receive, the bytes received; of RemoteWrite, the bytes of the last work request
	Data    uint32 // the peer's data, if Flags has FlagRemoteCQData
	Value   uint64 // the old value, of an atomic that has no memory for it
	Flags   Flags
	Err     error // nil, or an *Error
	Held    bool  // the NIC may still use the memory; a Releaser gets Released when it does not any more
}

// Sink gets the completions of works in place of the endpoint's list. Complete is called with
// the connection's mutex locked, in the order in which the works ended: it must not block, and
// must not call the endpoint.
type Sink interface {
	Complete(c Completion)
}

// Releaser is a Sink for completions with Held. Released is called when the NIC does not use the
// work's memory any more, as Complete is called, with the work's context.
type Releaser interface {
	Released(context any)
}

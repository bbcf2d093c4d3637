// SPDX-License-Identifier: Apache-2.0

package fi

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// Flags are libfabric's flags, with libfabric's values: some are for operations, some for
// completions, and two are the access rights of Endpoint.Key.
type Flags uint64

// The flags of operations. Every other flag makes an operation return [EBADFLAGS].
const (
	// RemoteCQData sends the message's Data to the peer with a write or a message
	// (FI_REMOTE_CQ_DATA). A completion has it if Data is valid.
	RemoteCQData Flags = 1 << 17
	// More says that another operation follows at once (FI_MORE): the NIC gets it together with
	// that one, or when the program reads the completion queue.
	More Flags = 1 << 18
	// Fence starts the operation when all operations posted to that peer before it have
	// completed (FI_FENCE).
	Fence Flags = 1 << 21
	// Completion makes a completion on an endpoint with SelectiveCompletion (FI_COMPLETION).
	Completion Flags = 1 << 24
	// Inject copies the bytes when the operation is posted (FI_INJECT): the program may change
	// the memory when the call has returned. It is for writes and messages of at most
	// EndpointOptions.InjectSize bytes.
	Inject Flags = 1 << 25
	// InjectComplete asks for a completion when the memory may be reused (FI_INJECT_COMPLETE).
	// Every completion has this meaning.
	InjectComplete Flags = 1 << 26
	// TransmitComplete asks for a completion when the peer's NIC has acknowledged the operation
	// (FI_TRANSMIT_COMPLETE). Every completion has this meaning.
	TransmitComplete Flags = 1 << 27
	// DeliveryComplete asks for a completion when the bytes are in the peer's memory
	// (FI_DELIVERY_COMPLETE). The NIC then reads a byte back after a write, so that the key
	// must allow RemoteRead. Messages refuse the flag.
	DeliveryComplete Flags = 1 << 28
	// CommitComplete asks for a completion when the bytes are durable (FI_COMMIT_COMPLETE). All
	// operations refuse it: this package makes no bytes durable.
	CommitComplete Flags = 1 << 30
)

// The access rights of a key.
const (
	// RemoteRead lets peers read (FI_REMOTE_READ).
	RemoteRead Flags = 1 << 12
	// RemoteWrite lets peers write (FI_REMOTE_WRITE). A completion has it if it reports the
	// data of a peer's write.
	RemoteWrite Flags = 1 << 13
)

// The flags of completions say which kind of operation has completed.
const (
	Msg    Flags = 1 << 1  // a message (FI_MSG), with Send or Recv
	RMA    Flags = 1 << 2  // a read or a write (FI_RMA), with Read, Write or RemoteWrite
	Atomic Flags = 1 << 4  // an atomic (FI_ATOMIC), with Read; of a Key: it allows atomics
	Read   Flags = 1 << 8  // FI_READ
	Write  Flags = 1 << 9  // FI_WRITE
	Recv   Flags = 1 << 10 // FI_RECV
	Send   Flags = 1 << 11 // FI_SEND
)

// flagNames are the names of flags, in the order of their values.
var flagNames = [...]struct {
	flag Flags
	name string
}{
	{Msg, "message"}, {RMA, "rma"}, {Atomic, "atomic"}, {Read, "read"}, {Write, "write"}, {Recv, "receive"}, {Send, "send"},
	{RemoteRead, "remote-read"}, {RemoteWrite, "remote-write"}, {RemoteCQData, "remote-cq-data"}, {More, "more"}, {Fence, "fence"},
	{Completion, "completion"}, {Inject, "inject"}, {InjectComplete, "inject-complete"}, {TransmitComplete, "transmit-complete"},
	{DeliveryComplete, "delivery-complete"}, {CommitComplete, "commit-complete"},
}

// String lists the flags: "rma|write", or "none" for 0.
func (f Flags) String() string {
	var list []string
	for _, n := range flagNames {
		if f&n.flag != 0 {
			list = append(list, n.name)
			f &^= n.flag
		}
	}
	if f != 0 {
		list = append(list, fmt.Sprintf("%#x", uint64(f)))
	}
	if list == nil {
		return "none"
	}
	return strings.Join(list, "|")
}

// opFlags are the flags of operations, and the engine's flags for them.
var opFlags = [...]struct {
	flag Flags
	is   operation.Flags
}{
	{RemoteCQData, operation.FlagRemoteCQData},
	{More, operation.FlagMore},
	{Fence, operation.FlagFence},
	{Completion, operation.FlagCompletion},
	{Inject, operation.FlagInject},
	{InjectComplete, operation.FlagInjectComplete},
	{TransmitComplete, operation.FlagTransmitComplete},
	{DeliveryComplete, operation.FlagDeliveryComplete},
	{CommitComplete, operation.FlagCommitComplete},
}

// engine returns the engine's flags for an operation's flags.
func (f Flags) engine() (to operation.Flags, err error) {
	for i := range opFlags {
		if o := &opFlags[i]; f&o.flag != 0 {
			to |= o.is
			f &^= o.flag
		}
	}
	if f != 0 {
		return 0, errorOf("post an operation", fmt.Sprintf("flags %v: an operation has none of these", f), "", EBADFLAGS)
	}
	return to, nil
}

// kinds are the flags of completions, by the engine's operations.
var kinds = [...]Flags{
	operation.Read:        RMA | Read,
	operation.Write:       RMA | Write,
	operation.Send:        Msg | Send,
	operation.Recv:        Msg | Recv,
	operation.FetchAdd:    Atomic | Read,
	operation.CompareSwap: Atomic | Read,
	operation.RemoteWrite: RMA | RemoteWrite,
}

// flagsOf returns the flags of a completion.
func flagsOf(c *operation.Completion) Flags {
	f := kinds[c.Op]
	if c.Flags&operation.FlagRemoteCQData != 0 {
		f |= RemoteCQData
	}
	return f
}

// access returns access rights as MRs have them. Read and write access together include atomics.
func (f Flags) access() (a ibvfd.Access, err error) {
	if f == 0 || f&^(RemoteRead|RemoteWrite) != 0 {
		return 0, errorOf("make a key", fmt.Sprintf("access %v", f), "use RemoteRead and RemoteWrite", EINVAL)
	}
	if f&RemoteRead != 0 {
		a |= ibvfd.AccessRemoteRead
	}
	if f&RemoteWrite != 0 {
		a |= ibvfd.AccessRemoteWrite
	}
	return a, nil
}

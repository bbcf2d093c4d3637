// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/failure"

	"golang.org/x/sys/unix"
)

// Flags of an operation; each is a libfabric flag of the same name (fi_rma(3),
// fi_endpoint(3)).
type Flags uint32

// The flags.
const (
	// FlagCompletion makes a completion even if the endpoint is selective.
	FlagCompletion Flags = 1 << iota
	// FlagInject copies the data while it posts: the memory may be changed when the call
	// returns. The limit is EndpointOptions.InjectSize bytes. It is not for reads and atomics,
	// which write to their memory.
	FlagInject
	// FlagFence starts the operation when all operations posted before it to that peer have
	// completed.
	FlagFence
	// FlagMore says that another operation follows at once: the NIC gets it together with that
	// one, or at the next Poll or Wait.
	FlagMore
	// FlagRemoteCQData sends Msg.Data to the peer with a write or a message.
	FlagRemoteCQData
	// FlagInjectComplete means that the completion says that the memory may be reused. A
	// reliable connection guarantees more, as with FlagTransmitComplete.
	FlagInjectComplete
	// FlagTransmitComplete means that the completion says that the peer's NIC has acknowledged
	// the operation. Every completion says so.
	FlagTransmitComplete
	// FlagDeliveryComplete means that the completion says that the bytes are in the peer's
	// memory. After a write a byte is read back; the read does not overtake the bytes before it.
	// The RemoteBuffer must allow reads. The completion of a read or an atomic always says so.
	// Messages refuse the flag.
	FlagDeliveryComplete
	// FlagCommitComplete means that the completion says that the bytes would survive a loss of
	// power. It is refused: RDMA FLUSH to persistence is not used.
	FlagCommitComplete
)

var flagNames = []string{
	"completion", "inject", "fence", "more", "remote-cq-data",
	"inject-complete", "transmit-complete", "delivery-complete", "commit-complete",
}

// String lists the flags: "fence|more", "none" for 0.
func (f Flags) String() string {
	var list []string
	for i, name := range flagNames {
		if f&(1<<i) != 0 {
			list = append(list, name)
		}
	}
	if rest := f &^ (1<<len(flagNames) - 1); rest != 0 {
		list = append(list, fmt.Sprintf("%#x", uint32(rest)))
	}
	if list == nil {
		return "none"
	}
	return strings.Join(list, "|")
}

// Kind is the kind of an operation or a completion.
type Kind int

// The operations.
const (
	Read Kind = 1 + iota
	Write
	Send
	Recv
	FetchAdd
	CompareSwap
	RemoteWrite // a peer's write with data: in completions only
)

var opNames = [...]string{"", "read", "write", "send", "receive", "fetch-and-add", "compare-and-swap", "remote write"}

// String returns the operation's name: "fetch-and-add".
func (o Kind) String() string {
	if o > 0 && int(o) < len(opNames) {
		return opNames[o]
	}
	return fmt.Sprintf("Op(%d)", int(o))
}

// Check refuses flags that cannot be honoured for the operation.
func (f Flags) Check(op Kind) error {
	refuse := func(flag Flags, why, remedy string) error {
		return &failure.Error{Op: op.String(), Detail: flag.String() + ": " + why, Remedy: remedy, Err: unix.EOPNOTSUPP}
	}
	if rest := f &^ (1<<len(flagNames) - 1); rest != 0 {
		return refuse(rest, "no such flag", "")
	}
	switch {
	case f&FlagCommitComplete != 0:
		return refuse(FlagCommitComplete, "no device here is asked to make data persistent", "use delivery-complete")
	case f&FlagInject != 0 && op != Write && op != Send:
		return refuse(FlagInject, "only writes and messages take data", "")
	case f&FlagRemoteCQData != 0 && op != Write && op != Send:
		return refuse(FlagRemoteCQData, "only writes and messages bring data to a peer", "")
	case f&FlagDeliveryComplete != 0 && op == Send:
		return refuse(FlagDeliveryComplete, "the memory that a message reaches cannot be read back", "use transmit-complete, or write")
	}
	return nil
}

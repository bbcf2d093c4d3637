// SPDX-License-Identifier: Apache-2.0

package fi

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/abicheck"
	"github.com/gpurdma/gpurdma/internal/errno"
)

// Flags, codes and operations have the values of libfabric's headers.
func TestValuesOfLibfabric(t *testing.T) {
	var numbers []abicheck.Number
	for name, f := range map[string]Flags{
		"FI_MSG": Msg, "FI_RMA": RMA, "FI_ATOMIC": Atomic, "FI_READ": Read, "FI_WRITE": Write, "FI_RECV": Recv, "FI_SEND": Send,
		"FI_REMOTE_READ": RemoteRead, "FI_REMOTE_WRITE": RemoteWrite, "FI_REMOTE_CQ_DATA": RemoteCQData, "FI_MORE": More,
		"FI_FENCE": Fence, "FI_COMPLETION": Completion, "FI_INJECT": Inject, "FI_INJECT_COMPLETE": InjectComplete,
		"FI_TRANSMIT_COMPLETE": TransmitComplete, "FI_DELIVERY_COMPLETE": DeliveryComplete, "FI_COMMIT_COMPLETE": CommitComplete,
	} {
		numbers = append(numbers, abicheck.Number{C: name, Go: uint64(f)})
	}
	for name, o := range map[string]AtomicOp{"FI_SUM": Sum, "FI_CSWAP": CSwap} {
		numbers = append(numbers, abicheck.Number{C: name, Go: uint64(o)})
	}
	for code, text := range fabricErrors {
		name, _, _ := strings.Cut(text, " ")
		numbers = append(numbers, abicheck.Number{C: "FI_" + name, Go: uint64(code)})
	}
	for code := range fabricErrnos {
		numbers = append(numbers, abicheck.Number{C: "FI_" + errno.Name(code), Go: uint64(code)})
	}
	abicheck.Headers{Files: []string{"rdma/fabric.h", "rdma/fi_atomic.h", "rdma/fi_errno.h"}, Package: "libfabric-dev"}.Compare(t, nil, numbers)
}

func TestStrings(t *testing.T) {
	for got, want := range map[string]string{
		fmt.Sprint(Flags(0)):                    "none",
		fmt.Sprint(RMA | Write):                 "rma|write",
		fmt.Sprint(Completion | Fence | 1<<60):  "fence|completion|0x1000000000000000",
		fmt.Sprint(Sum, CSwap, AtomicOp(1)):     "sum compare-and-swap AtomicOp(1)",
		StrError(ENOKEY):                        "ENOKEY (266: required key not available)",
		StrError(unix.EAGAIN):                   "EAGAIN (11: resource temporarily unavailable)",
		fmt.Sprint(Code(nil), Code(unix.ESRCH)): "errno 0 errno 256",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/bytesize"
)

// everyMachineHas is an amount of memory, in bytes, that needs no look at the
// machine.
const everyMachineHas = 16 << 20

// refuseImpossible refuses more memory than the machine has at all, which
// exporters of system memory would try to allocate until the OOM killer ends
// it. swap says whether the memory can be swapped out.
func refuseImpossible(op, device string, size int64, swap bool) error {
	if size <= everyMachineHas {
		return nil
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return nil // the kernel will answer
	}
	total := info.Totalram
	what := "memory"
	if swap {
		total += info.Totalswap
		what = "memory and swap"
	}
	// Totalram counts units of Unit bytes; dividing avoids an overflow.
	if uint64(size)/uint64(info.Unit) <= uint64(total) {
		return nil
	}
	return &failure.Error{
		Op: op, Device: device,
		Detail: fmt.Sprintf("%s, where the machine has %s of %s", bytesize.Format(size), bytesize.Format(int64(total)*int64(info.Unit)), what),
		Remedy: "ask for less memory",
		Err:    failure.ErrLimit,
	}
}

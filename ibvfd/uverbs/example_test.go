// SPDX-License-Identifier: Apache-2.0

package uverbs_test

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
)

// The answer to descriptor -1 shows whether the driver registers dma-bufs.
func Example() {
	f, err := uverbs.Open(uverbs.Kernel(), "/dev/infiniband/uverbs-of-nobody")
	if err != nil {
		fmt.Println("no such device:", errors.Is(err, unix.ENOENT))
		return
	}
	defer f.Close()
	pd, err := f.AllocPD()
	if err != nil {
		fmt.Println(err)
		return
	}
	switch err := f.ProbeDMABuf(pd); {
	case errors.Is(err, unix.EBADF):
		fmt.Println("it does")
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT):
		fmt.Println("it does not")
	default:
		fmt.Println("not known:", err)
	}
	// Output: no such device: true
}

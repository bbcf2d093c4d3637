// SPDX-License-Identifier: Apache-2.0

package failure_test

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
)

// A caller branches on the sentinel or on the errno, and prints the rest.
func ExampleError() {
	err := error(&failure.Error{
		Op: "UDMABUF_CREATE", Device: "/dev/udmabuf", Detail: "2048 ranges", Remedy: "use at most 1024", Err: failure.ErrLimit,
	})
	fmt.Println(err)
	fmt.Println(errors.Is(err, failure.ErrLimit), errors.Is(err, unix.ENOMEM))
	// Output:
	// UDMABUF_CREATE on /dev/udmabuf: 2048 ranges: over the limit (ENOMEM); use at most 1024
	// true true
}

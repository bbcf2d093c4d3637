// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"fmt"

	"github.com/gpurdma/gpurdma/dmabuf"
	"golang.org/x/sys/unix"
)

// OutOfRange is the error for a range that is not within size bytes.
func OutOfRange(op string, off, length, size int64) *dmabuf.Error {
	return &dmabuf.Error{
		Op: op, Detail: fmt.Sprintf("offset %#x, length %#x of %#x bytes", off, length, size),
		Remedy: "stay within them", Err: dmabuf.ErrRange,
	}
}

// noBuffer returns the error for a *Buffer that is nil.
func noBuffer(op string) error {
	return &dmabuf.Error{Op: op, Detail: "a Buffer that is nil", Remedy: "look at the error of the call that was to return it", Err: unix.EINVAL}
}

var errNotHere = &dmabuf.Error{Op: "use a buffer", Detail: "it was registered with another NIC", Remedy: "register it with the endpoint's NIC", Err: unix.EINVAL}

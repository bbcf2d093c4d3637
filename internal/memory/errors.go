// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"fmt"

	"github.com/gpurdma/gpurdma/dmabuf"
	"golang.org/x/sys/unix"
)

// OutOfRange is the error for a range that is not within the size bytes of some memory, whose
// name says on which side it is: "local buffer cuda:0 (64 KiB)".
func OutOfRange(op, name string, off, length, size int64) error {
	return &dmabuf.Error{
		Op: op, Device: name, Detail: fmt.Sprintf("offset %d, length %d, of %d bytes", off, length, size),
		Remedy: "stay within them", Err: dmabuf.ErrRange,
	}
}

func (b *Buffer) outOfRange(op string, off, length int64) error {
	return OutOfRange(op, "local "+b.String(), off, length, b.size)
}

// noBuffer returns the error for a *Buffer that is nil.
func noBuffer(op string) error {
	return &dmabuf.Error{Op: op, Detail: "the buffer is nil", Remedy: "look at the error of the call that was to return it", Err: unix.EINVAL}
}

var errNotHere = &dmabuf.Error{Op: "use a buffer", Detail: "it was registered with another NIC", Remedy: "register it with the NIC of the connection", Err: unix.EINVAL}

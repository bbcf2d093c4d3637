// SPDX-License-Identifier: Apache-2.0

package failure

import (
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/errno"
)

// Error is a failed operation: its name, its object, the reason of the failure and
// the remedy. All packages of this module use it.
type Error struct {
	Op     string // the kernel's or library's own name, "UDMABUF_CREATE"
	Device string // the object of the operation: "/dev/udmabuf", "fd 7", "rxe0"
	Detail string // the numbers that matter: "offset 0x1000 + length 0x2000 > size 0x2000"
	Remedy string // a change that the user can make; "" if there is none
	Err    error  // a unix.Errno or a sentinel; Unwrap returns it
}

// Error returns all fields in one line:
//
//	UDMABUF_CREATE on /dev/udmabuf: 2048 ranges: EINVAL (22: invalid argument); use at most 1024
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Device != "" {
		b.WriteString(" on ")
		b.WriteString(e.Device)
	}
	if e.Detail != "" {
		b.WriteString(": ")
		b.WriteString(e.Detail)
	}
	if e.Err != nil {
		b.WriteString(": ")
		if n, ok := e.Err.(unix.Errno); ok { //nolint:errorlint // a wrapped errno prints its own words
			b.WriteString(errno.Text(n))
		} else {
			b.WriteString(e.Err.Error())
		}
	}
	if e.Remedy != "" {
		b.WriteString("; ")
		b.WriteString(e.Remedy)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is adds to the errors that an errno is by itself: ENOTTY (the driver does not
// know the ioctl) and 524 (the kernel's internal ENOTSUPP) are
// [errors.ErrUnsupported]; ENODEV and ENXIO are [fs.ErrNotExist].
func (e *Error) Is(target error) bool {
	n, ok := errno.Of(e.Err)
	if !ok {
		return false
	}
	switch n {
	case unix.ENOTTY, errno.ENOTSUPP:
		return target == errors.ErrUnsupported
	case unix.ENODEV, unix.ENXIO:
		return target == fs.ErrNotExist
	}
	return false
}

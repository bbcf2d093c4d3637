// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/errno"
)

// The errors that callers test for by errors.Is, each with its errno. Use after
// Close returns [os.ErrClosed]. An error of the kernel keeps its errno, which
// errors.Is and errors.As find.
var (
	// ErrInUse (EBUSY) means that something still uses the memory. Nothing was
	// freed.
	ErrInUse error = &refusal{"still in use", unix.EBUSY}
	// ErrNotDMABuf (EINVAL) means that the descriptor is open, and is no dma-buf.
	ErrNotDMABuf error = &refusal{"not a dma-buf", unix.EINVAL}
	// ErrRange (EINVAL) means that an offset, a length or another argument is out
	// of range.
	ErrRange error = &refusal{"out of range", unix.EINVAL}
	// ErrLimit (ENOMEM) means that the call would exceed a limit of the exporter,
	// of the memory or of the process. Nothing was attempted.
	ErrLimit error = &refusal{"over the limit", unix.ENOMEM}
)

// refusal is what this module refuses by itself, with the errno that the kernel has
// for it: errors.Is and errors.As find that, too.
type refusal struct {
	text  string
	errno unix.Errno
}

func (r *refusal) Error() string { return r.text + " (" + errno.Name(r.errno) + ")" }
func (r *refusal) Unwrap() error { return r.errno }

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

// Holder is memory that must not be freed while something uses it: an MR holds
// the buffer that it was registered on.
type Holder interface {
	// Hold keeps the memory until release is called. A second call of release does
	// nothing. After the memory was freed, Hold returns os.ErrClosed.
	Hold() (release func(), err error)
}

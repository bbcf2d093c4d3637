// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"fmt"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/errs"
	"golang.org/x/sys/unix"
)

// OutOfRange is the error for a range that is not within the size bytes of some memory, whose
// name says on which side it is: "local buffer cuda:0 (64 KiB)".
func OutOfRange(op, name string, off, length, size int64) error {
	return &failure.Error{
		Op: op, Device: name, Detail: fmt.Sprintf("offset %d, length %d, of %d bytes", off, length, size),
		Remedy: "stay within them", Err: failure.ErrRange,
	}
}

// Part names a part of something that has size bytes.
func Part(off, n, size int64, of string) string {
	if off == 0 && n == size {
		return of
	}
	if n == 0 {
		return fmt.Sprintf("0 bytes at %d of %s", off, of)
	}
	return fmt.Sprintf("bytes %d to %d of %s", off, off+n-1, of)
}

func (b *Buffer) outOfRange(op string, off, length int64) error {
	return OutOfRange(op, "local "+b.String(), off, length, b.size)
}

// noBuffer returns the error for a *Buffer that is nil.
func noBuffer(op string) error {
	return &failure.Error{Op: op, Detail: "the buffer is nil", Remedy: "look at the error of the call that was to return it", Err: unix.EINVAL}
}

var errNotHere = &failure.Error{Op: "use a buffer", Detail: "it was registered with another NIC", Remedy: "register it with the NIC of the connection", Err: unix.EINVAL}

// String names the Buffer for messages: "buffer cuda:0 (64 KiB)".
func (b *Buffer) String() string {
	name := b.core.name
	if name == "" {
		name = fmt.Sprintf("%x", b.id)
	}
	if b.off > 0 {
		return fmt.Sprintf("buffer %s (%s from byte %d on)", name, SizeText(b.size), b.off)
	}
	return fmt.Sprintf("buffer %s (%s)", name, SizeText(b.size))
}

// SizeText returns a size for messages: "64 KiB", or "100 bytes" if it is no multiple of 1 KiB.
func SizeText(n int64) string {
	if n%1024 != 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return bytesize.Format(n)
}

// isClosed returns the error of a Buffer that is closed.
func (b *Buffer) isClosed() error { return errs.Closed(b.String()) }

// denied returns the error of an operation that would change a read-only Buffer.
func (b *Buffer) denied(op string) error {
	return &failure.Error{Op: op, Device: "local " + b.String(), Detail: "the slice is for reading only", Remedy: "use Slice", Err: unix.EACCES}
}

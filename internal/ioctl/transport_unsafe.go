// SPDX-License-Identifier: Apache-2.0

package ioctl

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Transport carries an ioctl. arg points to the request's structure, which
// stays valid and in place for the call. Memory that the structure itself
// points to must be pinned by the caller (runtime.Pinner).
//
// A failure is a unix.Errno.
type Transport interface {
	Ioctl(fd int, req uint32, arg unsafe.Pointer) error
}

// Kernel is the real transport. It repeats a call that a signal interrupted:
// the Go runtime signals its own threads, so EINTR says nothing about the
// device.
var Kernel Transport = kernel{}

type kernel struct{}

func (kernel) Ioctl(fd int, req uint32, arg unsafe.Pointer) error {
	for {
		_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(req), uintptr(arg))
		switch e {
		case 0:
			return nil
		case unix.EINTR:
			continue
		}
		return e
	}
}

// RetryAgain wraps a transport so that EAGAIN repeats the call as well, which
// is how DRM drivers ask for a restart (libdrm's drmIoctl does the same).
func RetryAgain(t Transport) Transport { return retryAgain{t} }

type retryAgain struct{ Transport }

func (r retryAgain) Ioctl(fd int, req uint32, arg unsafe.Pointer) error {
	for {
		err := r.Transport.Ioctl(fd, req, arg)
		if err != unix.EAGAIN { //nolint:errorlint // a Transport returns a bare errno
			return err
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/errno"
)

var (
	// ErrNotBuilt: this build has no cgo (CGO_ENABLED=0), which loading
	// libibverbs needs. Devices and Probe work all the same.
	ErrNotBuilt = errors.New("built without cgo: libibverbs cannot be loaded")
	// ErrNoLibrary: libibverbs is not installed.
	ErrNoLibrary = errors.New("libibverbs is not installed")
	// ErrBrokenLibrary: libibverbs is there, and the dynamic linker refuses it.
	ErrBrokenLibrary = errors.New("libibverbs cannot be loaded")
)

// failed is the module's error with this room's usual parts.
func failed(op, device string, err error) *dmabuf.Error {
	return &dmabuf.Error{Op: op, Device: device, Err: err}
}

// asFailed finds the errno and the module's error inside err.
func asFailed(err error) (unix.Errno, *dmabuf.Error) {
	var e *dmabuf.Error
	if !errors.As(err, &e) {
		return 0, nil
	}
	n, _ := errno.Of(err)
	return n, e
}

// errnoOf is err's errno; an error without one would be a fault of ours, and
// EIO then at least says that it failed.
func errnoOf(err error) unix.Errno {
	if n, ok := errno.Of(err); ok {
		return n
	}
	return unix.EIO
}

// probeErrno is a probe's errno; 0 for a driver that accepted fd -1.
func probeErrno(err error) unix.Errno {
	if err == nil {
		return 0
	}
	return errnoOf(err)
}

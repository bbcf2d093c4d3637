// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
	"github.com/gpurdma/gpurdma/internal/errno"
)

// The reasons why there is no libibverbs.
var (
	// ErrNotBuilt means that this build has no cgo (CGO_ENABLED=0), which loading libibverbs
	// needs. Functions that need no libibverbs still work.
	ErrNotBuilt = libibverbs.ErrNotBuilt
	// ErrNoLibrary means that libibverbs is not installed.
	ErrNoLibrary = libibverbs.ErrNoLibrary
	// ErrBrokenLibrary means that libibverbs is installed, and the dynamic linker refuses it.
	ErrBrokenLibrary = libibverbs.ErrBrokenLibrary
)

// Version names the libibverbs in use with its version and file, or says why
// there is none.
func Version() string {
	v, err := libibverbs.Load()
	if err != nil {
		return err.Error()
	}
	return v.Version()
}

// failed is the module's error with this room's usual parts.
func failed(op, device string, err error) *failure.Error {
	return &failure.Error{Op: op, Device: device, Err: err}
}

// asFailed finds the errno and the module's error inside err.
func asFailed(err error) (unix.Errno, *failure.Error) {
	var e *failure.Error
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

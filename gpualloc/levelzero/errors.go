// SPDX-License-Identifier: Apache-2.0

package levelzero

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
)

// Name is the result's name in ze_api.h: "ZE_RESULT_ERROR_UNINITIALIZED".
func (r Result) Name() string {
	if n, ok := resultNames[r]; ok {
		return n
	}
	return fmt.Sprintf("ze_result_t %#x", int32(r))
}

// Error returns name and number.
func (r Result) Error() string { return fmt.Sprintf("%s (%#x)", r.Name(), int32(r)) }

// Is reports whether the result means one of errors.ErrUnsupported,
// fs.ErrPermission, fs.ErrNotExist and unix.ENOMEM.
func (r Result) Is(target error) bool {
	switch r {
	case UnsupportedFeature, UnsupportedVersion, UnsupportedEnumeration, UnsupportedSize, UnsupportedAlignment:
		return target == errors.ErrUnsupported
	case InsufficientPermissions:
		return target == fs.ErrPermission
	case Uninitialized, DependencyUnavailable, NotAvailable:
		return target == fs.ErrNotExist
	case OutOfHostMemory, OutOfDeviceMemory:
		return target == unix.ENOMEM
	}
	return false
}

var remedies = map[Result]string{
	Uninitialized:           "the loader found no driver: install intel-level-zero-gpu (or the vendor's), and check that /dev/dri/renderD* is there and accessible",
	DependencyUnavailable:   "a library that the driver needs is missing: ZE_ENABLE_LOADER_DEBUG_TRACE=1 says which",
	InsufficientPermissions: "give this user /dev/dri/renderD* (group render), and pass it into the container",
	OutOfDeviceMemory:       "ask for less, or free memory of the GPU",
	OutOfHostMemory:         "free memory of the host; the limit of open files reads the same: raise RLIMIT_NOFILE (ulimit -n)",
	DeviceLost:              "the GPU was reset or removed: look at the kernel log, and restart the process",
	UnsupportedFeature:      "this driver does not have it: install a newer one",
}

// failed makes the error of a refused call; nil for success.
func failed(function, on string, r Result, remedy, format string, args ...any) error {
	if r == Success {
		return nil
	}
	if remedy == "" {
		remedy = remedies[r]
	}
	return &failure.Error{Op: function, Device: on, Detail: fmt.Sprintf(format, args...), Remedy: remedy, Err: r}
}

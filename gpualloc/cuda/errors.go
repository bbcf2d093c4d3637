// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
)

// Name is the result's name in cuda.h: "CUDA_ERROR_OUT_OF_MEMORY".
func (r Result) Name() string {
	if n, ok := resultNames[r]; ok {
		return n
	}
	return fmt.Sprintf("CUresult %d", int32(r))
}

// Error returns name and number: "CUDA_ERROR_NOT_SUPPORTED (801)".
func (r Result) Error() string { return fmt.Sprintf("%s (%d)", r.Name(), int32(r)) }

// Is reports whether the result means one of errors.ErrUnsupported,
// fs.ErrPermission, fs.ErrNotExist and unix.ENOMEM.
func (r Result) Is(target error) bool {
	switch r {
	case NotSupported, CompatNotSupported, StubLibrary:
		return target == errors.ErrUnsupported
	case NotPermitted:
		return target == fs.ErrPermission
	case NoDevice, InvalidDevice:
		return target == fs.ErrNotExist
	case OutOfMemory:
		return target == unix.ENOMEM
	}
	return false
}

// remedies say what to change, for results whose cause is usually the same
// whatever was tried.
var remedies = map[Result]string{
	OutOfMemory:          "ask for less, or free memory of the GPU (nvidia-smi lists who uses it)",
	NotInitialized:       "the library was not initialised: this is a bug of the caller",
	Deinitialized:        "the process is exiting: stop using CUDA before its exit handlers run",
	StubLibrary:          "this is the toolkit's stub libcuda: put the driver's own first in the library path, or name it in GPURDMA_LIBCUDA",
	DeviceUnavailable:    "another process has the GPU in exclusive mode, or MPS refuses: nvidia-smi -q -d COMPUTE",
	NoDevice:             "check that the driver is loaded and sees the GPU (nvidia-smi), that CUDA_VISIBLE_DEVICES does not hide it, and that the container was given it",
	InvalidContext:       "the context was destroyed under us (cuCtxDestroy, cuDevicePrimaryCtxReset, cudaDeviceReset), and its memory with it: allocate and export again, with a new allocator",
	ContextIsDestroyed:   "the context was destroyed under us (cuCtxDestroy, cuDevicePrimaryCtxReset, cudaDeviceReset), and its memory with it: allocate and export again, with a new allocator",
	OperatingSystem:      "a system call failed inside the driver; most often the limit of open files: raise RLIMIT_NOFILE (ulimit -n)",
	IllegalAddress:       "a kernel or copy used memory that is not mapped; the context is lost: restart the process",
	NotPermitted:         "check the permissions of /dev/nvidia*, and the container's device cgroup",
	SystemNotReady:       "start nvidia-fabricmanager (NVSwitch machines), then try again",
	SystemDriverMismatch: "libcuda and the kernel module have different versions: reboot, or reload the module",
	CompatNotSupported:   "this GPU does not support the forward-compatibility package: use the driver's own libcuda",
	Unknown:              "look for NVRM messages in the kernel log",
}

// failed makes the error of a refused call; nil for success. detail are the
// numbers that matter; remedy goes before the general one.
func failed(function, dev string, r Result, remedy, format string, args ...any) error {
	if r == Success {
		return nil
	}
	if remedy == "" {
		remedy = remedies[r]
	}
	return &failure.Error{Op: function, Device: dev, Detail: fmt.Sprintf(format, args...), Remedy: remedy, Err: r}
}

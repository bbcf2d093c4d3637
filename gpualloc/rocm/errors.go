// SPDX-License-Identifier: Apache-2.0

package rocm

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
)

// Name is the status's name in hsa.h: "HSA_STATUS_ERROR_OUT_OF_RESOURCES".
func (s Status) Name() string {
	if n, ok := statusNames[s]; ok {
		return n
	}
	return fmt.Sprintf("hsa_status_t %#x", int32(s))
}

// Error returns name and number.
func (s Status) Error() string { return fmt.Sprintf("%s (%#x)", s.Name(), int32(s)) }

// Is reports whether the status means unix.ENOMEM. The runtime has no status
// that means "not supported" or "no permission".
func (s Status) Is(target error) bool {
	return s == OutOfResources && target == unix.ENOMEM
}

var remedies = map[Status]string{
	OutOfResources: "ask for less, or free memory of the GPU (rocm-smi shows it); the limit of open files reads the same: raise RLIMIT_NOFILE (ulimit -n)",
	NotInitialized: "the runtime was shut down under us (hsa_shut_down called too often)",
	Fatal:          "the runtime is in a state that it cannot leave: restart the process, and look for amdgpu messages in the kernel log",
	MemoryFault:    "a kernel or copy used memory that is not mapped: restart the process",
}

// failed makes the error of a refused call; nil for success.
func failed(function, on string, s Status, remedy, format string, args ...any) error {
	if s == Success {
		return nil
	}
	if remedy == "" {
		remedy = remedies[s]
	}
	return &failure.Error{Op: function, Device: on, Detail: fmt.Sprintf(format, args...), Remedy: remedy, Err: s}
}

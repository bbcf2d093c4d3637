// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/internal/refusal"
	"github.com/gpurdma/gpurdma/trace"
)

// The trace's cause replaces a guess from the errno, and not a cause that is proven.
func TestLearnFromTheTrace(t *testing.T) {
	for _, row := range []struct {
		name     string
		error    ibvfd.RegError
		failure  trace.Failure
		cause    fault.Cause
		at       fault.Stage
		detail   string
		remedy   string
		mustNot  string
		unproven bool
	}{
		{ // NVIDIA/open-gpu-kernel-modules#1130
			"ENOMEM of nvidia-drm",
			ibvfd.RegError{Errno: unix.ENOMEM, Cause: fault.CauseNoMemory, Remedy: "free memory, or register less"},
			trace.Failure{Stage: trace.StageMap, Errno: unix.ENOMEM, Cause: refusal.VideoMemory.String(), Detail: "exporter nvidia-drm does not map video memory", Remedy: "allocate with CUDA"},
			fault.CauseVideoMemory, fault.StageMap, "nvidia-drm", "allocate with CUDA", "free memory", false,
		},
		{ // amdgpu_dma_buf_pin
			"EINVAL of a pin",
			ibvfd.RegError{Errno: unix.EINVAL, Cause: fault.CauseUnknown, Remedy: "see the kernel log"},
			trace.Failure{Stage: trace.StagePin, Errno: unix.EINVAL, Cause: refusal.Pinned.String(), Detail: "another importer has pinned it", Remedy: "a buffer for each NIC"},
			fault.CausePinned, fault.StagePin, "another importer", "a buffer for each NIC", "kernel log", false,
		},
		{
			"ENOMEM, and no rule",
			ibvfd.RegError{Errno: unix.ENOMEM, Cause: fault.CauseNoMemory, Remedy: "free memory, or register less"},
			trace.Failure{Stage: trace.StageMap, Errno: unix.ENOMEM, Detail: "exporter amdgpu refused map"},
			fault.CauseNoMemory, fault.StageMap, "", "free memory, or register less", "amdgpu", false,
		},
		{
			"EOPNOTSUPP of an attach",
			ibvfd.RegError{Errno: unix.EOPNOTSUPP, Cause: fault.CauseNotSupported, Detail: "guessed", Remedy: "try memory of another kind, fewer access flags, or another NIC"},
			trace.Failure{Stage: trace.StageAttach, Errno: unix.EOPNOTSUPP, Detail: "exporter softgpu refused to be attached"},
			fault.CauseNotSupported, fault.StageAttach, "exporter softgpu", "try memory of another kind, or another NIC", "access flags", false,
		},
		{
			"a cause that ibvfd does not know",
			ibvfd.RegError{Errno: unix.EINVAL, Cause: fault.CauseBadRange, Detail: "offset", Remedy: "choose a range inside"},
			trace.Failure{Errno: unix.EINVAL, Cause: "no such cause", Detail: "traced"},
			fault.CauseBadRange, 0, "offset", "choose a range inside", "traced", true,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			e := row.error
			learn(&e, &row.failure)
			if e.Cause != row.cause || !strings.Contains(e.Detail, row.detail) || !strings.Contains(e.Remedy, row.remedy) {
				t.Errorf("%+v", e)
			}
			if strings.Contains(e.Detail+e.Remedy, row.mustNot) {
				t.Errorf("%q is in it: %+v", row.mustNot, e)
			}
			if !row.unproven && (e.Earliest != row.at || e.Latest != row.at) {
				t.Errorf("stages %v to %v, want %v", e.Earliest, e.Latest, row.at)
			}
		})
	}
}

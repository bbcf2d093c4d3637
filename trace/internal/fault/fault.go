// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
)

// New is an error of tracing: device names the part of the system that refused, detail has the
// reason and remedy the change that would help, both in words.
func New(device, detail, remedy string, err error) error {
	return &failure.Error{Op: "trace", Device: device, Detail: detail, Remedy: remedy, Err: err}
}

// Errno returns the errno that err wraps, or err if it wraps none.
func Errno(err error) error {
	var n unix.Errno
	if errors.As(err, &n) {
		return n
	}
	return err
}

// Load explains why the kernel did not load a collection of programs and maps.
func Load(err error) error {
	var v *ebpf.VerifierError
	switch {
	case errors.As(err, &v):
		return New("the kernel's verifier", fmt.Sprintf("%+v", tail(v)), "report this, with the kernel's version", Errno(err))
	case errors.Is(err, unix.EPERM):
		// The library names the first program that was refused, and advises its own callers.
		// Neither helps here.
		return New("bpf", "the kernel refused bpf(2), though this process has the capabilities",
			"look for what forbids bpf(2): a container's or service's seccomp filter, lockdown=confidentiality, a security module", unix.EPERM)
	case errors.Is(err, unix.ENOMEM):
		return New("bpf", err.Error(), "allow more memory: a memory cgroup counts the maps", unix.ENOMEM)
	}
	return New("bpf", err.Error(), "", Errno(err))
}

// tail keeps the end of a verifier's log, where the reason is.
func tail(v *ebpf.VerifierError) string {
	lines := v.Log[max(0, len(v.Log)-12):]
	return strings.Join(lines, "\n")
}

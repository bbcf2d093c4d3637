// SPDX-License-Identifier: Apache-2.0

package support

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/trace/internal/fault"
)

// The oldest kernel that has bpf_loop.
const minMajor, minMinor = 5, 17

// Check says whether tracing can work here, and if not why and what to
// change. It changes nothing. sys and proc are the roots of sysfs and procfs.
func Check(sys, proc string) error {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		return fault.New(runtime.GOARCH, "no objects for this architecture", "", errors.ErrUnsupported)
	}
	release, err := kernelRelease()
	if err != nil {
		return err
	}
	if err := oldKernel(release); err != nil {
		return err
	}
	if sys == "" {
		sys = "/sys"
	}
	if proc == "" {
		proc = "/proc"
	}
	if _, err := os.Stat(filepath.Join(sys, "kernel/btf/vmlinux")); err != nil {
		return fault.New(filepath.Join(sys, "kernel/btf/vmlinux"), "the kernel has no type information (BTF)",
			"boot a kernel with CONFIG_DEBUG_INFO_BTF=y (all larger distributions have it)", errors.ErrUnsupported)
	}
	if mode := lockdown(sys); mode == "confidentiality" {
		return fault.New("kernel lockdown", "mode confidentiality forbids reading kernel memory",
			"boot with lockdown=integrity or none", unix.EPERM)
	}
	return privileges(proc)
}

func kernelRelease() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fault.New("kernel", "", "", err)
	}
	return unix.ByteSliceToString(u.Release[:]), nil
}

func oldKernel(release string) error {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return nil // an unusual name: the loader will say what is missing
	}
	if major < minMajor || major == minMajor && minor < minMinor {
		return fault.New("kernel "+release, fmt.Sprintf("older than %d.%d, the first with bpf_loop", minMajor, minMinor),
			"use a newer kernel; 6.1 and later are tested", errors.ErrUnsupported)
	}
	return nil
}

// lockdown is the mode in force: the word in brackets.
func lockdown(sys string) string {
	text, err := os.ReadFile(filepath.Join(sys, "kernel/security/lockdown"))
	if err != nil {
		return "" // not compiled in, or securityfs is not mounted
	}
	_, rest, _ := strings.Cut(string(text), "[")
	mode, _, _ := strings.Cut(rest, "]")
	return mode
}

// The capabilities of include/uapi/linux/capability.h that tracing needs.
var neededCaps = []struct {
	number uint
	name   string
}{
	{unix.CAP_BPF, "CAP_BPF"},
	{unix.CAP_PERFMON, "CAP_PERFMON"},
	{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN (to read the types of modules)"},
}

func privileges(proc string) error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fault.New("capget", "", "", err)
	}
	if userNamespaced(proc) {
		return fault.New("this process", "is root in a user namespace only: its capabilities mean nothing to the kernel's own functions",
			"run on the host, or in a container without a user namespace of its own", unix.EPERM)
	}
	var missing []string
	for _, c := range neededCaps {
		if data[c.number/32].Effective&(1<<(c.number%32)) == 0 {
			missing = append(missing, c.name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	where := "this process"
	remedy := "run as root"
	if InContainer(proc) {
		where = "this process, in a container"
		remedy = "run on the host, or give the container these capabilities"
	}
	return fault.New(where, "lacks "+strings.Join(missing, ", "), remedy, unix.EPERM)
}

// The first namespaces: PROC_PID_INIT_INO and PROC_USER_INIT_INO of
// include/linux/proc_ns.h.
const (
	firstPIDs  = "pid:[4026531836]"
	firstUsers = "user:[4026531837]"
)

// InContainer reports whether this process lives in a PID namespace other than the first
// one. proc is the root of procfs, "" for /proc.
func InContainer(proc string) bool {
	if proc == "" {
		proc = "/proc"
	}
	return inOther(proc, "pid", firstPIDs)
}

// userNamespaced reports a user namespace other than the first one. There a
// process may have all capabilities, over what belongs to the namespace.
func userNamespaced(proc string) bool { return inOther(proc, "user", firstUsers) }

func inOther(proc, kind, first string) bool {
	link, err := os.Readlink(filepath.Join(proc, "self/ns", kind))
	return err == nil && link != first
}

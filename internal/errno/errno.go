// SPDX-License-Identifier: Apache-2.0

package errno

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ENOTSUPP is the kernel's own "operation is not supported", distinct from
// EOPNOTSUPP (95). Source: include/linux/errno.h.
const ENOTSUPP = unix.Errno(524)

// kernelOnly holds the numbers of include/linux/errno.h that are not meant
// for user space and reach it all the same.
var kernelOnly = map[unix.Errno]struct{ name, text string }{
	512:      {"ERESTARTSYS", "system call should be restarted"},
	513:      {"ERESTARTNOINTR", "system call should be restarted, no interrupt"},
	514:      {"ERESTARTNOHAND", "restart if no handler"},
	515:      {"ENOIOCTLCMD", "no ioctl command"},
	516:      {"ERESTART_RESTARTBLOCK", "restart by restart_syscall"},
	517:      {"EPROBE_DEFER", "driver requests probe retry"},
	518:      {"EOPENSTALE", "open found a stale dentry"},
	519:      {"ENOPARAM", "parameter not supported"},
	ENOTSUPP: {"ENOTSUPP", "operation is not supported (kernel-internal errno)"},
}

// preferred settles the numbers that have two names: the kernel's own wins.
var preferred = map[unix.Errno]string{
	unix.EAGAIN:     "EAGAIN",
	unix.EDEADLK:    "EDEADLK",
	unix.EOPNOTSUPP: "EOPNOTSUPP",
}

// Name returns the symbolic name of e, such as "EINVAL", or "errno 999" for
// a number without a name.
func Name(e unix.Errno) string {
	if k, ok := kernelOnly[e]; ok {
		return k.name
	}
	if n, ok := preferred[e]; ok {
		return n
	}
	if n := unix.ErrnoName(e); n != "" {
		return n
	}
	return fmt.Sprintf("errno %d", int(e))
}

// Text returns name, number and meaning: "EINVAL (22: invalid argument)".
func Text(e unix.Errno) string {
	if k, ok := kernelOnly[e]; ok {
		return fmt.Sprintf("%s (%d: %s)", k.name, int(e), k.text)
	}
	if unix.ErrnoName(e) == "" {
		return fmt.Sprintf("errno %d (no name known)", int(e))
	}
	return fmt.Sprintf("%s (%d: %s)", Name(e), int(e), e.Error())
}

// Of finds the raw errno inside err, if there is one.
func Of(err error) (unix.Errno, bool) {
	var e unix.Errno
	if errors.As(err, &e) {
		return e, true
	}
	return 0, false
}

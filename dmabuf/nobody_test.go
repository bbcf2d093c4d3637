// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// dropUser makes the calling thread run as user 65534, without groups. The raw system
// calls change this thread only, where package syscall's change all of them.
func dropUser() string {
	runtime.LockOSThread()
	const nobody = 65534
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 {
		return "setgroups: " + e.Error()
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, nobody, nobody, nobody); e != 0 {
		return "setresgid: " + e.Error()
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); e != 0 {
		return "setresuid: " + e.Error()
	}
	return ""
}

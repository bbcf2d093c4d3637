// SPDX-License-Identifier: Apache-2.0

package devnode

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"
)

// Explain says what is wrong with a node that could not be opened, and what to
// change. missing is the remedy for a node that does not exist, such as
// "modprobe udmabuf".
func Explain(path string, err error, missing string) (detail, remedy string) {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return permission(path)
	case errors.Is(err, unix.ENOENT):
		return "no such device node", missing
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return "the node is there, no driver answers behind it", missing
	case errors.Is(err, unix.EMFILE):
		return "this process has no file descriptor left", "raise RLIMIT_NOFILE (ulimit -n)"
	case errors.Is(err, unix.ENFILE):
		return "the system has no open file left", "raise fs.file-max"
	}
	return "", ""
}

func permission(path string) (detail, remedy string) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fmt.Sprintf("uid %d may not look at it", unix.Geteuid()),
			"run as root, or give this user access to its directory"
	}
	group := strconv.Itoa(int(st.Gid))
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	mode := st.Mode & 0o777
	detail = fmt.Sprintf("mode %04o, owner uid %d, group %s, while this process is uid %d", mode, st.Uid, group, unix.Geteuid())
	switch {
	case mode&0o006 == 0o006:
		return detail, "the mode allows it: a device cgroup or a security module refuses, so allow the device there"
	case mode&0o060 == 0o060:
		return detail, fmt.Sprintf("run as root or as a member of group %s", group)
	}
	return detail, "run as root, or give the node a group by a udev rule"
}

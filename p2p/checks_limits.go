// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

var limitChecks = []Check{
	{ID: "LIM-MEMLOCK", Title: "Memory may be locked", Worst: ResultWarn, run: (*look).memlock,
		Expect: "unlimited, or CAP_IPC_LOCK", Why: "Registered memory is locked and counts against RLIMIT_MEMLOCK, 8 MiB by default: beyond it registrations and completion queues fail with ENOMEM. In a container CAP_IPC_LOCK does nothing for a user that is not root, nor for anybody in a user namespace of its own.",
		Fix: Remedy{Change: "lift the limit of the program", Command: "--ulimit memlock=-1, LimitMEMLOCK=infinity"}, Ref: "NVIDIA/nccl-tests#206, nvidia-container-toolkit#2037"},
	{ID: "LIM-RDMA-CG", Title: "The control group allows more RDMA objects", Worst: ResultFail, run: (*look).rdmaGroup,
		Expect: "less in use than allowed", Why: "At the limit, opening a NIC or registering fails with EAGAIN.",
		Fix: Remedy{Change: "raise it", Command: "echo 'DEVICE hca_handle=max hca_object=max' > /sys/fs/cgroup/GROUP/rdma.max"}, Ref: "kernel/cgroup/rdma.c"},
	{ID: "LIM-DEVICE-CG", Title: "No device filter is in the way", Worst: ResultFail, run: (*look).deviceFilter,
		Expect: "no EPERM", Why: "A container's device filter answers EPERM although mode and groups allow it.",
		Fix: Remedy{Change: "give the container the device", Command: "--device FILE"}, Ref: "cgroups(7), devices"},
}

// capIPCLock is CAP_IPC_LOCK.
const capIPCLock = 14

func (l *look) memlock() {
	r := l.ofProcess("limits")
	text, ok := r.line("Max locked memory")
	f := strings.Fields(text)
	if r.err != nil {
		l.unread("", r)
		return
	}
	if !ok || len(f) < 1 {
		l.unknown("", r.at(), "no line of locked memory")
		return
	}
	caps, status := effective(l.ofProcess("status"))
	_, err := strconv.ParseUint(f[0], 10, 64)
	switch {
	case f[0] == "unlimited":
		l.pass("", r.at(), "%sunlimited", l.m.whose())
	case err != nil:
		l.unknown("", r.at(), "%q", text)
	case status.err == nil && caps>>capIPCLock&1 != 0:
		l.lockCapability(append(r.at(), status.where), f[0])
	case status.err != nil:
		l.unread("", status)
	default:
		l.warn("", r.at(), "%s%s bytes, without CAP_IPC_LOCK%s", l.m.whose(), f[0], inert(status))
	}
}

// lockCapability judges who has CAP_IPC_LOCK: the kernel asks for that of the
// first user namespace, and who is root in another has it in vain.
func (l *look) lockCapability(at []string, limit string) {
	user := l.link(l.m.processDir(), "ns/user")
	at = append(at, user.where)
	switch {
	case user.err != nil:
		f := l.unknown("", at, "%s%s bytes, and CAP_IPC_LOCK, which counts in the first user namespace only: %s", l.m.whose(), limit, user.why())
		if errors.Is(user.err, fs.ErrPermission) {
			f.asRoot(l.m)
		}
	case user.text != firstUser:
		l.warn("", at, "%s%s bytes, and CAP_IPC_LOCK of another user namespace than the first, where it does not count", l.m.whose(), limit)
	default:
		of := "; this is of p2pcheck: programs without it have the limit"
		if l.m.process != 0 {
			of = ""
		}
		l.pass("", at, "%s%s bytes, and CAP_IPC_LOCK%s", l.m.whose(), limit, of)
	}
}

func (l *look) rdmaGroup() {
	own := l.ofProcess("cgroup")
	if own.err != nil {
		l.unread("", own)
		return
	}
	group, ok := own.line("0::")
	switch {
	case !ok && strings.Contains(own.text, ":/"):
		l.skip("no control groups of version 2")
		return
	case !ok:
		l.unknown("", own.at(), "%sit names no control group", l.m.whose())
		return
	}
	if strings.HasPrefix(group, "/..") {
		l.unknown("", own.at(), "%sthe control group is outside of those that this program sees", l.m.whose())
		return
	}
	// The kernel charges every level up to the root, and each can refuse.
	var read []string
	for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
		read = append(read, l.rdmaLevel(path.Join("sys/fs/cgroup", dir))...)
		if dir == "/" {
			break
		}
	}
	if len(l.found) == 0 {
		l.pass("", read, "%sless in use than allowed, or no limit", l.m.whose())
	}
}

// rdmaLevel compares one group's limits, and says what it read. Only groups
// with the controller have the files.
func (l *look) rdmaLevel(dir string) (read []string) {
	limit := l.read(dir, "rdma.max")
	switch {
	case limit.gone():
		return limit.at()
	case limit.err != nil:
		l.unread("", limit)
		return nil
	}
	now := l.read(dir, "rdma.current")
	if now.err != nil {
		l.unread("", now)
		return nil
	}
	read = append(limit.at(), now.where)
	used := rdmaLimits(now.text)
	limits := rdmaLimits(limit.text)
	if len(limits) == 0 && (limit.text != "" || len(l.s.NICs) > 0) { // each device has a line
		l.unknown("", read, "%s%q has no limit of a device", l.m.whose(), limit.text)
	}
	for _, what := range slices.Sorted(maps.Keys(limits)) {
		most := limits[what]
		if most == "max" {
			continue
		}
		allowed, err1 := strconv.ParseUint(most, 10, 64)
		taken, err2 := strconv.ParseUint(used[what], 10, 64)
		switch {
		case err1 != nil || err2 != nil:
			l.unknown("", read, "%s%s is %q of %q", l.m.whose(), what, used[what], most)
		case taken >= allowed:
			device, _, _ := strings.Cut(what, " ")
			l.fail("", read, "%s%s: %d of %d", l.m.whose(), what, taken, allowed).fix(l.check.Fix.Change, l.m.raised(device, limit.where), "")
		}
	}
	return read
}

// SnapshotGroup is what the control group of p2pcheck is called in a snapshot, which has
// no name of the machine's.
const SnapshotGroup = "snapshot"

// raised is the command that lifts a device's limits in the file of a group.
func (m *Machine) raised(device, file string) string {
	const groups = "/sys/fs/cgroup/"
	if rest, ok := strings.CutPrefix(file, groups+SnapshotGroup+"/"); ok && m.root != "/" {
		file = groups + "GROUP/" + path.Base(rest)
	}
	return "echo " + shellWord(device+" hca_handle=max hca_object=max") + " > " + shellWord(file)
}

// shellWord is one word for a shell. systemd writes "\" into the names of groups.
func shellWord(text string) string {
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("/._-:@+=", r))
	}) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// rdmaLimits reads lines such as "mlx5_0 hca_handle=2 hca_object=max".
func rdmaLimits(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		for i := 1; i < len(f); i++ {
			if key, value, ok := strings.Cut(f[i], "="); ok {
				out[f[0]+" "+key] = value
			}
		}
	}
	return out
}

func (l *look) deviceFilter() {
	if l.s.Live.Opens == nil {
		l.skip("this is a copy of a machine")
		return
	}
	files := []string{"dev/infiniband/rdma_cm"}
	for _, n := range l.s.NICs {
		if n.Uverbs != "" {
			files = append(files, strings.TrimPrefix(n.Uverbs, "/"))
		}
	}
	for _, name := range files {
		l.filtered(name)
	}
}

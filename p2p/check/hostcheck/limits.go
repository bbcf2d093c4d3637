// SPDX-License-Identifier: Apache-2.0

package hostcheck

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// Limits has the checks of limits.
var Limits = []check.Check{
	{ID: "LIM-MEMLOCK", Title: "Memory may be locked", Worst: p2p.ResultFail, Run: memlock,
		Expect: "unlimited, or CAP_IPC_LOCK", Why: "Registered memory is locked and counts against RLIMIT_MEMLOCK, 8 MiB by default: beyond it registrations and completion queues fail with ENOMEM. In a container CAP_IPC_LOCK has no effect for a user that is not root, and none for any user in another user namespace than the first.",
		Fix: chain.Remedy{Change: "lift the limit of the program: LimitMEMLOCK=infinity of its service, \"* - memlock unlimited\" in /etc/security/limits.d for logins, --ulimit memlock=-1 for a container", Command: "ulimit -l unlimited"}, Ref: "NVIDIA/nccl-tests#206, nvidia-container-toolkit#2037, mlcommons/mlperf-automations#664",
		ByHand: "grep 'Max locked memory' /proc/self/limits\ngrep CapEff /proc/self/status"},
	{ID: "LIM-RDMA-CG", Title: "The control group allows more RDMA objects", Worst: p2p.ResultFail, Run: rdmaGroup,
		Expect: "less in use than allowed", Why: "At the limit, opening a NIC or registering fails with EAGAIN.",
		Fix: chain.Remedy{Change: "raise it", Command: "echo 'DEVICE hca_handle=max hca_object=max' > /sys/fs/cgroup/GROUP/rdma.max"}, Ref: "kernel/cgroup/rdma.c",
		ByHand: "cat /proc/self/cgroup\ncat /sys/fs/cgroup/GROUP/rdma.max /sys/fs/cgroup/GROUP/rdma.current"},
	{ID: "LIM-DEVICE-CG", Title: "No device filter is in the way", Worst: p2p.ResultFail, Run: deviceFilter,
		Expect: "no EPERM", Why: "A container's device filter answers EPERM although mode and groups allow it.",
		Fix: chain.Remedy{Change: "give the container the device", Command: "--device FILE"}, Ref: "cgroups(7), devices",
		ByHand: "head -c 0 /dev/infiniband/rdma_cm"},
}

// capIPCLock is CAP_IPC_LOCK.
const capIPCLock = 14

// defaultLock is the kernel's default for RLIMIT_MEMLOCK in bytes. The queues of UCX and of NCCL need more.
const defaultLock = 8 << 20

// memlock reports the limit of locked memory. If the limit cannot be read, the finding is set aside.
func memlock(l *check.Look) {
	r := l.OfProcess("limits")
	text, ok := r.Line("Max locked memory")
	f := strings.Fields(text)
	if r.Err != nil {
		l.Unread("", r).SetAside()
		return
	}
	if !ok || len(f) < 1 {
		l.Unknown("", r.At(), "no line of locked memory").SetAside()
		return
	}
	caps, status := machine.Effective(l.OfProcess("status"))
	limit, err := strconv.ParseUint(f[0], 10, 63)
	switch {
	case f[0] == "unlimited":
		l.Pass("", r.At(), "%sunlimited", l.Machine.Whose())
	case err != nil:
		l.Unknown("", r.At(), "%q", text).SetAside()
	case status.Err == nil && caps>>capIPCLock&1 != 0:
		lockCapability(l, append(r.At(), status.Where), limit)
	case status.Err != nil:
		l.Unread("", status).SetAside()
	default:
		limited(l, r.At(), limit, "without CAP_IPC_LOCK"+inert(status))
	}
}

// limited reports a limit of locked memory in bytes: a failure if it may be too small for the rings of queue
// pairs, and a warning otherwise.
func limited(l *check.Look, at []string, limit uint64, why string) {
	result, read := p2p.ResultWarn, fmt.Sprintf("%s%s, %s", l.Machine.Whose(), bytesize.Format(int64(limit)), why)
	if limit <= defaultLock && len(l.Subject.NICs) > 0 {
		result, read = p2p.ResultFail, read+": queue pairs and registrations of UCX and NCCL end with ENOMEM"
	}
	f := l.Say(result, "", at, "%s", read)
	if in, _, _ := check.InContainer(l); in == placement.Yes {
		f.Fix("lift the limit of the container, or that of the runtime (systemctl edit docker, with LimitMEMLOCK=infinity below [Service]): the host's own limit does not reach a container", "docker run --ulimit memlock=-1", "")
	}
}

// lockCapability judges CAP_IPC_LOCK of a process that has it. The kernel checks for the capability in the first
// user namespace, so that in another user namespace it has no effect, even for root.
func lockCapability(l *check.Look, at []string, limit uint64) {
	user := l.Link(l.Machine.ProcessDir(), "ns/user")
	at = append(at, user.Where)
	size := bytesize.Format(int64(limit))
	switch {
	case user.Err != nil:
		f := l.Unknown("", at, "%s%s, and CAP_IPC_LOCK, which counts in the first user namespace only: %s", l.Machine.Whose(), size, user.Why()).SetAside()
		if errors.Is(user.Err, fs.ErrPermission) {
			f.AsRoot(l.Machine)
		}
	case user.Text != machine.FirstUser:
		limited(l, at, limit, "and CAP_IPC_LOCK of another user namespace than the first, where it does not count")
	default:
		of := "; this is of p2pcheck: programs without it have the limit"
		if l.Machine.PID != 0 {
			of = ""
		}
		l.Pass("", at, "%s%s, and CAP_IPC_LOCK%s", l.Machine.Whose(), size, of)
	}
}

func rdmaGroup(l *check.Look) {
	own := l.OfProcess("cgroup")
	if own.Err != nil {
		l.Unread("", own)
		return
	}
	group, ok := own.Line("0::")
	switch {
	case !ok && strings.Contains(own.Text, ":/"):
		l.Skip("no control groups of version 2")
		return
	case !ok:
		l.Unknown("", own.At(), "%sit names no control group", l.Machine.Whose())
		return
	}
	if strings.HasPrefix(group, "/..") {
		l.Unknown("", own.At(), "%sthe control group is outside of those that this program sees", l.Machine.Whose())
		return
	}
	// The kernel charges every level up to the root, and each can refuse.
	var read []string
	for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
		read = append(read, rdmaLevel(l, path.Join("sys/fs/cgroup", dir))...)
		if dir == "/" {
			break
		}
	}
	if len(l.Found) == 0 {
		l.Pass("", read, "%sless in use than allowed, or no limit", l.Machine.Whose())
	}
}

// rdmaLevel compares the limits of one control group, and returns the files that it read. A group has these
// files only if the controller rdma is on for it.
func rdmaLevel(l *check.Look, dir string) (read []string) {
	limit := l.Read(dir, "rdma.max")
	switch {
	case limit.Gone():
		return limit.At()
	case limit.Err != nil:
		l.Unread("", limit)
		return nil
	}
	now := l.Read(dir, "rdma.current")
	if now.Err != nil {
		l.Unread("", now)
		return nil
	}
	read = append(limit.At(), now.Where)
	used := rdmaLimits(now.Text)
	limits := rdmaLimits(limit.Text)
	if len(limits) == 0 && (limit.Text != "" || len(l.Subject.NICs) > 0) { // each device has a line
		l.Unknown("", read, "%s%q has no limit of a device", l.Machine.Whose(), limit.Text)
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
			l.Unknown("", read, "%s%s is %q of %q", l.Machine.Whose(), what, used[what], most)
		case taken >= allowed:
			device, _, _ := strings.Cut(what, " ")
			l.Fail("", read, "%s%s: %d of %d", l.Machine.Whose(), what, taken, allowed).Fix(l.Check.Fix.Change, Raised(l.Machine, device, limit.Where), "")
		}
	}
	return read
}

// SnapshotGroup is the name of p2pcheck's control group in a snapshot, which keeps no name of the
// machine's groups.
const SnapshotGroup = "snapshot"

// Raised returns the shell command that lifts a device's limits in the file of a control group. For a file of a
// snapshot, which has no names of groups, the command has GROUP in place of the name.
func Raised(m *machine.Machine, device, file string) string {
	const groups = "/sys/fs/cgroup/"
	if rest, ok := strings.CutPrefix(file, groups+SnapshotGroup+"/"); ok && m.Root != "/" {
		file = groups + "GROUP/" + path.Base(rest)
	}
	return "echo " + shellWord(device+" hca_handle=max hca_object=max") + " > " + shellWord(file)
}

// shellWord quotes a text for a shell, if it needs quotes. systemd writes "\" into the names of groups.
func shellWord(text string) string {
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("/._-:@+=", r))
	}) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// rdmaLimits reads lines such as "mlx5_0 hca_handle=2 hca_object=max". The keys of its result are such as
// "mlx5_0 hca_handle".
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

func deviceFilter(l *check.Look) {
	if l.Subject.Live.Opens == nil {
		l.Skip("this is a copy of a machine")
		return
	}
	files := []string{"dev/infiniband/rdma_cm"}
	for _, n := range l.Subject.NICs {
		if n.Uverbs != "" {
			files = append(files, strings.TrimPrefix(n.Uverbs, "/"))
		}
	}
	for _, name := range files {
		filtered(l, name)
	}
}

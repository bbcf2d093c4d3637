// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/procfs"
)

// Host says why ibv_reg_mr refused host memory with n. limits is asked when it matters.
func Host(attr *Request, n unix.Errno, limits func() Memlock) *Refusal {
	e := &Refusal{Errno: n, Earliest: fault.StageProvider, Latest: fault.StageDriver}
	switch n {
	case unix.ENOMEM:
		e.Cause, e.Remedy = fault.CauseNoMemory, "free memory, or register less"
		if m := limits(); !m.Exempt && m.Limit != Unlimited && m.Pinned+attr.Length > m.Limit {
			e.Cause, e.Earliest, e.Latest = fault.CauseMemlock, fault.StageUverbs, fault.StagePin
			e.Detail = fmt.Sprintf("%#x bytes pinned + %#x > RLIMIT_MEMLOCK %#x", m.Pinned, attr.Length, m.Limit)
			e.Remedy = memlockRemedy
		}
	case unix.EFAULT:
		e.Cause, e.Earliest, e.Latest = fault.CauseFault, fault.StageGet, fault.StagePin
		e.Detail = "the range is not mapped, not writable as asked, or device memory"
		e.Remedy = "register anonymous or shared memory; device memory through its dma-buf"
	case unix.EINVAL:
		e.Cause, e.Detail, e.Remedy = fault.CauseUnknown, "", "see the device's limits (max_mr_size) and the kernel log"
		for _, f := range []*Breach{BadLength(attr), BadRemoteAccess(attr.Access), badFlushAccess(attr.Access)} {
			if f != nil {
				e.Cause, e.Detail, e.Remedy = f.Cause, f.Detail, f.Remedy
				break
			}
		}
	case unix.EPERM, unix.EACCES:
		e.Cause, e.Remedy = fault.CausePermission, "run as root, or ask for what a security module refuses"
		// can_do_mlock, which ib_umem_get asks first, knows no ENOMEM.
		if m := limits(); n == unix.EPERM && !m.Exempt && m.Limit == 0 {
			e.Cause, e.Earliest, e.Latest = fault.CauseMemlock, fault.StageUverbs, fault.StagePin
			e.Detail = "RLIMIT_MEMLOCK is 0: nothing may be pinned"
			e.Remedy = memlockRemedy
		}
	case unix.EOPNOTSUPP:
		e.Cause, e.Detail = fault.CauseNotSupported, "device, provider or kernel has no such registration"
		if f := attr.Access & accessFlush; f != 0 {
			e.Detail, e.Remedy = "the device has no "+uverbs.AccessNames(f), "leave "+uverbs.AccessNames(f)+" out"
		}
	case errno.ENOTSUPP:
		e.Cause = fault.CauseKernelENOTSUPP
	case unix.EIO, unix.ENODEV:
		e.Cause, e.Remedy = fault.CauseDeviceGone, "open the device again once it is back"
	default:
		e.Cause, e.Detail, e.Remedy = fault.CauseUnknown, "the answer was "+errno.Name(n), "look at the kernel log (dmesg)"
	}
	return e
}

const memlockRemedy = "raise the limit (ulimit -l, LimitMEMLOCK=) or give the process CAP_IPC_LOCK in the first user namespace"

// Memlock is what ib_umem_get compares (drivers/infiniband/core/umem.c): the bytes that the
// process has pinned, and RLIMIT_MEMLOCK, which does not bind a process with CAP_IPC_LOCK in the
// first user namespace. The pages of a dma-buf do not count: they are the exporter's.
type Memlock struct {
	Limit, Pinned uint64 // bytes
	Exempt        bool
}

const (
	// Unlimited is no limit: RLIM_INFINITY.
	Unlimited  = ^uint64(0)
	capIPCLock = 14                  // CAP_IPC_LOCK, include/uapi/linux/capability.h
	firstUsers = "user:[4026531837]" // PROC_USER_INIT_INO, include/linux/proc_ns.h
)

// ReadMemlock reads the state of this process. A value that cannot be read counts as no limit:
// memlock is claimed on evidence only.
func ReadMemlock() Memlock {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return Memlock{Limit: Unlimited}
	}
	return readMemlock(procfs.New(""), r.Cur)
}

// readMemlock reads the rest in procfs.
func readMemlock(proc procfs.FS, limit uint64) Memlock {
	f, err := os.Open(proc.Path("self", "status"))
	if err != nil {
		return Memlock{Limit: Unlimited}
	}
	defer f.Close()
	m := Memlock{Limit: limit}
	for s := bufio.NewScanner(f); s.Scan(); {
		key, value, _ := strings.Cut(s.Text(), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "VmPin":
			if n, err := strconv.ParseUint(strings.TrimSuffix(value, " kB"), 10, 64); err == nil {
				m.Pinned = n << 10
			}
		case "CapEff":
			if caps, err := strconv.ParseUint(value, 16, 64); err == nil {
				m.Exempt = caps&(1<<capIPCLock) != 0
			}
		}
	}
	if users, err := os.Readlink(proc.Path("self", "ns", "user")); err == nil && users != firstUsers {
		m.Exempt = false // the kernel asks with capable(), that is in the first namespace
	}
	return m
}

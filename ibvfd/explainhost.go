// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/errno"
)

// explainHost says why ibv_reg_mr refused host memory.
func (c *Context) explainHost(attr *MRAttr, err error) *RegError {
	n := errnoOf(err)
	e := &RegError{Device: c.name, Route: RouteHost, Attr: *attr, Errno: n, Earliest: StageProvider, Latest: StageDriver}
	switch n {
	case unix.ENOMEM:
		e.Cause, e.Remedy = CauseNoMemory, "free memory, or register less"
		if m := c.hostLimits(); !m.exempt && m.limit != unlimited && m.pinned+attr.Length > m.limit {
			e.Cause, e.Earliest, e.Latest = CauseMemlock, StageUverbs, StagePin
			e.Detail = fmt.Sprintf("%#x bytes pinned + %#x > RLIMIT_MEMLOCK %#x", m.pinned, attr.Length, m.limit)
			e.Remedy = memlockRemedy
		}
	case unix.EFAULT:
		e.Cause, e.Earliest, e.Latest = CauseFault, StageGet, StagePin
		e.Detail = "the range is not mapped, not writable as asked, or device memory"
		e.Remedy = "register anonymous or shared memory; device memory through its dma-buf"
	case unix.EINVAL:
		e.Cause, e.Detail, e.Remedy = CauseUnknown, "", "see the device's limits (max_mr_size) and the kernel log"
		for _, f := range []*fault{badLength(attr), badRemoteAccess(attr.Access), badFlushAccess(attr.Access)} {
			if f != nil {
				e.Cause, e.Detail, e.Remedy = f.cause, f.detail, f.remedy
				break
			}
		}
	case unix.EPERM, unix.EACCES:
		e.Cause, e.Remedy = CausePermission, "run as root, or ask for what a security module refuses"
		// can_do_mlock, which ib_umem_get asks first, knows no ENOMEM.
		if m := c.hostLimits(); n == unix.EPERM && !m.exempt && m.limit == 0 {
			e.Cause, e.Earliest, e.Latest = CauseMemlock, StageUverbs, StagePin
			e.Detail = "RLIMIT_MEMLOCK is 0: nothing may be pinned"
			e.Remedy = memlockRemedy
		}
	case unix.EOPNOTSUPP:
		e.Cause, e.Detail = CauseNotSupported, "device, provider or kernel has no such registration"
		if f := attr.Access & accessFlush; f != 0 {
			e.Detail, e.Remedy = "the device has no "+f.String(), "leave "+f.String()+" out"
		}
	case errno.ENOTSUPP:
		e.Cause = CauseKernelENOTSUPP
	case unix.EIO, unix.ENODEV:
		e.Cause, e.Remedy = CauseDeviceGone, "open the device again once it is back"
	default:
		e.Cause, e.Detail, e.Remedy = CauseUnknown, "the answer was "+errno.Name(n), "look at the kernel log (dmesg)"
	}
	return e
}

const memlockRemedy = "raise the limit (ulimit -l, LimitMEMLOCK=) or give the process CAP_IPC_LOCK"

// memlock is what ib_umem_get weighs: pinned pages against RLIMIT_MEMLOCK,
// unless the process has CAP_IPC_LOCK (drivers/infiniband/core/umem.c). A
// dma-buf's pages are the exporter's and do not count.
type memlock struct {
	limit, pinned uint64 // bytes
	exempt        bool
}

const (
	unlimited  = ^uint64(0) // RLIM_INFINITY
	capIPCLock = 14         // CAP_IPC_LOCK, include/uapi/linux/capability.h
)

// readMemlock reads the process' own state. What cannot be read counts as no
// limit: memlock is claimed on evidence only.
func readMemlock() memlock {
	m := memlock{limit: unlimited}
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err == nil {
		m.limit = r.Cur
	}
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return memlock{limit: unlimited}
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		key, value, _ := strings.Cut(s.Text(), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "VmPin":
			if n, err := strconv.ParseUint(strings.TrimSuffix(value, " kB"), 10, 64); err == nil {
				m.pinned = n << 10
			}
		case "CapEff":
			if caps, err := strconv.ParseUint(value, 16, 64); err == nil {
				m.exempt = caps&(1<<capIPCLock) != 0
			}
		}
	}
	return m
}

// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Policies of include/uapi/linux/mempolicy.h.
const (
	mpolDefault = 0
	mpolBind    = 2
)

// onNode does something whose memory the kernel takes from one NUMA node.
func onNode(t *testing.T, node int, do func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	policy := func(mode uintptr, nodes *uint64, bits uintptr) {
		if _, _, errno := unix.Syscall(unix.SYS_SET_MEMPOLICY, mode, uintptr(unsafe.Pointer(nodes)), bits); errno != 0 {
			t.Fatalf("set_mempolicy: %v", errno)
		}
	}
	mask := uint64(1) << node
	policy(mpolBind, &mask, 64)
	defer policy(mpolDefault, nil, 0)
	do()
}

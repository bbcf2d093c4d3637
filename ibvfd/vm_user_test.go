// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// roleVar makes the test binary play a role as another user, in TestAsUser.
const roleVar = "GPURDMA_TEST_ROLE"

// unprivileged is the ID of a user and a group that have no capability and no device.
const unprivileged = 65534

// asUnprivileged runs a role without privileges and returns what it printed.
func asUnprivileged(t *testing.T, role string) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestAsUser$", "-test.v")
	cmd.Env = append(os.Environ(), roleVar+"="+role)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged}}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestAsUser")) {
		t.Fatalf("role %s: %v\n%s", role, err, out)
	}
	return string(out)
}

// TestAsUser is the other process. Run by itself it does nothing.
func TestAsUser(t *testing.T) {
	switch role := os.Getenv(roleVar); role {
	case "":
	case "open":
		_, err := ibvfd.Open(nic)
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "/dev/infiniband/uverbs0") {
			t.Errorf("Open: %v, want permission denied on the node", err)
		}
		s, err := ibvfd.Probe(nic)
		if err != nil || s.DMABufKernel != ibvfd.Unknown || s.Errno != unix.EACCES || s.Remedy == "" {
			t.Errorf("Probe: %+v, %v; want unknown, EACCES and a remedy", s, err)
		}
		fmt.Println(err, s.Reason, s.Remedy)
	case "no memlock":
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{}); err != nil {
			t.Fatal(err)
		}
		pd := usersPD(t)
		_, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.HostMemory, Host: make([]byte, 1<<12), Length: 1 << 12, Access: allRemote})
		if e := asRegError(t, err); e.Cause != fault.CauseMemlock || e.Errno != unix.EPERM || e.Remedy == "" {
			t.Errorf("nothing may be pinned: %+v\n%v", e, err)
		}
		fmt.Println(err)
	case "memlock":
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 1 << 16, Max: 1 << 16}); err != nil {
			t.Fatal(err)
		}
		pd := usersPD(t)
		mem, err := hostmem.Alloc(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		defer closed(t, mem)
		attr := ibvfd.MRAttr{Kind: ibvfd.HostMemory, Host: mem.Bytes(), Length: 1 << 20, Access: allRemote, Owner: mem}
		_, err = pd.RegMR(attr)
		if e := asRegError(t, err); e.Cause != fault.CauseMemlock || e.Errno != unix.ENOMEM || e.Remedy == "" {
			t.Errorf("over the limit: %+v\n%v", e, err)
		}
		fmt.Println(err)
		attr.Length = 1 << 12
		mr, err := pd.RegMR(attr)
		if err != nil {
			t.Fatalf("within the limit: %v", err)
		}
		defer closed(t, mr)
		if id := mr.ID(); id.NumberKnown {
			t.Errorf("the kernel shows keys to CAP_NET_ADMIN only, and we know %+v", id)
		}
	default:
		t.Errorf("no role %q", role)
	}
}

// usersPD is a protection domain of the user that runs this.
func usersPD(t *testing.T) *ibvfd.PD {
	t.Helper()
	c, err := ibvfd.Open(nic)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, c) })
	pd, err := c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, pd) })
	return pd
}

func TestVMWithoutPrivileges(t *testing.T) {
	testenv.VM(t)
	noGrowth(t)
	const node = "/dev/infiniband/uverbs0"
	st, err := os.Stat(node)
	if err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(node, st.Mode().Perm())
	if err := os.Chmod(node, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Log(asUnprivileged(t, "open"))
	if err := os.Chmod(node, 0o666); err != nil {
		t.Fatal(err)
	}
	t.Log(asUnprivileged(t, "memlock"))
	t.Log(asUnprivileged(t, "no memlock"))
}

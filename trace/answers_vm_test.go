// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
)

// loadRDMA brings what a machine without devices lacks. Where systemd's modprobe.d
// does not say otherwise, the module dummy brings a dummy0 of its own.
const loadRDMA = `
modprobe crc32_generic || true
modprobe ib_uverbs
modprobe rdma_rxe
modprobe vgem
modprobe dummy numdummies=0
ip link add dummy0 type dummy
ip link set dummy0 mtu 4200 up
ip address add 10.9.0.1/24 dev dummy0
rdma link add rxe0 type rxe netdev dummy0
`

// unloadRDMA leaves the machine to the next test as it was.
const unloadRDMA = `
rdma link delete rxe0
ip link delete dummy0
modprobe -r rdma_rxe ib_uverbs
modprobe -r vgem
`

// What keeps tracing from working is said in words, and what only looks as if
// it did does not.
//
//testbed:machine fabric+EPYC+cold
//testbed:machine-arm64 fabric+cold
func TestVMClearAnswers(t *testing.T) {
	testenv.VM(t)
	t.Run("without capabilities", func(t *testing.T) {
		text, status := tried(t, childOpens, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
		if status != 1 {
			t.Errorf("status %d", status)
		}
		mustHave(t, text, "CAP_BPF, CAP_PERFMON", "run as root", "EPERM")
	})
	t.Run("root of a user namespace", func(t *testing.T) {
		ids := []syscall.SysProcIDMap{{Size: 1}}
		text, status := tried(t, childOpens, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids})
		if status != 1 {
			t.Errorf("status %d", status)
		}
		mustHave(t, text, "user namespace", "run on the host")
	})
	t.Run("without type information", func(t *testing.T) {
		text, status := tried(t, childBlind, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS})
		if status != 1 {
			t.Errorf("status %d", status)
		}
		mustHave(t, text, "/sys/kernel/btf/vmlinux", "no type information (BTF)", "CONFIG_DEBUG_INFO_BTF")
	})

	tr := open(t, mine())
	t.Run("ib_uverbs is loaded later", func(t *testing.T) {
		if tr.RDMA() {
			t.Fatal("ib_uverbs is there already")
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		p, err := tr.Prove(ctx, placement.Key{LKey: 1})
		if err != nil || p.Memory != placement.Unknown {
			t.Errorf("%v, %v", p, err)
		}
		mustHave(t, p.Reason, "ib_uverbs is not loaded")
		if out, err := exec.Command("sh", "-e", "-c", loadRDMA).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		ctx = within(t)
		for !tr.RDMA() {
			if ctx.Err() != nil {
				t.Fatalf("it was not attached to: %v", tr.Unreadable())
			}
			time.Sleep(10 * time.Millisecond)
		}
		registeredBy(t, tr)
	})
	t.Run("a second tracer", func(t *testing.T) {
		second := open(t, mine())
		d, b := openDevice(t), alloc(t, "drm:vgem", 1<<20)
		mr := d.register(t, b)
		for _, one := range []*Tracer{tr, second} {
			r := await(t, one, "registered", onBuffer(inode(b), Registered)).Record
			if r.MR == nil || r.MR.LKey != mr.LKey || r.Placement.Memory != placement.SystemMemory {
				t.Errorf("%+v", r)
			}
		}
		if err := second.Close(); err != nil {
			t.Error(err)
		}
		if err := d.DestroyMR(mr.Handle); err != nil {
			t.Fatal(err)
		}
		if r := await(t, tr, "released", onBuffer(inode(b), Released)).Record; r.Ended != "deregistered" {
			t.Errorf("after the other tracer's end: %+v", r)
		}
	})
	t.Run("in a container", func(t *testing.T) {
		d, b := openDevice(t), alloc(t, "drm:vgem", 1<<20) // not the container's
		mr := d.register(t, b)
		defer d.DestroyMR(mr.Handle)
		text, status := tried(t, childInside, &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		})
		if status != 0 {
			t.Errorf("status %d: %s", status, text)
		}
		mustHave(t, text, "process 1 saw its registration: system memory", "and no other")
	})
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	if out, err := exec.Command("sh", "-e", "-c", unloadRDMA).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// A kernel that is locked down refuses tracing to all processes, without a reason. A lockdown
// lasts until the machine reboots, so this test is the last.
//
//testbed:machine fabric+EPYC+cold
//testbed:machine-arm64 fabric+cold
func TestVMLastLockdown(t *testing.T) {
	testenv.VM(t)
	endShared(t)
	const control = "/sys/kernel/security/lockdown"
	if _, err := os.Stat(control); err != nil {
		if err := unix.Mount("securityfs", filepath.Dir(control), "securityfs", 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	lock := func(mode string) {
		t.Helper()
		if err := os.WriteFile(control, []byte(mode), 0); err != nil {
			t.Fatal(err)
		}
	}
	lock("integrity")
	if text, status := tried(t, childOpens, nil); status != 0 || !strings.Contains(text, "tracing works") {
		t.Errorf("integrity: status %d: %s", status, text)
	}
	lock("confidentiality")
	text, status := tried(t, childOpens, nil)
	if status != 1 {
		t.Errorf("status %d", status)
	}
	mustHave(t, text, "lockdown", "confidentiality", "lockdown=integrity")
}

// tried runs the test binary as a child that says what happened, in a line or
// two and without a stack.
func tried(t *testing.T, what string, attr *syscall.SysProcAttr) (text string, status int) {
	t.Helper()
	cmd := exec.Command(runnable(t))
	cmd.Env = append(os.Environ(), childEnv+"="+what)
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	text = string(out)
	t.Log(text)
	if strings.Contains(text, "goroutine ") || strings.Count(text, "\n") > 3 {
		t.Errorf("that is no clear answer: %s", text)
	}
	return text, cmd.ProcessState.ExitCode()
}

// runnable is a copy of the test binary that all users may run.
func runnable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/run", "trace-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(dir, "trace.test"), os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return to.Name()
}

// registeredBy registers a buffer and finds it in a tracer's events, whole.
func registeredBy(t *testing.T, tr *Tracer) {
	t.Helper()
	d, b := openDevice(t), alloc(t, "drm:vgem", 1<<20)
	mr := d.register(t, b)
	r := await(t, tr, "registered", onBuffer(inode(b), Registered)).Record
	if r.MR == nil || r.MR.LKey != mr.LKey || r.Placement.Memory != placement.SystemMemory {
		t.Errorf("%+v", r)
		for _, h := range tr.Hooks() {
			if !h.Attached() {
				t.Errorf("not watched: %+v", h)
			}
		}
	}
	if err := d.DestroyMR(mr.Handle); err != nil {
		t.Fatal(err)
	}
	await(t, tr, "released", onBuffer(inode(b), Released))
}

// inside is the first process of a container that traces itself.
func inside() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	if os.Getpid() != 1 || !Namespaced("") {
		return fmt.Errorf("process %d is in no container", os.Getpid())
	}
	tr, err := Open(Config{Self: true})
	if err != nil {
		return err
	}
	defer tr.Close()
	f, err := uverbs.Open(uverbs.Kernel(), "/dev/infiniband/uverbs0")
	if err != nil {
		return err
	}
	defer f.Close()
	pd, err := f.AllocPD()
	if err != nil {
		return err
	}
	a, err := gpualloc.Open("drm:vgem", gpualloc.Env{})
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := a.Alloc(context.Background(), 1<<20, gpualloc.Options{})
	if err != nil {
		return err
	}
	defer b.Close()
	mr, err := device{f, pd}.try(b, 0, 1<<20)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p, err := tr.Prove(ctx, placement.Key{LKey: mr.LKey, Inode: inode(b)})
	if err != nil {
		return err
	}
	fmt.Printf("process %d saw its registration: %v\n", os.Getpid(), p)
	if list := tr.Records(); len(list) == 1 {
		fmt.Println("and no other")
	}
	return nil
}

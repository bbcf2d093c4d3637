// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Every wrong parameter has an exit status, an errno by name where the kernel
// has one, and something to change; and leaves nothing.
func TestVMBadInput(t *testing.T) {
	testenv.VM(t)
	before := leftBehind(t)
	page := os.Getpagesize()
	for _, tt := range []struct {
		name    string
		args    []string
		status  int
		kind    string
		errno   string
		mention string
	}{
		{"more than memory", []string{"--size", "64G"}, cli.ExitFailed, cli.KindOperation, "ENOMEM", "64 GiB"},
		{"more than any memory", []string{"--size", "0x7fffffffffffffff"}, cli.ExitFailed, cli.KindOperation, "EINVAL", "rounded up"},
		{"offset at the end", []string{"--size", "64KiB", "--offset", "64KiB"}, cli.ExitFailed, cli.KindRegistration, "EINVAL", "nothing is left from offset 0x10000 on of a buffer of 0x10000 bytes"},
		{"length past the end", []string{"--size", "64KiB", "--length", "0x10001"}, cli.ExitFailed, cli.KindRegistration, "EINVAL", "0x10001"},
		{"offset and length past the end", []string{"--size", "64KiB", "--offset", "0xf000", "--length", "0x2000"}, cli.ExitFailed, cli.KindRegistration, "EINVAL", "0x2000"},
		{"overflow", []string{"--offset", "0xfffffffffffff000", "--length", "0x2000"}, cli.ExitFailed, cli.KindRegistration, "", "0xfffffffffffff000"},
		{"length 0", []string{"--length", "0"}, cli.ExitFailed, cli.KindRegistration, "EINVAL", "length"},
		{"page offsets differ", []string{"--offset", "0x10", "--iova", "0x20"}, cli.ExitFailed, cli.KindRegistration, "EINVAL", "IOVA"},
		{"access that dma-bufs do not have", []string{"--access", "local-write,mw-bind"}, cli.ExitFailed, cli.KindRegistration, "", "mw-bind"},
		{"remote write without local write", []string{"--access", "remote-write"}, cli.ExitFailed, cli.KindRegistration, "EINVAL", "local-write"},
		{"unknown access bit", []string{"--access", "0x40000001"}, cli.ExitFailed, cli.KindRegistration, "", ""},
		{"no such NIC", []string{"--nic", "nope0"}, cli.ExitUnavailable, cli.KindUnavailable, "ENODEV", "rxe0"},
		{"no such allocator", []string{"--gpu", "nope"}, cli.ExitUnavailable, cli.KindUnavailable, "", "drm:"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"register", "--json"}, tt.args...)
			for flag, value := range map[string]string{"--gpu": "drm:vgem", "--nic": "rxe0"} {
				if !slices.Contains(tt.args, flag) {
					args = append(args, flag, value)
				}
			}
			checkRefusal(t, command(t, args...), tt.status, tt.kind, tt.errno, tt.mention)
		})
	}

	// The same, when the kernel is asked.
	for _, tt := range []struct {
		name  string
		args  []string
		errno string
	}{
		{"past the end", []string{"--size", "64KiB", "--length", "0x10001"}, "EINVAL"},
		{"overflow", []string{"--offset", "0xfffffffffffff000", "--length", "0x2000"}, ""},
		{"length 0", []string{"--length", "0"}, ""},
		{"page offsets differ", []string{"--offset", "0x10", "--iova", "0x20", "--length", strconv.Itoa(page)}, "EINVAL"},
		{"remote write without local write", []string{"--access", "remote-write"}, "EINVAL"},
	} {
		t.Run("kernel: "+tt.name, func(t *testing.T) {
			args := append([]string{"register", "--json", "--skip-checks", "--gpu", "drm:vgem", "--nic", "rxe0"}, tt.args...)
			checkRefusal(t, command(t, args...), cli.ExitFailed, cli.KindRegistration, tt.errno, "")
		})
	}
	nothingMore(t, before)
}

// checkRefusal runs a command that must fail, and returns the message.
func checkRefusal(t *testing.T, r *run, status int, kind, errno, mention string) string {
	t.Helper()
	if got := r.do(t); got != status {
		t.Fatalf("exit status %d, want %d\n%s%s", got, status, r.out.String(), r.err.String())
	}
	d := parse[any](t, r.out.Bytes())
	if len(d.Errors) != 1 || d.Errors[0].Kind != kind {
		t.Fatalf("errors %+v, want one of kind %q", d.Errors, kind)
	}
	e := d.Errors[0]
	switch {
	case errno != "" && (e.Errno == nil || e.Errno.Name != errno):
		t.Errorf("errno %+v, want %s: %s", e.Errno, errno, e.Message)
	case !strings.Contains(e.Message, mention):
		t.Errorf("no %q in %q", mention, e.Message)
	case kind == cli.KindRegistration && (e.Stage == nil || e.Cause == "" || e.Device == ""):
		t.Errorf("stage %+v, cause %q, device %q", e.Stage, e.Cause, e.Device)
	case kind != cli.KindUnavailable && e.Remedy == "":
		t.Errorf("no remedy: %s", e.Message)
	}
	if strings.Contains(r.err.String(), "goroutine") {
		t.Errorf("it panicked: %s", r.err.String())
	}
	t.Log(e.Message)
	return e.Message
}

// Descriptors that are no dma-buf, or not open, told apart.
func TestVMForeignDescriptors(t *testing.T) {
	testenv.VM(t)
	before := leftBehind(t)
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := command(t, "register", "--json", "--fd", "3")
	r.ExtraFiles = []*os.File{f}
	checkRefusal(t, r, cli.ExitFailed, cli.KindOperation, "EINVAL", "it is the device node /dev/null")
	checkRefusal(t, command(t, "register", "--json", "--fd", "99"), cli.ExitFailed, cli.KindOperation, "EBADF", "not open")

	// And one that is.
	a, err := gpualloc.Open("drm:vgem", gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	buf, err := a.Alloc(t.Context(), 1<<16, gpualloc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r = command(t, "register", "--json", "--fd", "3")
	err = buf.Segments()[0].Buf.Do(func(fd int) error {
		dup, err := unix.Dup(fd)
		if err != nil {
			return err
		}
		file := os.NewFile(uintptr(dup), "dma-buf")
		defer file.Close()
		r.ExtraFiles = []*os.File{file}
		if status := r.do(t); status != cli.ExitOK {
			t.Errorf("a dma-buf: exit status %d\n%s", status, r.out.String())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := parse[registerDoc](t, r.out.Bytes()); d.Result.Memory.Inode != buf.Segments()[0].Buf.Inode() {
		t.Errorf("inode %d, the buffer's is %d", d.Result.Memory.Inode, buf.Segments()[0].Buf.Inode())
	}
	if err := buf.Close(); err != nil {
		t.Error(err)
	}
	nothingMore(t, before)
}

// An ordinary user may open neither the GPU nor the NIC, and gets an error with
// errno and remedy.
func TestVMNoPermission(t *testing.T) {
	testenv.VM(t)
	before := leftBehind(t)
	asNobody := func(args ...string) *run {
		r := command(t, args...)
		r.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: false}}
		r.Dir = "/"
		return r
	}
	r := asNobody("register", "--json", "--gpu", "drm:vgem")
	status := r.do(t)
	d := parse[any](t, r.out.Bytes())
	if status == cli.ExitOK || len(d.Errors) == 0 {
		t.Fatalf("exit status %d, %+v", status, d.Errors)
	}
	if e := d.Errors[0]; e.Errno == nil || e.Errno.Name != "EACCES" || e.Remedy == "" {
		t.Errorf("errno %+v, remedy %q: %s", e.Errno, e.Remedy, e.Message)
	} else {
		t.Log(e.Message)
	}

	// inspect cannot read the process, which differs from finding no buffer.
	checkRefusal(t, asNobody("inspect", "--json", "--pid", "1"), cli.ExitFailed, cli.KindOperation, "EACCES", "/proc/1")

	// verify has nothing left that it could try, but not because nothing is there.
	r = asNobody("verify", "--json")
	if status := r.do(t); status != cli.ExitFailed {
		t.Errorf("verify: exit status %d, want %d: %s", status, cli.ExitFailed, &r.out)
	}
	refused := parse[any](t, r.out.Bytes()).Errors
	for _, e := range refused {
		if e.Errno == nil || e.Errno.Name != "EACCES" || e.Subject == "" || e.Device == "" || e.Remedy == "" {
			t.Errorf("verify: errno %+v of %q, remedy %q: %s", e.Errno, e.Device, e.Remedy, e.Message)
		}
	}
	if len(refused) == 0 {
		t.Error("verify does not say that access was refused")
	}

	// The same for the NIC, with a buffer that another process opened.
	nodes, err := filepath.Glob("/dev/infiniband/uverbs*")
	if err != nil || len(nodes) == 0 {
		t.Fatalf("uverbs nodes: %v, %v", nodes, err)
	}
	for _, n := range nodes {
		info, err := os.Stat(n)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(n, 0o600); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(n, info.Mode().Perm())
	}
	a, err := gpualloc.Open("drm:vgem", gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	buf, err := a.Alloc(t.Context(), 1<<16, gpualloc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r = asNobody("register", "--json", "--nic", "rxe0", "--fd", "3")
	err = buf.Segments()[0].Buf.Do(func(fd int) error {
		dup, err := unix.Dup(fd)
		if err != nil {
			return err
		}
		file := os.NewFile(uintptr(dup), "dma-buf")
		defer file.Close()
		r.ExtraFiles = []*os.File{file}
		status = r.do(t)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	d = parse[any](t, r.out.Bytes())
	if status != cli.ExitFailed || len(d.Errors) == 0 {
		t.Fatalf("exit status %d, %+v", status, d.Errors)
	}
	if e := d.Errors[0]; e.Errno == nil || e.Errno.Name != "EACCES" || e.Remedy == "" || !strings.Contains(e.Message, "uverbs") {
		t.Errorf("errno %+v, remedy %q: %s", e.Errno, e.Remedy, e.Message)
	} else {
		t.Log(e.Message)
	}
	if err := buf.Close(); err != nil {
		t.Error(err)
	}
	nothingMore(t, before)
}

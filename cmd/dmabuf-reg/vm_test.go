// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// run is the command as a process of its own.
type run struct {
	*exec.Cmd
	out, err bytes.Buffer
}

func command(t *testing.T, args ...string) *run {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &run{Cmd: exec.CommandContext(t.Context(), self, args...)}
	r.Env = append(os.Environ(), asCommand+"=1")
	r.Stdout, r.Stderr = &r.out, &r.err
	return r
}

// status waits for the end.
func (r *run) status(t *testing.T) int {
	t.Helper()
	err := r.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%q: %v", r.Args, err)
	}
	return r.ProcessState.ExitCode()
}

// running reports whether it has not ended.
func (r *run) running(t *testing.T) bool {
	t.Helper()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, r.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	return info.Signo == 0
}

func (r *run) do(t *testing.T) int {
	t.Helper()
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	return r.status(t)
}

func (r *run) begin(t *testing.T) {
	t.Helper()
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.ProcessState == nil {
			_ = r.Process.Kill()
			_ = r.Wait()
		}
	})
}

// parsed is a document as a reader of docs/reference/json.md would take it.
type parsed[R any] struct {
	Schema  string
	Command string
	OK      bool
	Status  int `json:"exit_status"`
	Result  R
	Errors  []struct {
		Kind, Message, Subject, Op, Device, Route, Detail, Cause, Remedy string
		Stage                                                            *struct{ Earliest, Latest string }
		Errno                                                            *struct {
			Name   string
			Number int
		}
	}
}

func parse[R any](t *testing.T, data []byte) parsed[R] {
	t.Helper()
	var d parsed[R]
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatalf("%v in:\n%s", err, data)
	}
	if d.Schema != app.Schema {
		t.Errorf("schema %q", d.Schema)
	}
	if err := asTheSchemaSays(data); err != nil {
		t.Error(err)
	}
	return d
}

// Shapes of results, as documented.
type (
	registerDoc struct {
		Memory struct {
			Requested, Size int64
			Inode           uint64
			Exporter        string
		}
		NIC       string
		NICReason string `json:"nic_reason"`
		MRs       []struct {
			MRN        *uint32
			LKey, RKey uint32
			Route      string
			RegNS      int64 `json:"reg_ns"`
		}
		P50 int64 `json:"p50_ns"`
		P99 int64 `json:"p99_ns"`
	}
	verifyDoc struct {
		Seed uint64
		Rows []struct {
			Spec, NIC string
			OK        bool
			Report    *struct {
				OK            bool
				Inode         uint64
				VerifiedBytes int64 `json:"verified_bytes"`
				Seed          uint64
				Cases         []struct {
					Name string
					OK   bool
				}
			}
		}
	}
	inspectDoc struct {
		Buffers []struct {
			Inode          uint64
			Exporter, Name string
			Size           int64
			Holders        []struct {
				PID int
				FDs []int
			}
			Attached []string
		}
		Unknown []string
	}
)

// left is what registrations may leave behind in the kernel.
type left struct {
	bufs []uint64 // dma-bufs, from debugfs
	mrs  string   // the RDMA subsystem's own count of every resource, and each MR
}

func leftBehind(t *testing.T) left {
	t.Helper()
	var l left
	list, err := dmabuf.KernelBufs("")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range list {
		l.bufs = append(l.bufs, b.Inode)
	}
	slices.Sort(l.bufs)
	for _, args := range [][]string{{"resource", "show"}, {"resource", "show", "mr"}} {
		out, err := exec.Command("rdma", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("rdma %q: %v\n%s", args, err, out)
		}
		l.mrs += string(out)
	}
	return l
}

// nothingMore fails the test if what is there does not go back to what it was:
// the kernel frees some of it a moment after the process is gone.
func nothingMore(t *testing.T, before left) {
	t.Helper()
	var now left
	for range 100 * testenv.Slow() {
		now = leftBehind(t)
		if slices.Equal(now.bufs, before.bufs) && now.mrs == before.mrs {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("left behind: dma-bufs before %v, after %v\nresources before:\n%safter:\n%s", before.bufs, now.bufs, before.mrs, now.mrs)
}

func TestVMVerifyAll(t *testing.T) {
	testenv.VM(t)
	before := leftBehind(t)
	r := command(t, "verify", "--json", "--size", "1MiB", "--seed", "42")
	if status := r.do(t); status != cli.ExitOK {
		t.Fatalf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
	d := parse[verifyDoc](t, r.out.Bytes())
	want := 0
	for _, x := range testenv.Exporters() {
		if x.Expected(t) {
			want++
		}
	}
	if len(d.Result.Rows) != want || !d.OK || d.Result.Seed != 42 {
		t.Errorf("%d rows, ok %v, seed %d; want %d rows, ok, seed 42:\n%s", len(d.Result.Rows), d.OK, d.Result.Seed, want, r.out.String())
	}
	for _, row := range d.Result.Rows {
		if !row.OK || row.Report == nil || !row.Report.OK || row.Report.VerifiedBytes < 4<<20 || row.Report.Inode == 0 {
			t.Errorf("row %+v with report %+v", row, row.Report)
		}
	}
	nothingMore(t, before)
}

func TestVMVerifyTable(t *testing.T) {
	testenv.VM(t)
	r := command(t, "verify", "--size", "64KiB")
	if status := r.do(t); status != cli.ExitOK {
		t.Fatalf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
	out := r.out.String()
	for _, want := range []string{"MEMORY", "INODE", "ROUTE", "RKEY", "VERIFIED", "\nPASS: ", "seed "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if r.err.Len() != 0 {
		t.Errorf("stderr of a run without a terminal: %q", r.err.String())
	}
}

func TestVMDevices(t *testing.T) {
	testenv.VM(t)
	r := command(t, "devices", "--json")
	if status := r.do(t); status != cli.ExitOK {
		t.Fatalf("exit status %d: %s", status, r.err.String())
	}
	d := parse[struct {
		Allocators []gpualloc.Description
		NICs       []struct {
			Name    string
			Support *struct {
				Kernel string `json:"dmabuf_kernel"`
			}
		}
		Libibverbs string
	}](t, r.out.Bytes())
	ready := 0
	for _, a := range d.Result.Allocators {
		if a.Available {
			ready++
		} else if a.Why == "" {
			t.Errorf("%s is not available and does not say why", a.Spec)
		}
	}
	if ready < 2 {
		t.Errorf("%d allocators are ready", ready)
	}
	found := false
	for _, n := range d.Result.NICs {
		if n.Name != "rxe0" {
			continue
		}
		found = true
		if n.Support == nil || n.Support.Kernel != "yes" {
			t.Errorf("support of the patched rxe: %+v", n.Support)
		}
	}
	if !found {
		t.Errorf("no rxe0 in %s", r.out.String())
	}
}

func TestVMRegister(t *testing.T) {
	testenv.VM(t)
	before := leftBehind(t)
	r := command(t, "register", "--gpu", "drm:vgem", "--size", "5000", "--count", "100", "--json")
	if status := r.do(t); status != cli.ExitOK {
		t.Fatalf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
	d := parse[registerDoc](t, r.out.Bytes())
	m := d.Result.Memory
	if m.Requested != 5000 || m.Size < 5000 || m.Size%int64(os.Getpagesize()) != 0 || m.Inode == 0 || m.Exporter == "" {
		t.Errorf("memory %+v", m)
	}
	if len(d.Result.MRs) != 100 || d.Result.P50 <= 0 || d.Result.P99 < d.Result.P50 || d.Result.NIC == "" || d.Result.NICReason == "" {
		t.Errorf("%d MRs, p50 %d, p99 %d, nic %q %q", len(d.Result.MRs), d.Result.P50, d.Result.P99, d.Result.NIC, d.Result.NICReason)
	}
	keys := map[uint32]bool{}
	for _, mr := range d.Result.MRs {
		keys[mr.RKey] = true
		if mr.RegNS <= 0 || mr.Route == "" {
			t.Errorf("MR %+v", mr)
		}
	}
	if len(keys) != len(d.Result.MRs) {
		t.Errorf("%d different keys for %d MRs that live at once", len(keys), len(d.Result.MRs))
	}
	nothingMore(t, before)
}

// A size of 1 is rounded up, and the result says so.
func TestVMRegisterRoundsUp(t *testing.T) {
	testenv.VM(t)
	r := command(t, "register", "--gpu", "drm:vgem", "--size", "1")
	if status := r.do(t); status != cli.ExitOK {
		t.Fatalf("exit status %d: %s", status, r.err.String())
	}
	if want := "(1 B asked for, rounded up)"; !strings.Contains(r.out.String(), want) {
		t.Errorf("no %q in:\n%s", want, r.out.String())
	}
}

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

// An ordinary user who may open neither the GPU nor the NIC is told so, with
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

// A registration that is held is visible, by process and for the whole system.
func TestVMHoldAndInspect(t *testing.T) {
	testenv.VM(t)
	before := leftBehind(t)
	r := command(t, "register", "--gpu", "drm:vgem", "--size", "128KiB", "--hold", "10m", "--json")
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Stdout = w
	r.begin(t)
	w.Close() // the child has its own
	held := parse[registerDoc](t, firstDocument(t, out))

	for _, args := range [][]string{{"inspect", "--json"}, {"inspect", "--json", "--pid", strconv.Itoa(r.Process.Pid)}} {
		i := command(t, args...)
		if status := i.do(t); status != cli.ExitOK {
			t.Fatalf("%q: exit status %d: %s", args, status, i.err.String())
		}
		found := false
		for _, b := range parse[inspectDoc](t, i.out.Bytes()).Result.Buffers {
			if b.Inode != held.Result.Memory.Inode {
				continue
			}
			found = true
			if b.Size != held.Result.Memory.Size || len(b.Holders) != 1 || b.Holders[0].PID != r.Process.Pid || len(b.Holders[0].FDs) == 0 || b.Name != app.Program {
				t.Errorf("%q: %+v, want size %d, name %q, held by %d", args, b, held.Result.Memory.Size, app.Program, r.Process.Pid)
			}
		}
		if !found {
			t.Errorf("%q does not show inode %d:\n%s", args, held.Result.Memory.Inode, i.out.String())
		}
	}

	if err := r.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if status := r.status(t); status != cli.ExitInterrupted {
		t.Errorf("exit status %d after SIGINT, want %d: %s", status, cli.ExitInterrupted, r.err.String())
	}
	nothingMore(t, before)
}

func firstDocument(t *testing.T, f *os.File) json.RawMessage {
	t.Helper()
	defer f.Close()
	var doc json.RawMessage
	if err := json.NewDecoder(f).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

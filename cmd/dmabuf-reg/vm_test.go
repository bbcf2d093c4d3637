// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/human"
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
	for _, wide := range []bool{false, true} {
		r := command(t, "verify", "--size", "64KiB", fmt.Sprintf("--wide=%v", wide))
		if status := r.do(t); status != cli.ExitOK {
			t.Fatalf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
		}
		out, wants := r.out.String(), []string{"MEMORY", "NIC", "VERIFIED", "RESULT", "\nPASS: ", "seed "}
		if wide {
			wants = append(wants, "INODE", "ROUTE", "RKEY")
		}
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("--wide=%v: no %q in:\n%s", wide, want, out)
			}
		}
		for line := range strings.Lines(out) {
			if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > human.Columns && !wide {
				t.Errorf("a line of %d columns: %s", n, line)
			}
		}
		if r.err.Len() != 0 {
			t.Errorf("stderr of a run without a terminal: %q", r.err.String())
		}
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

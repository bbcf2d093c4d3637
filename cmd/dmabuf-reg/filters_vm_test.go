// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// inGroup moves a process into a cgroup of its own, until the test is over.
func inGroup(t *testing.T, pid int) (group string) {
	t.Helper()
	const root = "/sys/fs/cgroup"
	group = filepath.Join(root, "gpurdma-trace-command")
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	move := func(to string) error {
		return os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
	}
	if err := move(group); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := move(root); err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
			t.Error(err)
		}
		// A process leaves its cgroup a moment after Wait has returned.
		for end := time.Now().Add(testenv.Limit(time.Minute)); os.Remove(group) != nil; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(os.Remove(group))
			}
		}
	})
	return group
}

// Every filter of the command, alone and together, with tracers that all watch the
// same two programs at the same time: a tracer prints no event and no earlier
// registration that its filter leaves out, and prints all others whole. Starting so many
// tracers takes minutes on later kernels when they are emulated; there package trace
// tests the kernel's side of the filters.
//
//testbed:kernel 6.12
func TestVMTraceFilters(t *testing.T) {
	testenv.VM(t)
	one, two := startPyverbs(t, "vgem"), startPyverbs(t, "virtio_gpu")
	group := inGroup(t, one.Process.Pid)
	pid, inode := fmt.Sprint(one.Process.Pid), fmt.Sprint(one.inode)
	const (
		first  = 1 << iota // of one
		second             // of two
		both   = first | second
	)
	type row struct {
		args     []string
		seen     int
		existing int // -1: whose importer has no name before it is seen to register
		*run
	}
	rows := []*row{
		{args: nil, seen: both, existing: both},
		{args: []string{"--pid", pid}, seen: first, existing: first},
		{args: []string{"--cgroup", group}, seen: first, existing: both}, // earlier registrations have no cgroup
		{args: []string{"--importer", "rxe0"}, seen: both, existing: -1},
		{args: []string{"--exporter", "virtio_gpu", "--exporter", "system"}, seen: second, existing: second},
		{args: []string{"--cgroup", group, "--importer", "rxe0", "--exporter", "vgem", "--inode", inode, "--all"}, seen: first, existing: -1},
		{args: []string{"--inode", inode}, seen: first, existing: first},
	}
	for n, r := range rows {
		asLines := n%2 == 1 // for people
		args := append([]string{"trace"}, r.args...)
		if !asLines {
			args = append(args, "--json")
		}
		r.run = command(t, args...)
		stdout, stderr := create(t), create(t)
		r.Stdout, r.Stderr = stdout, stderr
		r.begin(t)
		// The first line of --json, or of what people are told.
		begun, where := "\n", stdout
		if asLines {
			begun, where = "tracing; Ctrl-C", stderr
		}
		for end := time.Now().Add(testenv.Limit(10 * time.Minute)); !strings.Contains(contents(t, where), begun); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%v has not begun: %s", r.Args[1:], contents(t, stderr))
			}
		}
	}

	one.again(t)
	two.again(t)
	one.end(t)
	two.end(t)
	for _, r := range rows {
		if slices.Contains(r.args, "--pid") {
			continue // has ended with it
		}
		if err := r.Process.Signal(unix.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	for n, r := range rows {
		if status := r.status(t); status != cli.ExitOK {
			t.Errorf("%v: exit status %d: %s", r.Args[1:], status, contents(t, r.Stderr.(*os.File)))
			continue
		}
		text := contents(t, r.Stdout.(*os.File))
		got := map[string]int{}
		times := map[string]int{}
		note := func(event string, inode uint64) {
			switch times[event]++; inode {
			case one.inode:
				got[event] |= first
			case two.inode:
				got[event] |= second
			default:
				t.Errorf("%v: %s of dma-buf %d, which is nobody's", r.Args[1:], event, inode)
			}
		}
		if n%2 == 0 {
			lines, last := tracedLines(t, []byte(text))
			for _, l := range lines[1:] {
				if l.Record.Buffer == nil {
					t.Errorf("%v: %+v", r.Args[1:], l)
					continue
				}
				note(l.Event, l.Record.Buffer.Inode)
				if l.Event == "registered" && (l.Record.MR == nil || l.Record.Placement.Memory != "system memory") {
					t.Errorf("%v: %+v", r.Args[1:], l)
				}
			}
			for event, n := range last.Result.Summary.Events {
				if times[event] != n {
					t.Errorf("%v: %d %s in the summary, and %d lines", r.Args[1:], n, event, times[event])
				}
			}
			// With --cgroup two's buffer is followed, since it was there, and two is not.
			passed := slices.ContainsFunc(r.args, func(arg string) bool { return slices.Contains([]string{"--importer", "--exporter", "--cgroup"}, arg) })
			if (last.Result.Filtered > 0) != passed {
				t.Errorf("%v: %d were left out", r.Args[1:], last.Result.Filtered)
			}
		} else {
			for _, l := range strings.Split(text, "\n") {
				if l == "" { // before the summary
					break
				}
				var number uint64
				_, at, ok := strings.Cut(l, " dma-buf ")
				if _, err := fmt.Sscanf(at, "%d of ", &number); !ok || err != nil {
					t.Errorf("%v: %q", r.Args[1:], l)
					continue
				}
				fields := strings.Fields(l)
				note(fields[1], number)
				who := map[uint64]*pyverbsProcess{one.inode: one, two.inode: two}[number]
				holder := who != nil && fields[2] == fmt.Sprint(who.Process.Pid) && fields[3] == "python3"
				switch fields[1] {
				case "existing": // the kernel's list of dma-bufs has none, that of descriptors one
					if !holder && fields[2] != "-" {
						t.Errorf("%v: %s", r.Args[1:], l)
					}
				case "registered":
					if !holder || !strings.Contains(l, "rxe0 MR ") {
						t.Errorf("%v: %s", r.Args[1:], l)
					}
				}
			}
			mustSay(t, text, "\nevents: ", "\nloss:     nothing lost")
		}
		if got["registered"] != r.seen || times["registered"] != map[int]int{first: 1, second: 1, both: 2}[r.seen] {
			t.Errorf("%v: registrations of %b, %d in all, want %b", r.Args[1:], got["registered"], times["registered"], r.seen)
		}
		if r.existing >= 0 && got["existing"] != r.existing {
			t.Errorf("%v: of what there was, that of %b, want %b", r.Args[1:], got["existing"], r.existing)
		}
		if missing := got["registered"] &^ got["released"]; missing != 0 {
			t.Errorf("%v: no end was seen of what is %b", r.Args[1:], missing)
		}
	}
}

func create(t *testing.T) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func contents(t *testing.T, f *os.File) string {
	t.Helper()
	text, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func mustSay(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q is not said in:\n%s", w, text)
		}
	}
}

// The filters of explain, and the end of what lasts a while.
//
//testbed:kernel 6.12
func TestVMTraceEnds(t *testing.T) {
	testenv.VM(t)
	prog := independent(t)
	both := prog + " verify --exporter vgem --route ioctl >/dev/null && " + prog + " verify --exporter virtio_gpu --route ioctl >/dev/null"
	r := command(t, "explain", "--exporter", "virtio_gpu", "--", "sh", "-c", both)
	if status := r.do(t); status != cli.ExitOK {
		t.Fatalf("exit status %d: %s", status, r.err.String())
	}
	mustSay(t, r.err.String(), "registration 1: ", "virtio_gpu dma-buf", "more left out")
	if strings.Contains(r.err.String(), "(vgem) dma-buf") {
		t.Errorf("vgem's buffer is explained:\n%s", r.err.String())
	}

	r = command(t, "trace", "--json", "--for", "1ms")
	if status := r.do(t); status != cli.ExitOK {
		t.Fatalf("--for: exit status %d: %s", status, r.err.String())
	}
	if lines, last := tracedLines(t, r.out.Bytes()); !last.OK || last.Result.CommandStatus != nil || lines[0].Event != "tracing" {
		t.Errorf("--for: %+v", last)
	}

	// COMMAND is not the tracer's reader: it goes on when that is gone.
	done := filepath.Join(t.TempDir(), "done")
	r = command(t, "trace", "--json", "--", "sh", "-c", both+" && "+both+" && echo >"+done+"; exit 7")
	r.Stderr = nil
	pipe, err := r.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.begin(t)
	if _, err := bufio.NewReader(pipe).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	pipe.Close()
	if status := r.status(t); status != 7 {
		t.Errorf("with a reader that is gone: %v", r.ProcessState)
	}
	if _, err := os.Stat(done); err != nil {
		t.Errorf("COMMAND was not let come to its end: %v", err)
	}

	// Names that no line has.
	for _, spec := range []string{"heap:system", "drm:vgem"} {
		r = command(t, "trace", "--exporter", spec, "--for", "1ms")
		_, name, _ := strings.Cut(spec, ":")
		if status := r.do(t); status != cli.ExitUsage {
			t.Errorf("--exporter %s: exit status %d", spec, status)
		}
		mustSay(t, r.err.String(), "--exporter "+spec, ": "+name)
	}
	// A signal ends COMMAND.
	r = command(t, "trace", "--", "sh", "-c", "kill -KILL $$")
	if status := r.do(t); status != 128+int(unix.SIGKILL) {
		t.Errorf("exit status %d", status)
	}
	mustSay(t, r.err.String(), "sh was ended by SIGKILL")
}

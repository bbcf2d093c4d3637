// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// liveTrace is `trace --json` of the whole system, read while it runs.
type liveTrace struct {
	*run
	dec *json.Decoder
	all []tracedLine
}

func startTrace(t *testing.T) *liveTrace {
	t.Helper()
	r := command(t, "trace", "--json")
	l := &liveTrace{run: r, dec: json.NewDecoder(r.piped(t))}
	r.begin(t)
	return l
}

// until reads on to the first line that is looked for.
func (l *liveTrace) until(t *testing.T, what string, found func(tracedLine) bool) tracedLine {
	t.Helper()
	for {
		var text json.RawMessage
		var line tracedLine
		if err := l.dec.Decode(&text); err != nil {
			t.Fatalf("no %s: %v\n%+v\n%s", what, err, l.all, l.err.String())
		}
		if err := errors.Join(json.Unmarshal(text, &line), lineAsTheSchemaSays(text)); err != nil {
			t.Fatal(err)
		}
		l.all = append(l.all, line)
		if found(line) {
			return line
		}
	}
}

// end is Ctrl-C, and the last line.
func (l *liveTrace) end(t *testing.T) tracedLine {
	t.Helper()
	if err := l.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	last := l.until(t, "summary", func(l tracedLine) bool { return l.Schema != "" })
	if status := l.status(t); status != cli.ExitOK || !last.OK {
		t.Errorf("exit status %d, %+v: %s", status, last, l.err.String())
	}
	return last
}

func onInode(inode uint64, event string) func(tracedLine) bool {
	return func(l tracedLine) bool {
		return l.Event == event && l.Record.Buffer != nil && l.Record.Buffer.Inode == inode
	}
}

// A program that registered before the tracer came, and goes on.
func TestVMTraceInTheMiddle(t *testing.T) {
	testenv.VM(t)
	held := command(t, "register", "--gpu", "drm:vgem", "--nic", "rxe0", "--hold", "10m", "--json")
	pipe := held.piped(t)
	held.begin(t)
	var doc parsed[registerDoc]
	if err := json.NewDecoder(pipe).Decode(&doc); err != nil {
		t.Fatalf("%v: %s", err, held.err.String())
	}
	inode := doc.Result.Memory.Inode

	tr := startTrace(t)
	if l := tr.until(t, "existing registration", onInode(inode, "existing")); !l.Record.Existed {
		t.Errorf("%+v", l.Record)
	}
	if err := held.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	tr.until(t, "end of the existing registration", onInode(inode, "released"))
	held.status(t)
	// Another program meanwhile.
	if out, err := exec.CommandContext(t.Context(), independent(t), "verify", "--exporter", "vgem", "--route", "ioctl").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	tr.until(t, "registration of another program", func(l tracedLine) bool { return l.Event == "registered" && l.Record.Comm == "dmabuf-mr" })
	if last := tr.end(t); last.Result.Summary.Events["registered"] == 0 {
		t.Errorf("%+v", last)
	}
}

// Programs that know nothing of this one, and are in the middle of it: the C program
// writes to its dma-buf, another one registers and deregisters, perftest writes to
// memory that is a dma-buf, all of which are killed; pyverbs goes on and ends well.
func TestVMTraceForeignInTheMiddle(t *testing.T) {
	testenv.VM(t)
	run := func(cmd *exec.Cmd) *exec.Cmd {
		t.Helper()
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		return cmd
	}
	start := func(name string, args ...string) *exec.Cmd {
		t.Helper()
		return run(exec.CommandContext(t.Context(), name, args...))
	}
	signal := func(p *exec.Cmd, s unix.Signal) {
		t.Helper()
		if err := p.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	inodes := map[string]uint64{}
	python := startPyverbs(t, "vgem")
	inodes["python3"] = python.inode

	t.Setenv("LD_PRELOAD", preload(t))
	t.Setenv("DMABUF_BENEATH", "vgem")
	perftest := []string{"-d", "rxe0", "-F", "-D", "120", "-s", "4096"}
	server := start("ib_write_bw", perftest...)
	awaitListener(t, 18515)
	client := start("ib_write_bw", append(perftest, "127.0.0.1")...)
	awaitMR(t, client.Process.Pid)
	inodes["ib_write_bw"] = openBuffer(t, client.Process.Pid)
	os.Unsetenv("DMABUF_BENEATH")
	os.Unsetenv("LD_PRELOAD")

	writer := start(independent(t), "bench", "--exporter", "vgem", "--route", "ioctl", "--operation", "write", "--size", "64k", "--count", "1000000")
	awaitMR(t, writer.Process.Pid)
	inodes["dmabuf-mr"] = openBuffer(t, writer.Process.Pid)
	registrar := start(independent(t), "bench", "--exporter", "virtio_gpu", "--route", "ioctl", "--size", "64k", "--count", "5000")
	openBuffer(t, registrar.Process.Pid)
	// Wherever they are, and with the processor left to the tracer meanwhile.
	killed := []*exec.Cmd{writer, server, client, registrar}
	for _, p := range killed {
		signal(p, unix.SIGSTOP)
	}

	tr := startTrace(t)
	existing := map[string]tracedLine{}
	tr.until(t, "registrations that there were", func(l tracedLine) bool {
		for comm, inode := range inodes {
			if onInode(inode, "existing")(l) {
				existing[comm] = l
			}
		}
		return len(existing) == len(inodes)
	})
	memory := "system memory" // since the attachment keeps its scatter list
	if testenv.AtLeast(t, "7.0") {
		memory = "unknown"
	}
	for comm, l := range existing {
		if rec := l.Record; !rec.Existed || rec.Duration != 0 || rec.Buffer.Driver != "vgem" || rec.MR != nil || rec.Placement.Memory != memory {
			t.Errorf("%s: %+v", comm, rec)
		}
	}
	for _, p := range killed {
		signal(p, unix.SIGCONT)
	}
	for range 20 {
		tr.until(t, "registration", func(l tracedLine) bool {
			return l.Event == "registered" && l.Record.PID == registrar.Process.Pid && l.Record.Buffer.Driver == "virtio_gpu" && l.Record.Placement.Memory == "system memory"
		})
	}
	// It would go on as fast as it can, beside the three others and the tracer.
	signal(registrar, unix.SIGSTOP)
	ended := func(comm string) {
		t.Helper()
		if l := tr.until(t, "end of what existed of "+comm, func(l tracedLine) bool {
			return onInode(inodes[comm], "released")(l) && l.Record.ID == existing[comm].Record.ID
		}); !l.Record.Existed {
			t.Errorf("%s ended: %+v", comm, l.Record)
		}
	}

	// In this order, so that the one is not seen while the other is waited for.
	signal(client, unix.SIGKILL)
	ended("ib_write_bw")
	signal(writer, unix.SIGKILL)
	ended("dmabuf-mr")
	signal(server, unix.SIGKILL)
	signal(registrar, unix.SIGKILL)

	lkey := python.again(t)
	again := tr.until(t, "pyverbs' second registration", onInode(python.inode, "registered")).Record
	if again.PID != python.Process.Pid || again.MR == nil || again.MR.LKey != lkey || again.Placement.Memory != "system memory" {
		t.Errorf("pyverbs has lkey %d on inode %d: %+v", lkey, python.inode, again)
	}
	python.end(t)
	if l := tr.until(t, "its end", onInode(python.inode, "released")); l.Record.ID != again.ID || l.Record.Ended != "deregistered" {
		t.Errorf("ended: %+v", l.Record)
	}
	ended("python3")
	last := tr.end(t)
	// What its process left to its end, one at most, ended with it.
	s := last.Result.Summary
	if len(s.Loss.Events) != 0 || len(s.Unreleased) > 1 || len(s.Unreleased) == 1 && s.Unreleased[0].Lives {
		t.Errorf("%+v", s)
	}
}

// openBuffer waits for a process to have a dma-buf open.
func openBuffer(t *testing.T, pid int) (inode uint64) {
	t.Helper()
	for end := time.Now().Add(testenv.Limit(time.Minute)); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for fd := range 32 {
			var st unix.Stat_t
			name := fmt.Sprintf("/proc/%d/fd/%d", pid, fd)
			if target, err := os.Readlink(name); err == nil && strings.HasPrefix(target, "/dmabuf:") && unix.Stat(name, &st) == nil {
				return st.Ino
			}
		}
	}
	t.Fatalf("process %d has no dma-buf open", pid)
	return 0
}

// awaitListener waits until a process listens on a port.
func awaitListener(t *testing.T, port int) {
	t.Helper()
	for end := time.Now().Add(testenv.Limit(time.Minute)); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			// "  0: 00000000:4853 00000000:0000 0A ...": TCP_LISTEN
			if regexp.MustCompile(fmt.Sprintf(`(?m)^ *\d+: \w+:%04X \w+:\w+ 0A `, port)).Match(text) {
				return
			}
		}
	}
	t.Fatalf("nobody listens on port %d", port)
}

// awaitMR waits for a process to have an MR that stays for a while.
func awaitMR(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(testenv.Limit(time.Minute)); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		out, err := exec.Command("rdma", "-j", "resource", "show", "mr").Output()
		if err != nil {
			t.Fatal(err)
		}
		var mrs []struct{ PID int }
		if err := json.Unmarshal(out, &mrs); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if slices.ContainsFunc(mrs, func(m struct{ PID int }) bool { return m.PID == pid }) {
			return
		}
	}
	t.Fatalf("process %d has made no MR", pid)
}

// ib_uverbs that comes after the tracer is attached to then.
func TestVMTraceModuleComesLater(t *testing.T) {
	testenv.VM(t)
	sh := func(script string) {
		t.Helper()
		if out, err := exec.Command("sh", "-e", "-c", script).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
	}
	restore := "modprobe rdma_rxe; rdma link show rxe0/1 >/dev/null 2>&1 || rdma link add rxe0 type rxe netdev dummy0; modprobe rdma_ucm; modprobe ib_umad || true; test -e /dev/infiniband/uverbs0"
	t.Cleanup(func() { sh(restore) })
	sh("rdma link delete rxe0; for m in rdma_rxe rdma_ucm ib_umad ib_uverbs; do ! grep -q \"^$m \" /proc/modules || modprobe -r $m; done; ! grep -q '^ib_uverbs ' /proc/modules")

	out := filepath.Join(t.TempDir(), "trace.json")
	r := command(t, "trace", "--json", "-o", out, "--", "sh", "-e", "-c",
		restore+"; i=0; until grep -q '\"event\":\"registered\"' "+out+"; do i=$((i+1)); test $i -lt 300; "+independent(t)+" verify --exporter vgem --route ioctl; sleep 0.2; done")
	if status := r.do(t); status != cli.ExitOK {
		t.Fatalf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	lines, _ := tracedLines(t, data)
	if lines[0].RDMA {
		t.Error("ib_uverbs was there already")
	}
	if !strings.Contains(r.err.String(), "ib_uverbs is watched from ") {
		t.Errorf("from when registrations are seen is not said: %s", r.err.String())
	}
	if countEvents(lines, "registered", "dmabuf-mr") == 0 {
		t.Errorf("no registration was seen after the module came:\n%s", data)
	}
}

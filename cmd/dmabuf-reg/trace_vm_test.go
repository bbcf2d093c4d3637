// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// tracedLine is a line of `trace --json` as docs/reference/json.md describes it.
type tracedLine struct {
	Schema string // of the last line only
	Event  string
	RDMA   bool
	Hooks  []struct{ Function, How, Absent string }
	Record struct {
		ID         uint64
		Call       string
		PID        int
		Comm       string
		RDMADevice string `json:"rdma_device"`
		Existed    bool
		Duration   int64 `json:"duration_ns"`
		Ended      string
		Buffer     *struct {
			Inode            uint64
			Exporter, Driver string
		}
		MR        *struct{ LKey uint32 }
		Placement struct{ Memory, Proof, Reason string }
	}
	Failure *struct {
		Stage, Function, Detail string
		Errno                   int
		Chain                   []string
	}
	OK     bool
	Status int `json:"exit_status"`
	Result *struct {
		CommandStatus *int `json:"command_status"`
		Filtered      int
		Summary       struct {
			Events     map[string]int
			Memory     map[string]int
			Refusals   map[string]int
			Latency    []struct{ Function string }
			Unreleased []struct{ Lives bool }
			Loss       struct{ Events, Missed map[string]int }
		}
	}
	Errors []struct{ Kind, Message, Remedy string }
}

// tracedLines reads the whole of an output.
func tracedLines(t *testing.T, data []byte) (lines []tracedLine, last tracedLine) {
	t.Helper()
	sc := bufio.NewScanner(bytes.NewReader(data))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var l tracedLine
		if err := lineAsTheSchemaSays(sc.Bytes()); err != nil {
			t.Error(err)
		}
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			t.Fatalf("%v in %s", err, sc.Text())
		}
		lines = append(lines, l)
	}
	if len(lines) == 0 || lines[len(lines)-1].Schema != app.Schema {
		t.Fatalf("no document at the end of %d lines:\n%s", len(lines), data)
	}
	last = lines[len(lines)-1]
	return lines[:len(lines)-1], last
}

// piped makes stdout readable while the command runs.
func (r *run) piped(t *testing.T) io.Reader {
	t.Helper()
	r.Stdout = nil
	pipe, err := r.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	return pipe
}

func countEvents(lines []tracedLine, event, comm string) (n int) {
	for _, l := range lines {
		if l.Event == event && (comm == "" || l.Record.Comm == comm) {
			n++
		}
	}
	return n
}

// independent is the C program that shares no code with this project.
func independent(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("dmabuf-mr") // the guest has what is built for it on its path
	if err != nil {
		t.Fatalf("%v: `make cprog` builds it", err)
	}
	return path
}

// preload is the library by which Debian's libibverbs and perftest register
// dma-bufs with rxe (testbed/cprog/preload.c). It shares no code with this project.
func preload(t *testing.T) string {
	t.Helper()
	return filepath.Join(filepath.Dir(independent(t)), "preload.so")
}

// pyverbs registers host memory and a buffer of the DRM driver that it is told, and
// says how it knows that. With another argument it waits for a line of stdin, before it
// registers once more, and again before it ends.
const pyverbs = `
import ctypes, fcntl, glob, os, struct, sys
import pyverbs.device as d, pyverbs.pd as p, pyverbs.mr as m, pyverbs.enums as e

for node in glob.glob('/dev/dri/card*'):
    card = os.open(node, os.O_RDWR)
    name = bytearray(64)
    at = (ctypes.c_char * 64).from_buffer(name)
    version = bytearray(struct.pack('iiiQQQQQQ', 0, 0, 0, 63, ctypes.addressof(at), 0, 0, 0, 0))
    fcntl.ioctl(card, 0xc0406400, version)  # DRM_IOCTL_VERSION
    if name.rstrip(b'\0').decode() == sys.argv[1]:
        break
dumb = bytearray(struct.pack('IIIIIIQ', 64, 1024, 32, 0, 0, 0, 0))
fcntl.ioctl(card, 0xc02064b2, dumb)  # DRM_IOCTL_MODE_CREATE_DUMB
prime = bytearray(struct.pack('IIi', struct.unpack('IIIIIIQ', dumb)[4], os.O_RDWR, -1))
fcntl.ioctl(card, 0xc00c642d, prime)  # DRM_IOCTL_PRIME_HANDLE_TO_FD
fd = struct.unpack('IIi', prime)[2]

access = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
pd = p.PD(d.Context(name='rxe0'))
host = m.MR(pd, 4096, access)
def register():
    mr = m.DmaBufMR(pd, 65536, access, fd, offset=4096)
    print('inode', os.fstat(fd).st_ino, 'lkey', mr.lkey, flush=True)
    return mr
first = register()
if len(sys.argv) > 2:
    sys.stdin.readline()
    second = register()
    sys.stdin.readline()
    second.close()
first.close()
`

// pyverbsLine is what pyverbs says of a registration.
const pyverbsLine = "inode %d lkey %d\n"

// pyverbsProcess is pyverbs in the middle of its life.
type pyverbsProcess struct {
	*exec.Cmd
	stdin  io.Writer
	stdout io.Reader
	inode  uint64
}

// startPyverbs returns when pyverbs has registered.
func startPyverbs(t *testing.T, driver string) *pyverbsProcess {
	t.Helper()
	p := &pyverbsProcess{Cmd: exec.CommandContext(t.Context(), "python3", "-c", pyverbs, driver, "wait")}
	p.Env = append(os.Environ(), "LD_PRELOAD="+preload(t))
	p.Stderr = os.Stderr
	stdin, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Process.Kill()
		p.Wait()
	})
	p.stdin, p.stdout = stdin, stdout
	p.inode, _ = p.says(t)
	return p
}

func (p *pyverbsProcess) says(t *testing.T) (inode uint64, lkey uint32) {
	t.Helper()
	if _, err := fmt.Fscanf(p.stdout, pyverbsLine, &inode, &lkey); err != nil {
		t.Fatal(err)
	}
	return inode, lkey
}

// again registers the same buffer a second time.
func (p *pyverbsProcess) again(t *testing.T) (lkey uint32) {
	t.Helper()
	fmt.Fprintln(p.stdin)
	_, lkey = p.says(t)
	return lkey
}

// end deregisters all.
func (p *pyverbsProcess) end(t *testing.T) {
	t.Helper()
	fmt.Fprintln(p.stdin)
	if err := p.Wait(); err != nil {
		t.Errorf("pyverbs: %v", err)
	}
}

// Programs that know nothing of this one, traced from outside: the C program
// registers dma-bufs, and so do perftest and pyverbs, with the operation that
// Debian's provider lacks. The host memory that both register is not reported.
func TestVMTraceForeign(t *testing.T) {
	testenv.VM(t)
	out := filepath.Join(t.TempDir(), "trace.json")
	prog := independent(t)
	// One side of perftest registers a dma-buf, a while after the other's memory:
	// where the kernel preempts itself, it skips programs that are in use, which is
	// counted, makes what is under way unknown, and is another test's.
	script := prog + ` verify --exporter vgem --route ioctl || exit
		pair() {
			$1 -d rxe0 -F -n 50 -s 4096 >/dev/null & server=$!
			until ss -Hltn "sport = :18515" | grep -q .; do kill -0 $server || return; sleep 0.1; done
			env $2 $1 -d rxe0 -F -n 50 -s 4096 127.0.0.1 >/dev/null && wait $server
		}
		pair ib_send_bw || exit
		export LD_PRELOAD=$PRELOAD
		pair ib_write_bw 'DMABUF_BENEATH=vgem DMABUF_WAIT=2' || exit
		python3 -c "$PYVERBS" vgem >&2 && exit 7`
	r := command(t, "trace", "--json", "--output", out, "--", "sh", "-c", script)
	r.Env = append(r.Env, "PYVERBS="+pyverbs, "PRELOAD="+preload(t))
	if status := r.do(t); status != 7 {
		t.Fatalf("exit status %d, the command's is 7\n%s%s", status, r.out.String(), r.err.String())
	}
	if !strings.Contains(r.out.String(), `"ok":true`) || strings.Contains(r.out.String(), "registered") {
		t.Errorf("the command's own stdout: %q", r.out.String())
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	lines, last := tracedLines(t, data)
	if lines[0].Event != "tracing" || !lines[0].RDMA || len(lines[0].Hooks) < 15 {
		t.Errorf("first line %+v", lines[0])
	}
	made := countEvents(lines, "registered", "")
	byC := countEvents(lines, "registered", "dmabuf-mr")
	for comm, n := range map[string]int{"dmabuf-mr": byC, "ib_write_bw": 1, "python3": 1} {
		if now, gone := countEvents(lines, "registered", comm), countEvents(lines, "released", comm); n == 0 || now != n || gone != n {
			t.Errorf("%s: %d registered, %d released, want %d", comm, now, gone, n)
		}
	}
	if byC+2 != made {
		t.Errorf("%d registered in all, %d of them by the C program", made, byC)
	}
	var inode uint64
	var lkey uint32
	said := r.err.String()
	if at := strings.Index(said, "inode "); at < 0 {
		t.Fatalf("pyverbs said nothing: %s", said)
	} else if _, err := fmt.Sscanf(said[at:], pyverbsLine, &inode, &lkey); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	for _, l := range lines {
		rec := l.Record
		if l.Event == "registered" && (rec.RDMADevice != "rxe0" || rec.Buffer == nil || rec.Buffer.Driver != "vgem" || rec.MR == nil ||
			rec.Placement.Memory != "system memory" || rec.Placement.Proof != "struct page") {
			t.Errorf("%+v", rec)
			continue
		}
		if l.Event == "registered" && rec.Comm == "python3" && (rec.MR.LKey != lkey || rec.Buffer.Inode != inode) {
			t.Errorf("%+v, %+v: pyverbs has lkey %d on inode %d", rec.Buffer, rec.MR, lkey, inode)
		}
	}
	s := last.Result.Summary
	if last.Status != 7 || last.Result.CommandStatus == nil || *last.Result.CommandStatus != 7 || s.Events["registered"] != made ||
		s.Memory["system memory"] != made || len(s.Unreleased) != 0 || len(s.Loss.Events) != 0 || len(s.Latency) < 5 {
		t.Errorf("last line %+v: %+v", last, s)
	}
}

// explain says in words what another program did, and what it was refused;
// a second tracer at the same time sees the same.
func TestVMExplainForeign(t *testing.T) {
	testenv.VM(t)
	out := filepath.Join(t.TempDir(), "words")
	prog := independent(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := prog + ` verify --exporter vgem --route ioctl >/dev/null;
		` + prog + ` verify --exporter vgem --route ioctl --size 64k --length 128k >/dev/null 2>&1;
		` + prog + ` verify --exporter vgem --route ioctl --offset 16 --iova 32 --length 4k >/dev/null 2>&1; true`
	r := command(t, "explain", "--output", out, "--", self, "trace", "--json", "-o", "-", "--", "sh", "-c", script)
	if status := r.do(t); status != cli.ExitOK {
		t.Fatalf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	words := string(text)
	t.Log(words)
	place := "differ in their place within a page"
	if !testenv.HasTypes("ib_uverbs") {
		place = "or the checks before it" // the arguments are hidden behind these
	}
	for _, want := range []string{
		"registration 1: REG_DMABUF_MR on rxe0 by dmabuf-mr", "system memory", "dma_buf_dynamic_attach",
		"does not fit the buffer of 0x10000 bytes", "stage range", "<- refused",
		place, "released: deregistered",
	} {
		if !strings.Contains(words, want) {
			t.Errorf("not said: %q", want)
		}
	}
	lines, last := tracedLines(t, r.out.Bytes())
	if countEvents(lines, "registered", "dmabuf-mr") == 0 || countEvents(lines, "refused", "dmabuf-mr") != 2 {
		t.Errorf("the second tracer saw %v", last.Result.Summary.Events)
	}
	for _, l := range lines {
		if l.Event == "refused" && (l.Failure == nil || l.Failure.Errno != int(unix.EINVAL) || len(l.Failure.Chain) == 0) {
			t.Errorf("refused without a reason: %+v", l.Failure)
		}
	}
}

// In a PID namespace of its own, as in a container, the numbers of processes
// are not the kernel's.
func TestVMTraceInContainer(t *testing.T) {
	testenv.VM(t)
	inside := func(args ...string) *run {
		r := command(t, args...)
		r.Args = append([]string{"unshare", "--pid", "--fork", "--mount-proc", r.Path}, r.Args[1:]...)
		path, err := exec.LookPath("unshare")
		if err != nil {
			t.Fatal(err)
		}
		r.Path = path
		return r
	}
	out := filepath.Join(t.TempDir(), "trace.json")
	r := inside("trace", "--json", "-o", out, "--", independent(t), "verify", "--exporter", "vgem", "--route", "ioctl")
	if status := r.do(t); status != cli.ExitOK {
		t.Fatalf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if lines, _ := tracedLines(t, data); countEvents(lines, "registered", "dmabuf-mr") == 0 {
		t.Errorf("no registration was seen:\n%s", data)
	}
	r = inside("trace", "--json", "--pid", "1")
	status := r.do(t)
	_, last := tracedLines(t, r.out.Bytes())
	if status != cli.ExitUnavailable || len(last.Errors) != 1 || !strings.Contains(last.Errors[0].Message, "--cgroup") {
		t.Errorf("--pid in a container: exit status %d, %+v", status, last.Errors)
	}
}

// The command names the missing privileges before it starts the program.
func TestVMTraceNoPermission(t *testing.T) {
	testenv.VM(t)
	r := command(t, "trace", "--json", "--", "true")
	r.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	r.Dir = "/"
	status := r.do(t)
	_, last := tracedLines(t, r.err.Bytes())
	if status != cli.ExitFailed || len(last.Errors) != 1 {
		t.Fatalf("exit status %d: %+v", status, last.Errors)
	}
	if e := last.Errors[0]; !strings.Contains(e.Message, "CAP_BPF") || !strings.Contains(e.Message, "CAP_PERFMON") || e.Remedy != "run as root" {
		t.Errorf("%+v", e)
	}
}

// register and verify say where the bytes are, or which function refused.
func TestVMRegisterTraced(t *testing.T) {
	testenv.VM(t)
	type placed struct{ Memory, Proof string }
	r := command(t, "register", "--trace", "--json", "--gpu", "drm:vgem", "--nic", "rxe0", "--count", "2")
	if status := r.do(t); status != cli.ExitOK {
		t.Fatalf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
	reg := parse[struct{ MRs []struct{ Placement *placed } }](t, r.out.Bytes())
	for _, mr := range reg.Result.MRs {
		if mr.Placement == nil || mr.Placement.Memory != "system memory" || mr.Placement.Proof == "no proof" {
			t.Errorf("placement %+v", mr.Placement)
		}
	}
	if len(reg.Result.MRs) != 2 {
		t.Errorf("%d MRs", len(reg.Result.MRs))
	}

	r = command(t, "register", "--trace", "--json", "--skip-checks", "--gpu", "drm:vgem", "--nic", "rxe0", "--size", "64KiB", "--length", "0x20000")
	if status := r.do(t); status != cli.ExitFailed {
		t.Fatalf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
	bad := parse[struct {
		Failure *struct {
			Stage string
			Errno int
		}
	}](t, r.out.Bytes())
	if f := bad.Result.Failure; f == nil || f.Stage != "range" || f.Errno != int(unix.EINVAL) {
		t.Errorf("failure %+v", f)
	}

	// The traced functions narrow down the stages that the error names.
	r = command(t, "register", "--trace", "--json", "--skip-checks", "--gpu", "drm:vgem", "--nic", "rxe0", "--length", "0")
	if status := r.do(t); status != cli.ExitFailed {
		t.Fatalf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
	none := parse[struct {
		Failure *struct{ Stage, Remedy string }
	}](t, r.out.Bytes())
	if f := none.Result.Failure; f == nil || f.Stage != "range" || f.Remedy == "" {
		t.Errorf("length 0: failure %+v", f)
	}
	if e := none.Errors; len(e) != 1 || e[0].Stage == nil || e[0].Stage.Earliest != "get" || e[0].Stage.Latest != "get" {
		t.Errorf("length 0: errors %+v", e)
	}

	// The kernel has not refused what it was not asked.
	r = command(t, "register", "--trace", "--json", "--gpu", "drm:vgem", "--nic", "rxe0", "--offset", "1GiB")
	if status := r.do(t); status != cli.ExitFailed {
		t.Fatalf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
	if f := parse[struct{ Failure *struct{ Stage string } }](t, r.out.Bytes()).Result.Failure; f != nil {
		t.Errorf("refused beforehand: failure %+v", f)
	}

	r = command(t, "verify", "--trace", "--json", "--gpu", "drm:vgem", "--nic", "rxe0", "--size", "1MiB", "--case", "whole buffer")
	if status := r.do(t); status != cli.ExitOK {
		t.Fatalf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
	ver := parse[struct{ Rows []struct{ Placement *placed } }](t, r.out.Bytes())
	if len(ver.Result.Rows) != 1 || ver.Result.Rows[0].Placement == nil || ver.Result.Rows[0].Placement.Memory != "system memory" {
		t.Errorf("rows %+v", ver.Result.Rows)
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

type (
	workingDoc struct {
		Listen, Protection string
		NICs               []struct {
			Name, Memory, Path, Why string
			Port                    int
		} `json:"worker_nics"`
	}
	meshDoc struct {
		Nodes []struct {
			Addr, Host string
			Lost       bool
			Fault      *struct{ Cause, Step, Text string }
		}
		NICs  []struct{ Node, Rail int }
		Links []struct {
			A, B    int
			State   string
			AtoB    float64 `json:"a_to_b_bytes_per_s"`
			BtoA    float64 `json:"b_to_a_bytes_per_s"`
			Latency int64   `json:"latency_p50_ns"`
			Over    string
			Fault   *struct{ Cause, Step, Text string }
		}
		Matrix [][]struct {
			State string
			Bad   int
		}
		Interrupted bool
	}
)

// meshWorker is a worker that runs.
type meshWorker struct {
	*run
	doc  workingDoc
	says told // stderr
}

func startWorker(t *testing.T, args ...string) *meshWorker {
	t.Helper()
	w := &meshWorker{run: command(t, append([]string{"mesh", "--worker", "--json", "--listen", "127.0.0.1:0", "--nic", "rxe0", "--size", "256KiB", "--timeout", stepLimit}, args...)...)}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w.Stdout, w.Stderr = in, &w.says
	w.begin(t)
	in.Close() // the child has its own
	w.doc = parse[workingDoc](t, firstDocument(t, out)).Result
	if w.doc.Listen == "" || len(w.doc.NICs) != 1 || w.doc.NICs[0].Port == 0 {
		t.Fatalf("%+v", w.doc)
	}
	return w
}

// freeAgain waits until no coordinator has the worker. A coordinator that has ended is a moment ahead of its workers.
func (w *meshWorker) freeAgain(t *testing.T) {
	t.Helper()
	for w.running(t) { // the test's timeout ends it otherwise
		text := w.says.String()
		if strings.Count(text, "has this worker\n") == strings.Count(text, " is done: ")+strings.Count(text, " has ended after ") {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("the worker has ended: %s", w.says.String())
}

// meshing is a coordinator over workers.
func meshing(t *testing.T, workers []*meshWorker, args ...string) *run {
	t.Helper()
	list := []string{"mesh", "--timeout", stepLimit, "--op-size", "64KiB", "--volume", "512KiB", "--small", "20", "--slow", "99"}
	for _, w := range workers {
		list = append(list, w.doc.Listen)
	}
	return command(t, append(list, args...)...)
}

// Eight processes are nodes of a mesh: each pair of them is measured. Then one of them is killed in the middle,
// and Ctrl-C ends the run; the others go on to take orders, and nothing is left when they have ended.
//
//testbed:kernel 7.2 6.12
func TestVMMesh(t *testing.T) {
	testenv.VM(t)
	before := leftBehind(t)
	var workers []*meshWorker
	for range 8 {
		workers = append(workers, startWorker(t, "--gid", "ipv4"))
	}

	report := filepath.Join(t.TempDir(), "mesh.json")
	r := meshing(t, workers, "--report", report)
	if status := r.do(t); status != cli.ExitOK || !strings.Contains(r.out.String(), "\nPASS: every pair is reached") || !strings.Contains(r.out.String(), "7 of 7") {
		t.Fatalf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
	t.Logf("\n%s", r.out.String())
	if data, err := os.ReadFile(report); err != nil {
		t.Error(err)
	} else if err := schemas.Check("dmabuf-reg/mesh-report", data); err != nil {
		t.Error(err)
	}

	r = meshing(t, workers, "--json")
	if status := r.do(t); status != cli.ExitOK {
		t.Fatalf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
	d := parse[meshDoc](t, r.out.Bytes()).Result
	if len(d.Links) != 28 || len(d.Matrix) != 8 {
		t.Fatalf("%+v", d)
	}
	for _, l := range d.Links {
		if l.State != "reached" || l.AtoB <= 0 || l.BtoA <= 0 || l.Latency <= 0 || !strings.Contains(l.Over, "rxe0") {
			t.Errorf("%+v", l)
		}
	}

	// Long measurements, in which a worker dies, and then the run is ended.
	long := []string{"--json", "--volume", "8GiB", "--time", "30s", "--small", "1", "--parallel", "1"}
	r = meshing(t, workers, long...)
	var says told
	r.Stderr = &says
	r.begin(t)
	moving(t, "rxe0")
	if err := workers[7].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(says.String(), "is lost") && r.running(t) { // the test's timeout ends it otherwise
		time.Sleep(20 * time.Millisecond)
	}
	if err := r.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if status := r.status(t); status != cli.ExitInterrupted {
		t.Errorf("exit status %d\n%s%s", status, r.out.String(), says.String())
	}
	d = parse[meshDoc](t, r.out.Bytes()).Result
	if !d.Interrupted || !d.Nodes[7].Lost || d.Nodes[7].Fault == nil || d.Nodes[0].Lost {
		t.Errorf("interrupted %v, %+v", d.Interrupted, d.Nodes)
	}
	_ = workers[7].Wait()

	// One worker less, and one that reaches no other: its GID is of another family.
	for _, w := range workers[:3] {
		w.freeAgain(t)
	}
	other := startWorker(t, "--gid", "ipv6")
	some := []*meshWorker{workers[0], workers[1], workers[2], workers[7], other}
	r = meshing(t, some, "--json", "--wait", "0s")
	if status := r.do(t); status != cli.ExitFailed {
		t.Errorf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
	d = parse[meshDoc](t, r.out.Bytes()).Result
	if f := d.Nodes[3].Fault; f == nil || f.Cause != "refused" || d.Nodes[3].Lost {
		t.Errorf("%+v", d.Nodes[3])
	}
	for _, l := range d.Links {
		with := slices.Contains([]int{l.A, l.B}, 3) // the NIC of the fifth node
		if (l.State == "unreached") != with || with && (l.Fault == nil || l.Fault.Cause == "" || l.Fault.Text == "") {
			t.Errorf("%+v: %+v", l, l.Fault)
		}
		if with {
			t.Logf("%+v", l.Fault)
		}
	}

	for _, w := range append(workers[:7], other) {
		if err := w.Process.Signal(unix.SIGINT); err != nil {
			t.Fatal(err)
		}
		if status := w.status(t); status != cli.ExitInterrupted {
			t.Errorf("exit status %d after SIGINT: %s", status, w.says.String())
		}
	}
	nothingMore(t, before)
}

// Mutual TLS protects orders and measurements; without it only loopback addresses are used.
//
//testbed:kernel 7.2
func TestVMMeshTLS(t *testing.T) {
	testenv.VM(t)
	dir, foreign := testenv.Certificates(t), testenv.Certificates(t)
	var workers []*meshWorker
	for range 2 {
		workers = append(workers, startWorker(t, withTLS(dir, "a")...))
	}
	r := meshing(t, workers, withTLS(dir, "b")...)
	if status := r.do(t); status != cli.ExitOK || !strings.Contains(r.out.String(), "whether a node is slow is not known") {
		t.Errorf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
	for _, args := range [][]string{withTLS(foreign, "b"), nil} {
		r = meshing(t, workers, append([]string{"--wait", "0s"}, args...)...)
		if status := r.do(t); status != cli.ExitUnavailable || !strings.Contains(r.out.String(), "NO WORKER") {
			t.Errorf("%q: exit status %d\n%s%s", args, status, r.out.String(), r.err.String())
		}
		t.Logf("\n%s", r.out.String())
	}
	r = command(t, "mesh", "--worker", "--listen", "0.0.0.0:0", "--nic", "rxe0")
	if status := r.do(t); status != cli.ExitFailed || !strings.Contains(r.err.String(), "--plaintext") {
		t.Errorf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
}

// Workers move bytes of an exporter's memory, and say how the NIC reaches it.
//
//testbed:kernel 7.2
func TestVMMeshMemory(t *testing.T) {
	testenv.VM(t)
	before := leftBehind(t)
	workers := []*meshWorker{
		startWorker(t, "--gpu", "udmabuf", "--trace"),
		startWorker(t, "--gpu", "udmabuf", "--policy", "staged"),
		startWorker(t, "--gpu", "drm:vgem", "--policy", "direct"),
	}
	for i, want := range []struct{ path, why string }{{"direct", "system memory"}, {"staged", "asked for by --policy"}, {"direct", "registered by"}} {
		if n := workers[i].doc.NICs[0]; n.Path != want.path || !strings.Contains(n.Why, want.why) || n.Memory == "host" {
			t.Errorf("%+v", n)
		}
	}
	r := meshing(t, workers, "--json")
	if status := r.do(t); status != cli.ExitOK {
		t.Errorf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
	for _, l := range parse[meshDoc](t, r.out.Bytes()).Result.Links {
		if l.State != "reached" || l.AtoB <= 0 || l.BtoA <= 0 {
			t.Errorf("%+v: %+v", l, l.Fault)
		}
	}
	for _, w := range workers {
		if err := w.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if status := w.status(t); status != cli.ExitInterrupted {
			t.Errorf("exit status %d after SIGTERM: %s", status, w.says.String())
		}
	}
	nothingMore(t, before)
}

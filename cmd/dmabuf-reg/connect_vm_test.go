// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/peer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

type (
	serveDoc struct {
		Listen, Protection, Metrics string
		Local                       localDoc
	}
	localDoc struct {
		Path, Why string
		Placement *struct{ Memory string }
		Failure   *struct{ Stage string }
	}
	connectDoc struct {
		Local  localDoc
		Remote struct {
			Spec string
			Size int64
			Path string
			Why  string
		}
		Rows []struct {
			Op, Direction string
			Size, Count   int64
			OK            bool
			Verified      int64 `json:"verified_bytes"`
			Elapsed       int64 `json:"elapsed_ns"`
		}
	}
)

// stepLimit is the --timeout of both sides.
var stepLimit = testenv.Limit(30 * time.Second).String()

// served is a `serve` that runs.
type served struct {
	*run
	doc  parsed[serveDoc]
	says told // stderr
}

// told is what a process that runs has said so far.
type told struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *told) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *told) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func serving(t *testing.T, args ...string) *served {
	t.Helper()
	s := &served{run: command(t, append([]string{"serve", "--json", "--listen", "127.0.0.1:0", "--nic", "rxe0", "--size", "256KiB", "--timeout", stepLimit}, args...)...)}
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.Stdout, s.Stderr = w, &s.says
	s.begin(t)
	w.Close() // the child has its own
	s.doc = parse[serveDoc](t, firstDocument(t, out))
	if s.doc.Result.Listen == "" {
		t.Fatalf("%+v", s.doc)
	}
	return s
}

// ends sends SIGINT and waits for what comes of it.
func (s *served) ends(t *testing.T) {
	t.Helper()
	if err := s.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if status := s.status(t); status != cli.ExitInterrupted {
		t.Errorf("exit status %d after SIGINT: %s", status, s.says.String())
	}
}

func connecting(t *testing.T, s *served, args ...string) *run {
	if !slices.Contains(args, "--sizes") { // the flag given twice is both
		args = append(args, "--sizes", "1,4097,32KiB")
	}
	return command(t, append([]string{"connect", s.doc.Result.Listen, "--json", "--nic", "rxe0", "--size", "256KiB", "--timeout", stepLimit, "--count", "4"}, args...)...)
}

// Ctrl-C under a transfer is no verdict on it, and leaves nothing.
func TestVMConnectInterrupted(t *testing.T) {
	testenv.VM(t)
	before := leftBehind(t)
	s := serving(t, "--size", "8MiB")
	r := command(t, "connect", s.doc.Result.Listen, "--nic", "rxe0", "--size", "8MiB", "--timeout", stepLimit, "--ops", "write", "--sizes", "8MiB", "--count", "256")
	r.begin(t)
	moving(t, "rxe0")
	if err := r.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if got := r.status(t); got != cli.ExitInterrupted || !strings.Contains(r.err.String(), "interrupted") || !strings.Contains(r.out.String(), "NO VERDICT: it was interrupted before the first of 1") {
		t.Errorf("exit status %d\n%s%s", got, r.out.String(), r.err.String())
	}
	s.ends(t)
	nothingMore(t, before)
}

// connected runs `connect`, which must succeed.
func connected(t *testing.T, s *served, args ...string) connectDoc {
	t.Helper()
	r := connecting(t, s, args...)
	if status := r.do(t); status != cli.ExitOK {
		t.Fatalf("exit status %d\n%s%s\nserve says: %s", status, r.out.String(), r.err.String(), s.says.String())
	}
	d := parse[connectDoc](t, r.out.Bytes())
	for _, row := range d.Result.Rows {
		if !row.OK || row.Verified < row.Size || row.Elapsed <= 0 {
			t.Errorf("%+v", row)
		}
	}
	return d.Result
}

// Every operation, by either side, on every pair of paths; and nothing is left
// when both are gone.
func TestVMServeConnect(t *testing.T) {
	testenv.VM(t)
	before := leftBehind(t)
	s := serving(t, "--gpu", "drm:vgem", "--policy", "direct")
	if p := s.doc.Result; p.Local.Path != "direct" || p.Protection != "loopback" {
		t.Errorf("%+v", p)
	}
	d := connected(t, s, "--gpu", "drm:vgem", "--policy", "direct", "--both")
	if len(d.Rows) != 2*(3*3+1) || d.Local.Path != "direct" || d.Remote.Path != "direct" {
		t.Errorf("%d rows, here %+v, there %+v", len(d.Rows), d.Local, d.Remote)
	}
	d = connected(t, s, "--gpu", "drm:vgem", "--policy", "staged", "--both", "--sizes", "4097")
	if len(d.Rows) != 2*(3+1) || d.Local.Path != "staged" || d.Local.Why == "" {
		t.Errorf("%d rows, here %+v", len(d.Rows), d.Local)
	}
	d = connected(t, s, "--gpu", "host", "--ops", "write,atomic")
	if len(d.Rows) != 3+1 || d.Local.Path != "host" {
		t.Errorf("%d rows, here %+v", len(d.Rows), d.Local)
	}
	r := connecting(t, s, "--gpu", "host", "--sizes", "512KiB")
	if status := r.do(t); status != cli.ExitUsage || !strings.Contains(r.out.String(), "--size") {
		t.Errorf("too large: exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
	s.ends(t)

	s = serving(t, "--gpu", "drm:vgem", "--policy", "staged", "--once")
	d = connected(t, s, "--gpu", "drm:vgem", "--both", "--sizes", "4097")
	if d.Remote.Path != "staged" || d.Remote.Why != "asked for by --policy" {
		t.Errorf("%+v", d.Remote)
	}
	if status := s.status(t); status != cli.ExitOK {
		t.Errorf("serve --once: exit status %d: %s", status, s.says.String())
	}
	nothingMore(t, before)
}

// The same over rdma_cm, whose addresses are other machines'.
//
//testbed:kernel 6.12
func TestVMServeConnectOverRDMACM(t *testing.T) {
	testenv.VM(t)
	s := serving(t, "--gpu", "host", "--listen", "rdma_cm://10.9.0.1:0", "--plaintext")
	if p := s.doc.Result; p.Protection != "none" || !strings.HasPrefix(p.Listen, "rdma_cm://10.9.0.1:") {
		t.Errorf("%+v", p)
	}
	r := connecting(t, s, "--gpu", "host")
	if status := r.do(t); status != cli.ExitFailed || !strings.Contains(r.out.String(), "--plaintext") {
		t.Errorf("in the clear without a word: exit status %d\n%s", status, r.out.String())
	}
	connected(t, s, "--gpu", "host", "--plaintext", "--both", "--sizes", "4097")
	s.ends(t)
}

// With mutual TLS unknown clients are rejected, and told what may be wrong.
func TestVMServeConnectTLS(t *testing.T) {
	testenv.VM(t)
	ours, theirs := testenv.Certificates(t), testenv.Certificates(t)
	s := serving(t, append(withTLS(ours, "a"), "--gpu", "host")...)
	if p := s.doc.Result; p.Protection != "TLS" {
		t.Errorf("%+v", p)
	}
	rejected := 0
	for name, args := range map[string][]string{"plain": nil, "another CA": withTLS(theirs, "b")} {
		r := connecting(t, s, append(args, "--gpu", "host")...)
		if status := r.do(t); status != cli.ExitFailed {
			t.Errorf("%s: exit status %d\n%s", name, status, r.out.String())
		}
		d := parse[connectDoc](t, r.out.Bytes())
		if len(d.Errors) != 1 || d.Errors[0].Op != "connect" || d.Errors[0].Remedy == "" {
			t.Errorf("%s: %+v", name, d.Errors)
		}
		t.Log(name, d.Errors)
		rejected++
		for end := time.Now().Add(testenv.Limit(time.Minute)); strings.Count(s.says.String(), " was rejected: ") < rejected; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: serve says %q", name, s.says.String())
			}
		}
	}
	connected(t, s, append(withTLS(ours, "b"), "--gpu", "host", "--ops", "write", "--sizes", "64")...)
	s.ends(t)
}

// Connections that fail, and connections that the commands refuse to make.
//
//testbed:kernel 6.12
func TestVMServeConnectRefused(t *testing.T) {
	testenv.VM(t)
	before := leftBehind(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	free.Close()
	for _, tt := range []struct {
		name    string
		args    []string
		errno   string
		mention string
	}{
		{"nobody listens", []string{"connect", addr}, "ECONNREFUSED", "dmabuf-reg serve --listen"},
		{"no TLS on another address", []string{"serve", "--listen", "0.0.0.0:0"}, "", "--plaintext"},
		{"an address that is not ours", []string{"serve", "--listen", "192.0.2.1:1"}, "EADDRNOTAVAIL", "--listen"},
		{"a GID that is not there", []string{"serve", "--gid", "192.0.2.1"}, "EADDRNOTAVAIL", "/sys/class/infiniband/rxe0/ports/*/gids"},
		{"nor here", []string{"connect", addr, "--gid", "192.0.2.1,v2"}, "EADDRNOTAVAIL", "/sys/class/infiniband/rxe0/ports/*/gids"},
		{"no certificate", []string{"serve", "--tls-cert", "/nope", "--tls-key", "/nope", "--tls-ca", "/nope"}, "ENOENT", "--tls-cert"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := command(t, append(tt.args, "--json", "--gpu", "host", "--nic", "rxe0")...)
			if status := r.do(t); status != cli.ExitFailed {
				t.Fatalf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
			}
			d := parse[any](t, r.out.Bytes())
			if len(d.Errors) != 1 || !strings.Contains(d.Errors[0].Remedy, tt.mention) || tt.errno != "" && (d.Errors[0].Errno == nil || d.Errors[0].Errno.Name != tt.errno) {
				t.Errorf("%+v", d.Errors)
			}
		})
	}
	nothingMore(t, before)
}

// guest is a client of a server that says what it likes.
type guest struct {
	*peer.Line
	t *testing.T
}

func visit(t *testing.T, s *served) *guest {
	t.Helper()
	f := station.Flags{GPU: station.Host, NIC: "rxe0", Size: 1 << 12, Timeout: testenv.Limit(20 * time.Second)}
	st, err := f.Open(t.Context(), engine.EndpointOptions{})
	if err != nil {
		t.Fatal(err)
	}
	over, err := st.Connect(t.Context(), s.doc.Result.Listen)
	if err != nil {
		t.Fatal(err)
	}
	l, err := peer.NewLine(st, over)
	if err != nil {
		t.Fatal(err)
	}
	l.Pull = peer.Pull(over.Take)
	t.Cleanup(func() {
		if err := l.HangUp(); err != nil {
			t.Error(err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return &guest{l, t}
}

// tries sends something and returns the answer, if one comes.
func (g *guest) tries(b []byte) (a talk.Answer, err error) {
	g.t.Helper()
	err = g.Within(g.t.Context(), "ask", func(ctx context.Context) error {
		if err := g.Listen(); err != nil {
			return err
		}
		if err := g.Say(ctx, b); err != nil {
			return err
		}
		data, err := g.Hear(ctx)
		if err != nil {
			return err
		}
		return a.Decode(data)
	})
	return a, err
}

// Clients that talk nonsense, ask for what is not theirs or go without a word
// get nowhere, and the server serves on.
//
//testbed:kernel 6.12
func TestVMServeConnectHostile(t *testing.T) {
	testenv.VM(t)
	before := leftBehind(t)
	s := serving(t, "--gpu", "drm:vgem")
	hello := (&talk.Request{Kind: talk.Hello}).Append(nil)

	t.Run("guests", func(t *testing.T) {
		// The version that there is not yet.
		later := bytes.Clone(hello)
		later[5]++
		if a, err := visit(t, s).tries(later); err != nil || a.Status != talk.Differs || a.Text[0] == "" {
			t.Errorf("another version: %+v, %v", a, err)
		}
		for name, data := range map[string][]byte{
			"noise": []byte("GET / HTTP/1.0\r\n\r\n"), "nothing": {0}, "too long": make([]byte, talk.MaxMessage), "half": hello[:len(hello)/2],
		} {
			if a, err := visit(t, s).tries(data); err == nil {
				t.Errorf("%s was answered: %+v", name, a)
			}
		}
		fill := (&talk.Request{Kind: talk.Fill, Work: talk.Work{Size: 64}}).Append(nil)
		if a, err := visit(t, s).tries(fill); err != nil || a.Status != talk.Failed {
			t.Errorf("without a hello: %+v, %v", a, err)
		}

		owner := visit(t, s)
		if a, err := owner.tries(hello); err != nil || a.Status != talk.Done {
			t.Fatalf("hello: %+v, %v", a, err)
		}
		r := connecting(t, s, "--gpu", "host")
		if status := r.do(t); status != cli.ExitFailed || !strings.Contains(r.out.String(), "another client") {
			t.Errorf("a second client: exit status %d\n%s", status, r.out.String())
		}
		for name, q := range map[string]talk.Request{
			"nothing offered":   {Kind: talk.Run, Op: talk.Write, Work: talk.Work{Size: 64, Count: 1, Slots: 1}},
			"too many messages": {Kind: talk.Receive, Work: talk.Work{Size: 1, Count: station.MaxAtOnce + 1, Slots: 1}},
		} {
			if a, err := owner.tries(q.Append(nil)); err != nil || a.Status != talk.Failed || a.Text[0] == "" {
				t.Errorf("%s: %+v, %v", name, a, err)
			}
		}
		past := talk.Request{Kind: talk.Fill, Work: talk.Work{Offset: 1 << 40, Size: 64}}
		if a, err := owner.tries(past.Append(nil)); err == nil {
			t.Errorf("past the end: %+v", a)
		}
	})
	// It was thrown out, and the buffer is free.
	connected(t, s, "--gpu", "host", "--ops", "write", "--sizes", "64")
	s.ends(t)
	if says := s.says.String(); !strings.Contains(says, "malformed") || strings.Contains(says, "goroutine") {
		t.Errorf("it says %s", says)
	}
	nothingMore(t, before)
}

// A server that is killed while it moves bytes leaves its client with an error,
// and nothing else.
func TestVMServeConnectPeerGone(t *testing.T) {
	testenv.VM(t)
	before := leftBehind(t)
	s := serving(t, "--gpu", "drm:vgem")
	r := connecting(t, s, "--gpu", "host", "--sizes", strings.Repeat("32KiB,", 4000)+"1", "--ops", "write")
	r.begin(t)
	for !strings.Contains(s.says.String(), "has the buffer") {
		time.Sleep(time.Millisecond)
	}
	if err := s.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.Wait()
	if status := r.status(t); status != cli.ExitFailed {
		t.Errorf("exit status %d\n%.2000s", status, r.out.String())
	}
	var d struct {
		Errors []struct{ Kind, Message string }
	}
	if err := json.Unmarshal(r.out.Bytes(), &d); err != nil || len(d.Errors) == 0 {
		t.Errorf("%v: %+v", err, d)
	}
	t.Log(d.Errors)
	nothingMore(t, before)
}

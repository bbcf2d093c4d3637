// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// severalDoc is what results say of several NICs.
type severalDoc struct {
	Local struct {
		NIC           string
		Registrations []struct {
			NIC, Path, Why string
			Placement      *struct{ Memory string }
		}
	}
	Remote struct{ NIC string }
	Rails  []struct {
		NIC, GID, Error           string
		Peer                      string `json:"peer_gid"`
		Port                      int
		Up                        bool
		Lost                      int   `json:"lost_links"`
		Bytes, Operations, Failed int64 // of this side
	}
	Rows []struct {
		Op, Direction string
		OK            bool
	}
	Points []struct{ Op, Kind string }
	Flap   *struct {
		Seed     uint64
		Planned  int
		Nothing  bool  `json:"nothing_lost"`
		Failed   int64 `json:"failed"`
		Wrong    int64 `json:"wrong_bytes"`
		Lost     int64 `json:"messages_lost"`
		Twice    int64 `json:"messages_duplicated"`
		Messages int64
		Verified int64 `json:"verified_bytes"`
		Pause    int64 `json:"longest_pause_ns"`
		Cuts     []struct {
			NIC, NetDev string
			Down        int64 `json:"down_ns"`
			Back        int64 `json:"back_ns"`
			Lost        int   `json:"lost_links"`
		}
	}
}

// servingSeveral runs `serve` with the NICs at one end of cables.
func servingSeveral(t *testing.T, c testenv.Cables, args ...string) *served {
	t.Helper()
	s := &served{run: command(t, append([]string{"serve", "--json", "--listen", "127.0.0.1:0", "--nic", strings.Join(c.NICs("b"), ","), "--size", "1MiB", "--timeout", stepLimit}, args...)...)}
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.Stdout, s.Stderr = w, &s.says
	s.begin(t)
	w.Close() // the child has its own
	s.doc = parse[serveDoc](t, firstDocument(t, out))
	return s
}

// several runs a client with the NICs at the other end, and returns its document.
func (s *served) several(t *testing.T, c testenv.Cables, want int, name string, args ...string) (severalDoc, *run) {
	t.Helper()
	r := command(t, append([]string{name, s.doc.Result.Listen, "--json", "--nic", strings.Join(c.NICs("a"), ","), "--size", "1MiB", "--timeout", stepLimit}, args...)...)
	if status := r.do(t); status != want {
		t.Fatalf("%s: exit status %d\n%s%s\nserve says: %s", name, status, r.out.String(), r.err.String(), s.says.String())
	}
	return parse[severalDoc](t, r.out.Bytes()).Result, r
}

// Over two NICs every operation of both sides is right, each NIC registers the buffer and has a rail,
// and bytes go over both. bench measures there, and the server's metrics have both NICs.
//
//testbed:kernel 7.2 6.12
func TestVMSeveralNICs(t *testing.T) {
	testenv.VM(t)
	c := testenv.NewCables(t, 2)
	before := leftBehind(t)
	s := servingSeveral(t, c, "--gpu", "udmabuf", "--metrics", "127.0.0.1:0")
	d, _ := s.several(t, c, cli.ExitOK, "connect", "--gpu", "udmabuf", "--both", "--sizes", "64,4097,1MiB", "--count", "4")
	if len(d.Rows) != 2*(3*3+1) || d.Local.NIC != "rail0a,rail1a" || d.Remote.NIC != "rail0b,rail1b" || len(d.Local.Registrations) != 2 || len(d.Rails) != 2 {
		t.Fatalf("%+v", d)
	}
	for i, nic := range c.NICs("a") {
		if r := d.Local.Registrations[i]; r.NIC != nic || r.Path != "direct" || r.Why == "" {
			t.Errorf("%+v", r)
		}
		if r := d.Rails[i]; r.NIC != nic || !r.Up || r.Port != 1 || r.GID == "" || r.Peer == "" || r.Bytes == 0 || r.Operations == 0 || r.Failed > 0 || r.Error != "" {
			t.Errorf("%+v", r)
		}
	}
	for _, row := range d.Rows {
		if !row.OK {
			t.Errorf("%+v", row)
		}
	}
	d, _ = s.several(t, c, cli.ExitOK, "connect", "--gpu", "udmabuf", "--policy", "staged", "--both", "--ops", "write,send", "--sizes", "100000", "--count", "2")
	if len(d.Local.Registrations) != 2 || d.Local.Registrations[1].Path != "staged" {
		t.Errorf("%+v", d.Local)
	}
	d, _ = s.several(t, c, cli.ExitOK, "connect", "--gpu", "udmabuf", "--trace", "--ops", "write", "--sizes", "64")
	for _, r := range d.Local.Registrations {
		if r.Placement == nil || r.Placement.Memory != "system memory" {
			t.Errorf("with %s: %+v", r.NIC, r.Placement)
		}
	}
	d, _ = s.several(t, c, cli.ExitOK, "bench", "--gpu", "udmabuf", "--rounds", "2", "--slice", "1ms", "--sizes", "64,512KiB", "--depth", "4")
	if len(d.Points) != 3*2*3 || len(d.Rails) != 2 || d.Rails[1].Bytes == 0 {
		t.Errorf("%+v", d)
	}
	_, text := testenv.Get(t, "http://"+s.doc.Result.Metrics+"/metrics")
	for _, nic := range c.NICs("b") {
		if !strings.Contains(text, `gpurdma_operations_total{kind="write",nic="`+nic+`"}`) || strings.Contains(text, `gpurdma_bytes_total{kind="write",nic="`+nic+`"} 0`+"\n") {
			t.Errorf("of %s:\n%s", nic, text)
		}
	}

	// --watch has a line for each rail, and the table names both.
	w := command(t, "connect", s.doc.Result.Listen, "--nic", strings.Join(c.NICs("a"), ","), "--gpu", "udmabuf", "--size", "1MiB", "--timeout", stepLimit, "--watch", "--sizes", "64KiB,512KiB")
	var seen told
	w.Stdout = &seen
	w.begin(t)
	lines := func() bool {
		return strings.Contains(seen.String(), "port 1 of rail0a  up  ") && strings.Contains(seen.String(), "port 1 of rail1a  up  ")
	}
	for end := time.Now().Add(testenv.Limit(time.Minute)); !lines() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if err := w.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	status := w.status(t)
	for _, want := range []string{"port 1 of rail0a  up  ", "port 1 of rail1a  up  ", "nic:     rail0a,rail1a: asked for by name", "path:    with rail1a registered by ", "10.9.21.1", "10.9.21.2", "LOST LINKS"} {
		if status != cli.ExitInterrupted || !strings.Contains(seen.String(), want) {
			t.Errorf("--watch: exit status %d, no %q in\n%s%s", status, want, seen.String(), w.err.String())
		}
	}

	// One NIC to several is refused, and so is a NIC that is not there.
	r := command(t, "connect", s.doc.Result.Listen, "--nic", "rail0a", "--gpu", "host")
	if status := r.do(t); status != cli.ExitFailed || !strings.Contains(r.err.String(), "give both sides one NIC, or both several") {
		t.Errorf("one NIC: exit status %d\n%s", status, r.err.String())
	}
	r = command(t, "connect", s.doc.Result.Listen, "--nic", "rail0a,mlx5_9", "--gpu", "host")
	if status := r.do(t); status != cli.ExitUnavailable || !strings.Contains(r.err.String(), "NIC mlx5_9") || !strings.Contains(r.err.String(), "rail1a") {
		t.Errorf("an unknown NIC: exit status %d\n%s", status, r.err.String())
	}
	s.ends(t)
	nothingMore(t, before)
}

// The server has its buffer back after a client is killed, and a client whose server is killed ends.
//
//testbed:kernel 7.2 6.12
func TestVMSeveralNICsPeerGone(t *testing.T) {
	testenv.VM(t)
	c := testenv.NewCables(t, 2)
	before := leftBehind(t)
	s := servingSeveral(t, c, "--gpu", "udmabuf")
	busy := func() *run {
		r := command(t, "connect", s.doc.Result.Listen, "--nic", strings.Join(c.NICs("a"), ","), "--gpu", "udmabuf", "--size", "1MiB", "--timeout", stepLimit, "--watch", "--sizes", "512KiB")
		r.begin(t)
		moving(t, "rail0a")
		return r
	}
	r := busy()
	if err := r.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.status(t)
	for end := time.Now().Add(testenv.Limit(2 * time.Minute)); !strings.Contains(s.says.String(), "client 1 is gone") && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	s.several(t, c, cli.ExitOK, "connect", "--gpu", "udmabuf", "--sizes", "64")
	r = busy()
	if err := s.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.Wait() // it was killed
	if status := r.status(t); status != cli.ExitFailed {
		t.Errorf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
	t.Log(r.err.String())
	nothingMore(t, before)
}

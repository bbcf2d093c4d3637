// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// stationIn is a station with host memory on a network in memory.
func stationIn(t *testing.T, net *memnic.Network, nic string) *station {
	t.Helper()
	const size = 64 << 10
	s := &station{timeout: testenv.Limit(time.Minute)}
	s.Memory, s.NIC, s.Path, s.Why = allocated{Spec: hostSpec, Size: size}, nic, hostSpec, "host memory, which every NIC reaches"
	s.nics = []*memory.NIC{memory.NewNIC(net.Device(nic, memnic.Limits{}), memory.NICOptions{})}
	s.Registrations = make([]registration, 1)
	err := s.register(t.Context(), memory.PreferDirect, false)
	if err == nil {
		s.ep, err = engine.NewEndpoint(s.nics[0], engine.EndpointOptions{AllowPlaintext: true, Depth: maxAtOnce, RecvDepth: maxAtOnce + 2})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// shared is a writer for several goroutines.
type shared struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// get returns what is served at a path.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// number returns the number of sessions.
func (s *server) number() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// A client with --watch repeats the plan until it is interrupted, and writes what it does. The server's
// metrics have the operations that it carried out for the client, and keep them after its end.
func TestWatchAndMetrics(t *testing.T) {
	net := memnic.New(memnic.Exchanges())
	there, here := stationIn(t, net, "nic-a"), stationIn(t, net, "nic-b")
	var said shared
	s := &server{station: there, app: &app{stderr: &said}, sessions: map[*line]*session{}, some: make(chan struct{}, 1), first: make(chan error, 1)}
	if _, err := there.ep.Listen("a:1"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l, err := listenMetrics(ctx, ":0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	if !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("served at %s", url)
	}
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()
	tasks.Go(func() { _ = s.serve(ctx) })
	tasks.Go(func() {
		if err := there.serveMetrics(ctx, l); err != nil {
			t.Error(err)
		}
	})
	has := func(want ...string) {
		t.Helper()
		status, text := get(t, url+"/metrics")
		for _, w := range want {
			if status != http.StatusOK || !strings.Contains(text, w+"\n") {
				t.Errorf("%d: no %s in\n%s", status, w, text)
			}
		}
	}
	has(`gpurdma_connections{nic="nic-a"} 0`, `gpurdma_operations_total{kind="write",nic="nic-a"} 0`)
	if status, _ := get(t, url+"/"); status != http.StatusNotFound {
		t.Errorf("at /: %d", status)
	}

	c, err := here.dial(ctx, "a:1")
	if err != nil {
		t.Fatal(err)
	}
	var out shared
	a := &app{stdout: &out}
	f := &connectFlags{addr: "a:1", both: true, watch: true, count: 4, work: talk.Ops(), bytes: []int64{64, 4096}}
	r := &connectResult{Server: "a:1"}
	watching, stop := context.WithCancel(ctx)
	time.AfterFunc(every+every/2, stop)
	if err := a.tryAll(watching, f, c, r); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if len(r.Rows) != r.Planned || r.interrupted {
		t.Errorf("%d of %d rows", len(r.Rows), r.Planned)
	}
	for _, row := range r.Rows {
		if !row.OK {
			t.Errorf("%+v", row)
		}
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) < 2 || !strings.HasPrefix(lines[0], "port 1 of nic-b  up  ") || !strings.HasSuffix(lines[0], " 0 errors") || strings.Contains(lines[0], " 0 operations/s") {
		t.Errorf("%q", lines)
	}
	has(`gpurdma_connections{nic="nic-a"} 1`, `gpurdma_errors_total{kind="write",nic="nic-a"} 0`)
	if err := c.hangUp(); err != nil {
		t.Error(err)
	}
	// The server unpins the client's messages after the end of the connection.
	for end := time.Now().Add(testenv.Limit(time.Minute)); s.number() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	sum := there.ep.Counts()
	if n := sum.Total(); n.Done() == 0 || n.Bytes == 0 {
		t.Errorf("%+v", n)
	}
	_, text := get(t, url+"/metrics")
	if text != there.metrics() || !strings.Contains(text, `gpurdma_connections{nic="nic-a"} 0`+"\n") || strings.Contains(text, `gpurdma_operations_total{kind="write",nic="nic-a"} 0`+"\n") {
		t.Errorf("after the client's end:\n%s", text)
	}
}

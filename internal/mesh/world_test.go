// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/internal/mesh/control"
	"github.com/gpurdma/gpurdma/internal/mesh/nodelist"
	"github.com/gpurdma/gpurdma/internal/mesh/probe"
	"github.com/gpurdma/gpurdma/internal/mesh/worker"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// world is nodes with NICs on a network in memory. Orders go over TCP on loopback addresses.
type world struct {
	net    *fabrictest.Network
	nodes  []*node
	cfg    gpurdma.Config
	change func(*worker.Worker)
}

// node is a worker.
type node struct {
	addr  string
	nics  []*fabrictest.NIC
	work  *worker.Worker
	end   context.CancelFunc
	ended chan error
	said  said
}

// said is what a worker says.
type said struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *said) tell(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(&s.b, format+"\n", args...)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// patience is how long the tests wait for a worker.
var patience = testenv.Limit(20 * time.Second)

// says waits until the worker has said all of these, whatever their order.
func (n *node) says(t *testing.T, texts ...string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		got := n.said.String()
		missing := slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return strings.Contains(got, text) })
		if len(missing) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the worker does not say %q, but %q", missing, got)
		}
	}
}

// newWorld makes nodes with that many NICs each.
func newWorld(t *testing.T, counts ...int) *world {
	t.Helper()
	return newWorldWith(t, func(*worker.Worker) {}, counts...)
}

// newWorldWith is newWorld with workers that a function changes before they begin.
func newWorldWith(t *testing.T, change func(*worker.Worker), counts ...int) *world {
	t.Helper()
	w := &world{net: fabrictest.NewNetwork(fabrictest.Options{}), cfg: gpurdma.Config{PeerTimeout: 2 * time.Second}, change: change}
	for _, n := range counts {
		w.add(t, n)
	}
	t.Cleanup(func() {
		if n := w.net.InUse(); n != 0 && !t.Failed() {
			t.Errorf("%d registrations, connections and queues are left", n)
		}
	})
	for _, n := range w.nodes {
		t.Cleanup(n.stop)
	}
	return w
}

func (w *world) add(t *testing.T, nics int) *node {
	t.Helper()
	n := &node{ended: make(chan error, 1)}
	n.work = &worker.Worker{Host: fmt.Sprintf("node%d", len(w.nodes)), Release: "test", Tell: n.said.tell}
	for i := range nics {
		var fab *gpurdma.Fabric
		open := func(names ...string) (*gpurdma.Fabric, error) {
			f, err := w.net.Open(names...)
			fab = f
			return f, err
		}
		alloc := func(ctx context.Context, f *gpurdma.Fabric) (*gpurdma.Buffer, error) {
			return f.Alloc(ctx, "host", 256<<10)
		}
		p, err := probe.Open(t.Context(), probe.Options{Open: open, Name: fmt.Sprintf("mem%d", i), Listen: "127.0.0.1:0", Alloc: alloc, Conn: w.cfg})
		if err != nil {
			t.Fatal(err)
		}
		n.nics = append(n.nics, w.net.NIC(fab, ""))
		n.work.Members = append(n.work.Members, worker.Member{Probe: p, NIC: control.NIC{Name: fab.NICs()[0], Port: p.Port(), Memory: "host", Size: 256 << 10, Path: "host"}})
	}
	w.change(n.work)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	n.end = cancel
	go func() {
		err := n.work.Serve(ctx, l)
		for _, m := range n.work.Members {
			if m.Probe != nil {
				if e := m.Probe.Close(); err == nil {
					err = e
				}
			}
		}
		n.ended <- err
	}()
	w.nodes = append(w.nodes, n)
	return n
}

// stop ends the worker, as Ctrl-C does.
func (n *node) stop() {
	n.end()
	n.ended <- <-n.ended
}

// config is a run over all nodes.
func (w *world) config(t *testing.T) Config {
	t.Helper()
	var addrs []string
	for _, n := range w.nodes {
		addrs = append(addrs, n.addr)
	}
	nodes, err := nodelist.Parse(addrs, "1")
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Nodes: nodes, Release: "test", Tolerance: 0.2, Tell: t.Logf, Silence: testenv.Limit(10 * time.Second),
		Plan: control.Plan{Size: 64 << 10, Depth: 4, Volume: 256 << 10, Time: time.Second, Small: 20, Timeout: testenv.Limit(5 * time.Second)},
	}
}

// states are the links by their states.
func states(r *Result) string {
	n := r.Count()
	var list []string
	for _, s := range []State{Reached, Failed, Unreached, Lost, Unknown} {
		if n[s] > 0 {
			list = append(list, fmt.Sprintf("%d %s", n[s], s))
		}
	}
	return strings.Join(list, ", ")
}

// conns is the number of connections between NICs, counted at both ends.
func (w *world) conns() (n int) {
	for _, node := range w.nodes {
		for _, nic := range node.nics {
			n += nic.Fabric().Stats().Conns
		}
	}
	return n
}

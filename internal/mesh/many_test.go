// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/mesh/control"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Many nodes, two hundred in `make soak`, of which some are slow, some have NICs that reach no other, one has no worker, one
// refuses the coordinator, and one is lost in the middle. Each pair's result is that of its nodes.
func TestManyNodes(t *testing.T) {
	nodes := 48
	if os.Getenv("GPURDMA_SOAK") != "" {
		nodes = 200
	}
	w := newWorld(t, slices.Repeat([]int{1}, nodes)...)
	const (
		sendsSlowly, receivesSlowly = 3, 7
		portDown                    = 11
		noWorker, busy, lost        = 13, 17, 19
		cutA, cutB                  = 4, 5 // only from each other
	)
	const rate = 2 << 20
	for i, n := range w.nodes {
		send, receive := float64(rate), float64(rate)
		switch i {
		case sendsSlowly:
			send /= 8
		case receivesSlowly:
			receive /= 8
		}
		n.nics[0].SetRate(send, receive)
	}
	w.nodes[portDown].nics[0].SetPort(false)
	w.nodes[cutA].nics[0].Cut(w.nodes[cutB].nics[0])
	w.nodes[noWorker].stop()
	holdBusy(t, w.nodes[busy])
	c := w.config(t)
	c.GiveUp = 3
	// All NICs are one process on a few processors: few pairs at once, so that the rates decide.
	c.Parallel = 8
	c.Plan.Size, c.Plan.Volume, c.Plan.Small, c.Plan.Timeout = 32<<10, 64<<10, 3, testenv.Limit(20*time.Second)
	stopped := false
	c.Progress = func(done, total int) {
		if done > total/2 && !stopped {
			stopped = true
			w.nodes[lost].end()
		}
	}
	begin := time.Now()
	r := Run(t.Context(), c)
	t.Logf("%d nodes, %d pairs, in %v: %s", nodes, len(r.Links), time.Since(begin), states(r))

	node := func(l *Link, is int) bool { return r.NICs[l.A].Node == is || r.NICs[l.B].Node == is }
	tried, givenUp, after := 0, 0, 0
	for i := range r.Links {
		l := &r.Links[i]
		switch {
		case node(l, portDown) && l.State == Unknown:
			givenUp++
			if !strings.Contains(l.Fault.Text, "has reached none of 3 NICs") {
				t.Errorf("%+v: %+v", l, l.Fault)
			}
		case node(l, portDown) && l.State == Unreached:
			tried++
		case node(l, lost) && l.State == Lost:
			after++
			if !strings.Contains(l.Fault.Step, w.nodes[lost].addr+" was lost during the run") {
				t.Errorf("%+v: %+v", l, l.Fault)
			}
		case node(l, cutA) && node(l, cutB):
			if l.State != Unreached || l.Fault.Cause != string(control.Timeout) {
				t.Errorf("%+v: %+v", l, l.Fault)
			}
		case l.State != Reached:
			t.Errorf("%+v: %+v", l, l.Fault)
		}
	}
	if tried != 3 || givenUp < nodes/2 || after == 0 || !r.Nodes[lost].Lost {
		t.Errorf("of the NIC without a port %d pairs were tried and %d given up; of the node that was lost, %d were left: %+v", tried, givenUp, after, r.Nodes[lost])
	}
	if f := r.Nodes[noWorker].Fault; f == nil || f.Cause != string(control.Refused) || !strings.Contains(f.Text, "dmabuf-reg mesh --worker") {
		t.Errorf("%+v", f)
	}
	if f := r.Nodes[busy].Fault; f == nil || f.Cause != string(control.Busy) || !strings.Contains(f.Text, "has this worker") {
		t.Errorf("%+v", f)
	}
	if len(r.NICs) != nodes-2 {
		t.Errorf("%d NICs", len(r.NICs))
	}
	var slow []string
	for _, s := range r.Slow {
		if s.Measure != "latency" { // a busy machine's are what they are
			slow = append(slow, fmt.Sprintf("%s %d %s", s.Scope, s.Node, s.Measure))
		}
	}
	if got := strings.Join(slow, "; "); got != "node 3 send; node 7 receive" {
		t.Errorf("slow: %q, %+v", got, r.Slow)
	}
}

// holdBusy is a coordinator that has a worker until the test ends.
func holdBusy(t *testing.T, n *node) {
	t.Helper()
	c := greeted(t, n)
	t.Cleanup(func() { c.Close() })
}

// greeted is a coordinator's connection that a worker has welcomed.
func greeted(t *testing.T, n *node) *control.Conn {
	t.Helper()
	raw, err := net.Dial("tcp", n.addr)
	if err != nil {
		t.Fatal(err)
	}
	c := control.NewConn(raw, false, patience)
	if err := c.Send(&control.Message{Hello: &control.Hello{Protocol: control.Protocol, Version: control.Version, Release: "test"}}); err != nil {
		t.Fatal(err)
	}
	if m, err := c.Receive(patience); err != nil || m.Welcome == nil {
		t.Fatal(m, err)
	}
	return c
}

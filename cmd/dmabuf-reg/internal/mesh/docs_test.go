// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/cmd/internal/referencetest"
	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/internal/mesh"
	"github.com/gpurdma/gpurdma/internal/mesh/control"
	"github.com/gpurdma/gpurdma/internal/mesh/nodelist"
	"github.com/gpurdma/gpurdma/internal/mesh/probe"
	"github.com/gpurdma/gpurdma/internal/mesh/worker"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// startNode starts a worker with one NIC of a network in memory, until the test ends.
func startNode(t *testing.T, network *fabrictest.Network, host string) (addr string, nic *fabrictest.NIC) {
	t.Helper()
	var fab *gpurdma.Fabric
	p, err := probe.Open(t.Context(), probe.Options{
		Name: "mem0", Listen: "127.0.0.1:0", Conn: gpurdma.Config{PeerTimeout: testenv.Limit(300 * time.Millisecond)},
		Open: func(names ...string) (_ *gpurdma.Fabric, err error) {
			fab, err = network.Open(names...)
			return fab, err
		},
		Alloc: func(ctx context.Context, f *gpurdma.Fabric) (*gpurdma.Buffer, error) {
			return f.Alloc(ctx, "host", 256<<10)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &worker.Worker{Host: host, Release: "test", Tell: t.Logf, Members: []worker.Member{{Probe: p, NIC: control.NIC{
		Name: "mem0", Port: p.Port(), Memory: "host", Size: 256 << 10, Path: "host", Why: "host memory",
	}}}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Serve(ctx, l)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), network.NIC(fab, "")
}

var (
	numbers = regexp.MustCompile(`[0-9]+(\.[0-9]+)?(m?[0-9.]*s|ms|µs|ns)?`)
	spaces  = regexp.MustCompile(`\s+`)
)

// shape is a text without its numbers, and without what follows from their widths.
func shape(text string) string {
	return spaces.ReplaceAllString(numbers.ReplaceAllString(text, "#"), " ")
}

// The transcript of docs/how-to/mesh.md is what seven nodes on a network in memory give, but for the numbers: one has
// no worker, two do not reach each other, and one sends slowly.
func TestTranscript(t *testing.T) {
	network := fabrictest.NewNetwork(fabrictest.Options{})
	var addrs []string
	var nics []*fabrictest.NIC
	for i := range 6 {
		addr, nic := startNode(t, network, fmt.Sprint("gpu", i+1))
		nic.SetRate(1e6, 1e6) // so slow that a busy machine changes little
		addrs, nics = append(addrs, addr), append(nics, nic)
	}
	nics[2].SetRate(1e5, 1e6)
	nics[1].Cut(nics[3])
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close() // a connection is refused there
	nodes, err := nodelist.Parse(append(addrs, closed.Addr().String()), DefaultPort)
	if err != nil {
		t.Fatal(err)
	}
	r := &Result{Result: mesh.Run(t.Context(), mesh.Config{
		Nodes: nodes, Release: "test", Tolerance: 0.5, Tell: t.Logf, Silence: testenv.Limit(10 * time.Second), Parallel: 2,
		Plan: control.Plan{Size: 16 << 10, Depth: 4, Volume: 32 << 10, Time: testenv.Limit(10 * time.Second), Small: 20, Timeout: testenv.Limit(20 * time.Second)},
	})}
	// A busy machine delays packets. What follows from rates is to follow from those that were set.
	for i := range r.Links {
		l := &r.Links[i]
		if l.State != mesh.Reached {
			continue
		}
		if l.AtoB <= 0 || l.BtoA <= 0 || l.Latency <= 0 {
			t.Errorf("%+v", l)
		}
		l.AtoB, l.BtoA, l.Latency = 1e6, 1e6, 10_000
		if r.NICs[l.A].Node == 2 {
			l.AtoB = 1e5
		}
		if r.NICs[l.B].Node == 2 {
			l.BtoA = 1e5
		}
	}
	r.Finish(0.5)
	var b strings.Builder
	if err := r.Text(&b); err != nil {
		t.Fatal(err)
	}
	if err := r.verdict(t.Context()); err == nil {
		t.Error("no error")
	}
	text, err := json.Marshal(Report{ReportSchema, "test", r})
	if err != nil {
		t.Fatal(err)
	}
	var schemas referencetest.Checker
	if err := schemas.Check("dmabuf-reg/mesh-report", text); err != nil {
		t.Errorf("%v in %.2000s", err, text)
	}
	page, err := os.ReadFile("../../../../docs/how-to/mesh.md")
	if err != nil {
		t.Fatal(err)
	}
	_, transcript, _ := strings.Cut(string(page), "<!-- TestTranscript -->\n```\n")
	transcript, _, found := strings.Cut(transcript, "```\n")
	if !found || shape(transcript) != shape(b.String()) {
		t.Errorf("docs/how-to/mesh.md has another transcript than this one:\n%s", b.String())
	}
}

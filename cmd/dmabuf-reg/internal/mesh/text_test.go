// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/golden"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/mesh"
	"github.com/gpurdma/gpurdma/internal/mesh/control"
)

// made makes the result of nodes with NICs, all of whose pairs are reached.
func made(nodes, nics int) *Result {
	r := &Result{Result: &mesh.Result{Plan: mesh.Plan{Size: 1 << 20, Depth: 16, Volume: 256 << 20, Time: time.Second / 2}, Rounds: nics * (nodes - 1), Elapsed: 2310 * time.Millisecond}}
	for n := range nodes {
		r.Nodes = append(r.Nodes, mesh.Node{Addr: fmt.Sprintf("10.0.0.%d:7472", n+1), Host: fmt.Sprintf("gpu%02d", n+1)})
		for rail := range nics {
			r.NICs = append(r.NICs, mesh.NIC{Node: n, Rail: rail, Name: fmt.Sprint("mlx5_", rail), Memory: "host", Path: "host"})
		}
	}
	for a := range r.NICs {
		for b := a + 1; b < len(r.NICs); b++ {
			if r.NICs[a].Node != r.NICs[b].Node {
				r.Links = append(r.Links, mesh.Link{A: a, B: b, State: mesh.Reached, Caller: a, AtoB: 12.3e9 + float64(b)*1e7, BtoA: 12.1e9 + float64(a)*1e7, Latency: 2400, P99: 3100})
			}
		}
	}
	return r
}

// link returns the link of two NICs.
func (r *Result) link(a, b int) *mesh.Link {
	for i := range r.Links {
		if l := &r.Links[i]; l.A == a && l.B == b {
			return l
		}
	}
	panic("no such link")
}

// folded makes the matrix.
func folded(r *Result) *Result {
	r.Finish(0.2)
	return r
}

func problems() *Result {
	r := made(5, 2)
	bad := func(a, b int, s mesh.State, c control.Cause, step, text string) {
		l := r.link(a, b)
		*l = mesh.Link{A: a, B: b, Caller: b, State: s, Fault: &mesh.Fault{Cause: string(c), Step: step, Text: text}}
	}
	bad(0, 2, mesh.Unreached, control.SmallMTU, "a WRITE of full packets", "a WRITE of 64 bytes was answered, and full packets are not: see whether a switch or a port on the way has a smaller MTU; write with 10.0.0.1:40001 by mlx5_0: transport retry counter exceeded")
	bad(1, 3, mesh.Failed, control.Timeout, "measure the rate of READ", "context deadline exceeded")
	for _, p := range [][2]int{{0, 8}, {1, 8}, {2, 8}} {
		bad(p[0], p[1], mesh.Lost, control.Gone, "10.0.0.5:7472 was lost during the run", "the worker has ended")
	}
	bad(4, 9, mesh.Unknown, control.Stopped, "not tried", "mlx5_1 of 10.0.0.5:7472 has reached none of 8 NICs")
	r.Nodes[4].Lost, r.Nodes[4].Fault = true, &mesh.Fault{Cause: string(control.Gone), Text: "the worker has ended"}
	r.Nodes = append(r.Nodes, mesh.Node{Addr: "10.0.0.6:7472", Fault: &mesh.Fault{Cause: string(control.Busy), Text: "the coordinator at 10.0.0.77:4242 has this worker: wait until it has ended"}})
	r.NICs[7].Fault = &mesh.Fault{Cause: string(control.NoGID), Step: "open the NIC and its memory", Text: "no usable GID"}
	for i := range r.Links {
		if l := &r.Links[i]; l.A == 5 || l.B == 5 {
			l.AtoB, l.BtoA = l.AtoB/4, l.BtoA/4
		}
	}
	return folded(r)
}

func TestText(t *testing.T) {
	wide, rails := folded(made(4, 2)), folded(made(3, 2))
	wide.wide = true
	rails.Plan.SameRail, rails.wide = true, true
	many := made(36, 2)
	for i := range many.Links {
		switch l := &many.Links[i]; {
		case l.A == 7 && l.B > 40:
			*l = mesh.Link{A: l.A, B: l.B, Caller: l.A, State: mesh.Unreached, Fault: &mesh.Fault{Cause: "timeout", Step: "the first WRITE", Text: "transport retry counter exceeded"}}
		case many.NICs[l.A].Node == 20 || many.NICs[l.B].Node == 20:
			l.Latency *= 3
		}
	}
	hostile := folded(made(4, 1))
	hostile.Nodes[0].Host = hostile.Nodes[1].Host // two nodes of one name
	interrupted := problems()
	interrupted.Interrupted = true
	golden.Tables(t, map[string]golden.Result{
		"mesh": folded(made(4, 1)), "mesh-problems": problems(), "mesh-wide": wide, "mesh-many": folded(many), "mesh-two": folded(made(2, 1)),
		"mesh-same-names": hostile, "mesh-interrupted": interrupted, "mesh-same-rail": rails,
	})
}

func TestVerdict(t *testing.T) {
	ended, end := context.WithCancelCause(t.Context())
	end(cli.ErrInterrupted)
	noWorker := folded(made(4, 1))
	noWorker.Nodes = append(noWorker.Nodes, mesh.Node{Addr: "x:1", Fault: &mesh.Fault{Cause: "refused"}})
	noNIC := folded(made(4, 1))
	noNIC.Nodes = append(noNIC.Nodes, mesh.Node{Addr: "x:1", Host: "x"})
	noPart := folded(made(4, 2))
	noPart.NICs[0].Fault = &mesh.Fault{}
	slow := made(5, 1)
	for i := range slow.Links {
		if l := &slow.Links[i]; l.B == 4 {
			l.AtoB /= 10
		}
	}
	lost := folded(made(4, 1))
	lost.link(0, 1).State = mesh.Lost
	interrupted := folded(made(4, 1))
	interrupted.Interrupted = true
	nothing := folded(made(2, 0))
	for name, c := range map[string]struct {
		r      *Result
		status int
		says   string
	}{
		"good":        {folded(made(4, 2)), cli.ExitOK, ""},
		"two nodes":   {folded(made(2, 2)), cli.ExitOK, ""},
		"problems":    {problems(), cli.ExitFailed, "1 of 40 pairs not reached, 1 of 40 pairs failed later, 3 of 40 pairs lost with a node, 1 node lost during the run, 2 findings"},
		"slow":        {folded(slow), cli.ExitFailed, "1 finding of slowness"},
		"lost":        {lost, cli.ExitFailed, "1 of 6 pairs lost"},
		"no worker":   {noWorker, cli.ExitUnavailable, "1 node without a worker"},
		"no NIC":      {noNIC, cli.ExitUnavailable, "1 node without a worker, or whose worker has no NIC"},
		"no part":     {noPart, cli.ExitUnavailable, "1 NIC that cannot take part"},
		"nothing":     {nothing, cli.ExitUnavailable, "nothing was measured"},
		"interrupted": {interrupted, cli.ExitInterrupted, "interrupted"},
	} {
		ctx := t.Context()
		if c.r.Interrupted {
			ctx = ended
		}
		err := c.r.verdict(ctx)
		if got := cli.Status(err); got != c.status || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: exit status %d, %v; want %d, %q", name, got, err, c.status, c.says)
		}
		if word, pass := "PASS", strings.HasPrefix(c.r.last(), "PASS"); pass != (c.status == cli.ExitOK) {
			t.Errorf("%s: %s: %s", name, word, c.r.last())
		}
	}
	if !errors.Is(interrupted.verdict(ended), cli.ErrInterrupted) {
		t.Error("no interruption")
	}
}

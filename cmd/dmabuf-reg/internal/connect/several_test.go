// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/link"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/peer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/stationtest"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/trial"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// With several NICs every operation goes over rails, in both directions, and every byte is right. A
// message of many pieces arrives whole. Each rail and each NIC is counted.
func TestSeveralNICs(t *testing.T) {
	p := stationtest.Dial(t, []string{"a0", "a1"}, []string{"b0", "b1"})
	c := p.Client
	if c.Server.NIC != "a0,a1" {
		t.Errorf("%+v", c.Server)
	}
	f := &params{addr: "a:1", both: true, count: 20, work: talk.Ops(), bytes: []int64{1, 64, 4097, link.MaxPiece, link.MaxPiece + 1, 256 << 10}}
	if err := c.Within(t.Context(), "offer", c.Offer); err != nil {
		t.Fatal(err)
	}
	tr := &trial.Trial{Client: c, Seed: 7}
	for _, planned := range f.plan() {
		row, _, err := tr.Row(t.Context(), planned, f.count)
		if err != nil || !row.OK || row.Verified < row.Size {
			t.Fatalf("%v, %+v", err, row)
		}
	}
	docs := link.Rails(c.Link)
	if len(docs) != 2 {
		t.Fatalf("%+v", docs)
	}
	for i, d := range docs {
		if d.NIC != []string{"b0", "b1"}[i] || !d.Up || d.Bytes == 0 || d.Operations == 0 || d.Failed > 0 || d.Lost > 0 || d.GID == "" || d.Peer == "" || d.Port != 1 {
			t.Errorf("rail %d: %+v", i, d)
		}
	}
	if w := watched(c.Link); len(w) != 2 || w[1].name != "port 1 of b1" || !w[1].up {
		t.Errorf("%+v", w)
	}
	if err := c.Bye(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.HangUp(); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(testenv.Limit(time.Minute)); !strings.Contains(p.Said.String(), "client 1 is done") && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if !strings.Contains(p.Said.String(), "; rail 0, a0: ") || !strings.Contains(p.Said.String(), "; rail 1, a1: ") {
		t.Errorf("the server says:\n%s", p.Said)
	}
	text := stationtest.Metrics(t, p.Server)
	for _, nic := range []string{"a0", "a1"} {
		if strings.Contains(text, `gpurdma_bytes_total{kind="write",nic="`+nic+`"} 0`+"\n") || !strings.Contains(text, `gpurdma_bytes_total{kind="write",nic="`+nic+`"}`) {
			t.Errorf("no bytes of %s in\n%s", nic, text)
		}
	}
	if !strings.Contains(p.Said.String(), "client 1 has the buffer, over port 1 of a0") || !strings.Contains(p.Said.String(), "; over ") {
		t.Errorf("the server says:\n%s", p.Said)
	}
}

// A side with one NIC and one with several do not connect, and the one is told why.
func TestOneNICAndSeveral(t *testing.T) {
	net := memnic.New(memnic.Exchanges())
	theirs, _ := stationtest.NICs(net, "a0", "a1")
	stationtest.Serve(t, "a:1", theirs...)
	ours, _ := stationtest.NICs(net, "b0")
	if _, err := peer.Dial(t.Context(), stationtest.Open(t, engine.EndpointOptions{}, ours...), "a:1"); !errors.Is(err, engine.ErrRejected) || !strings.Contains(err.Error(), "--nic a0,a1, and the client 1") {
		t.Errorf("one NIC to several: %v", err)
	}
}

// Three NICs to two: there are three rails, of which two share one of the server's NICs.
func TestThreeNICsToTwo(t *testing.T) {
	c := stationtest.Dial(t, []string{"a0", "a1"}, []string{"b0", "b1", "b2"}).Client
	tr := &trial.Trial{Client: c, Seed: 3}
	if row, _, err := tr.Row(t.Context(), trial.Planned{Op: talk.Write, Direction: trial.Out, Size: 256 << 10}, 8); err != nil || !row.OK {
		t.Errorf("%v, %+v", err, row)
	}
	if docs := link.Rails(c.Link); len(docs) != 3 || docs[2].NIC != "b2" || !docs[2].Up {
		t.Errorf("%+v", docs)
	}
	if err := errors.Join(c.Bye(t.Context()), c.HangUp()); err != nil {
		t.Error(err)
	}
}

// A link that is cut in the middle of a run costs no operation and no message.
func TestSeveralNICsFailOver(t *testing.T) {
	p := stationtest.Dial(t, []string{"a0", "a1"}, []string{"b0", "b1"})
	c, devices := p.Client, p.Devices
	tr := &trial.Trial{Client: c, Seed: 5}
	over := c.Link.(*link.OverRails)
	for i := range 6 {
		dev := devices[i%2]
		dev.SetPort(false)
		for _, op := range []talk.Op{talk.Write, talk.Read, talk.Send} {
			if row, _, err := tr.Row(t.Context(), trial.Planned{Op: op, Direction: trial.Out, Size: 100_000}, 8); err != nil || !row.OK {
				t.Fatalf("%s is down: %v, %+v", dev.Name(), err, row)
			}
		}
		dev.SetPort(true)
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit(time.Minute))
		if why := over.AllUp(ctx); why != nil {
			t.Fatalf("%s is up again: %v", dev.Name(), why)
		}
		cancel()
	}
	for _, d := range link.Rails(c.Link) {
		if d.Lost < 1 || !d.Up {
			t.Errorf("%+v", d)
		}
	}
	if n := over.Counted(); n.Failed > 0 || n.Lost > 0 || n.Twice > 0 || n.Sent == 0 || n.Longest <= 0 {
		t.Errorf("%+v", n)
	}
	if err := errors.Join(c.Bye(t.Context()), c.HangUp()); err != nil {
		t.Error(err)
	}
}

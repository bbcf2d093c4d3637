// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// With several NICs every operation goes over rails, in both directions, and every byte is right. A
// message of many pieces arrives whole. Each rail and each NIC is counted.
func TestSeveralNICs(t *testing.T) {
	p := Dial(t, []string{"a0", "a1"}, []string{"b0", "b1"})
	c := p.Client
	if c.server.NIC != "a0,a1" {
		t.Errorf("%+v", c.server)
	}
	f := &connectFlags{addr: "a:1", both: true, count: 20, work: talk.Ops(), bytes: []int64{1, 64, 4097, maxPiece, maxPiece + 1, 256 << 10}}
	if err := c.within(t.Context(), "offer", c.offer); err != nil {
		t.Fatal(err)
	}
	tr := &trial{client: c, seed: 7}
	for _, planned := range f.plan() {
		row, _, err := tr.row(t.Context(), planned, f.count)
		if err != nil || !row.OK || row.Verified < row.Size {
			t.Fatalf("%v, %+v", err, row)
		}
	}
	docs := railDocs(c.link)
	if len(docs) != 2 {
		t.Fatalf("%+v", docs)
	}
	for i, d := range docs {
		if d.NIC != []string{"b0", "b1"}[i] || !d.Up || d.Bytes == 0 || d.Operations == 0 || d.Failed > 0 || d.Lost > 0 || d.GID == "" || d.Peer == "" || d.Port != 1 {
			t.Errorf("rail %d: %+v", i, d)
		}
	}
	if w := watched(c.link); len(w) != 2 || w[1].name != "port 1 of b1" || !w[1].up {
		t.Errorf("%+v", w)
	}
	if err := c.bye(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.hangUp(); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(testenv.Limit(time.Minute)); !strings.Contains(p.Said.String(), "client 1 is done") && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if !strings.Contains(p.Said.String(), "; rail 0, a0: ") || !strings.Contains(p.Said.String(), "; rail 1, a1: ") {
		t.Errorf("the server says:\n%s", p.Said)
	}
	text := p.Server.metrics()
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
	theirs, _ := NICs(net, "a0", "a1")
	Serve(t, "a:1", theirs...)
	ours, _ := NICs(net, "b0")
	if _, err := dial(t.Context(), OpenStation(t, engine.EndpointOptions{}, ours...), "a:1"); !errors.Is(err, engine.ErrRejected) || !strings.Contains(err.Error(), "--nic a0,a1, and the client 1") {
		t.Errorf("one NIC to several: %v", err)
	}
}

// Three NICs to two: there are three rails, of which two share one of the server's NICs.
func TestThreeNICsToTwo(t *testing.T) {
	c := Dial(t, []string{"a0", "a1"}, []string{"b0", "b1", "b2"}).Client
	tr := &trial{client: c, seed: 3}
	if row, _, err := tr.row(t.Context(), planned{talk.Write, out, 256 << 10}, 8); err != nil || !row.OK {
		t.Errorf("%v, %+v", err, row)
	}
	if docs := railDocs(c.link); len(docs) != 3 || docs[2].NIC != "b2" || !docs[2].Up {
		t.Errorf("%+v", docs)
	}
	if err := errors.Join(c.bye(t.Context()), c.hangUp()); err != nil {
		t.Error(err)
	}
}

// A link that is cut in the middle of a run costs no operation and no message.
func TestSeveralNICsFailOver(t *testing.T) {
	p := Dial(t, []string{"a0", "a1"}, []string{"b0", "b1"})
	c, devices := p.Client, p.Devices
	tr := &trial{client: c, seed: 5}
	over := c.link.(*overRails)
	for i := range 6 {
		dev := devices[i%2]
		dev.SetPort(false)
		for _, op := range []talk.Op{talk.Write, talk.Read, talk.Send} {
			if row, _, err := tr.row(t.Context(), planned{op, out, 100_000}, 8); err != nil || !row.OK {
				t.Fatalf("%s is down: %v, %+v", dev.Name(), err, row)
			}
		}
		dev.SetPort(true)
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit(time.Minute))
		if why := over.allUp(ctx); why != nil {
			t.Fatalf("%s is up again: %v", dev.Name(), why)
		}
		cancel()
	}
	for _, d := range railDocs(c.link) {
		if d.Lost < 1 || !d.Up {
			t.Errorf("%+v", d)
		}
	}
	if n := over.counted(); n.failed > 0 || n.lost > 0 || n.twice > 0 || n.sent == 0 || n.longest <= 0 {
		t.Errorf("%+v", n)
	}
	if err := errors.Join(c.bye(t.Context()), c.hangUp()); err != nil {
		t.Error(err)
	}
}

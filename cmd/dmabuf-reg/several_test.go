// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rails"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// severalIn is a station with host memory and several NICs on a network in memory.
func severalIn(t *testing.T, net *memnic.Network, names ...string) (*station, []*memnic.Device) {
	t.Helper()
	const size = 256 << 10
	s := &station{timeout: testenv.Limit(time.Minute), tell: t.Logf}
	s.Memory, s.NIC = allocated{Spec: hostSpec, Size: size}, strings.Join(names, ",")
	var devices []*memnic.Device
	for _, name := range names {
		dev := net.Device(name, memnic.Limits{})
		devices = append(devices, dev)
		s.nics = append(s.nics, memory.NewNIC(dev, memory.NICOptions{}))
		s.Registrations = append(s.Registrations, registration{NIC: name, NICReason: "asked for by name"})
	}
	var err error
	if s.set, err = rails.NewSet(s.nics, maxClients); err != nil {
		t.Fatal(err)
	}
	s.opt = engine.EndpointOptions{AllowPlaintext: true, Depth: maxAtOnce, MailDepth: mailDepth, MailSize: mailSize, Hello: greeting(len(names)), PeerTimeout: mostSilence, Admit: s.admit}
	if err := s.register(t.Context(), memory.PreferDirect, false); err != nil {
		t.Fatal(err)
	}
	s.describe()
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s, devices
}

// serveIn serves a station's buffer until the test ends.
func serveIn(t *testing.T, there *station, addr string) *shared {
	t.Helper()
	said := new(shared)
	s := &server{station: there, app: &app{stderr: said}, sessions: map[*line]*session{}, some: make(chan struct{}, 1), first: make(chan error, 1)}
	if _, err := there.listen(addr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var task sync.WaitGroup
	task.Go(func() { _ = s.serve(ctx) })
	t.Cleanup(func() {
		cancel()
		task.Wait()
	})
	return said
}

// severalPair is a server with the NICs a0 and a1, and a client of it.
type severalPair struct {
	server  *station
	said    *shared // by the server
	client  *client
	devices []*memnic.Device // of the client
}

// dialSeveral makes a severalPair whose client has the given NICs.
func dialSeveral(t *testing.T, nics ...string) (p severalPair) {
	t.Helper()
	net := memnic.New(memnic.Exchanges())
	p.server, _ = severalIn(t, net, "a0", "a1")
	here, devices := severalIn(t, net, nics...)
	p.devices, p.said = devices, serveIn(t, p.server, "a:1")
	var err error
	if p.client, err = here.dial(t.Context(), "a:1"); err != nil {
		t.Fatal(err)
	}
	return p
}

// With several NICs every operation goes over rails, in both directions, and every byte is right. A
// message of many pieces arrives whole. Each rail and each NIC is counted.
func TestSeveralNICs(t *testing.T) {
	p := dialSeveral(t, "b0", "b1")
	c := p.client
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
	docs := c.railDocs()
	if len(docs) != 2 {
		t.Fatalf("%+v", docs)
	}
	for i, d := range docs {
		if d.NIC != []string{"b0", "b1"}[i] || !d.Up || d.Bytes == 0 || d.Operations == 0 || d.Failed > 0 || d.Lost > 0 || d.GID == "" || d.Peer == "" || d.Port != 1 {
			t.Errorf("rail %d: %+v", i, d)
		}
	}
	if w := c.watched(); len(w) != 2 || w[1].name != "port 1 of b1" || !w[1].up {
		t.Errorf("%+v", w)
	}
	if err := c.bye(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.hangUp(); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(testenv.Limit(time.Minute)); !strings.Contains(p.said.String(), "client 1 is done") && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if !strings.Contains(p.said.String(), "; rail 0, a0: ") || !strings.Contains(p.said.String(), "; rail 1, a1: ") {
		t.Errorf("the server says:\n%s", p.said)
	}
	text := p.server.metrics()
	for _, nic := range []string{"a0", "a1"} {
		if strings.Contains(text, `gpurdma_bytes_total{kind="write",nic="`+nic+`"} 0`+"\n") || !strings.Contains(text, `gpurdma_bytes_total{kind="write",nic="`+nic+`"}`) {
			t.Errorf("no bytes of %s in\n%s", nic, text)
		}
	}
	if !strings.Contains(p.said.String(), "client 1 has the buffer, over port 1 of a0") || !strings.Contains(p.said.String(), "; over ") {
		t.Errorf("the server says:\n%s", p.said)
	}
}

// A side with one NIC and one with several do not connect, and are told why.
func TestOneNICAndSeveral(t *testing.T) {
	net := memnic.New(memnic.Exchanges())
	several, _ := severalIn(t, net, "a0", "a1")
	serveIn(t, several, "a:1")
	one := stationIn(t, net, "b0")
	if _, err := one.dial(t.Context(), "a:1"); !errors.Is(err, engine.ErrRejected) || !strings.Contains(err.Error(), "--nic a0,a1, and the client 1") {
		t.Errorf("one NIC to several: %v", err)
	}
	if err := one.admit(t.Context(), engine.PeerInfo{Hello: greeting(2)}); err == nil || !strings.Contains(err.Error(), "and the client 2") {
		t.Errorf("several NICs to one: %v", err)
	}
	if err := one.admit(t.Context(), engine.PeerInfo{}); err != nil {
		t.Errorf("one NIC to one: %v", err)
	}
	if err := several.admit(t.Context(), engine.PeerInfo{Hello: greeting(3)}); err != nil {
		t.Errorf("three NICs to two: %v", err)
	}
}

// Three NICs to two: there are three rails, of which two share one of the server's NICs.
func TestThreeNICsToTwo(t *testing.T) {
	c := dialSeveral(t, "b0", "b1", "b2").client
	tr := &trial{client: c, seed: 3}
	if row, _, err := tr.row(t.Context(), planned{talk.Write, out, 256 << 10}, 8); err != nil || !row.OK {
		t.Errorf("%v, %+v", err, row)
	}
	if docs := c.railDocs(); len(docs) != 3 || docs[2].NIC != "b2" || !docs[2].Up {
		t.Errorf("%+v", docs)
	}
	if err := errors.Join(c.bye(t.Context()), c.hangUp()); err != nil {
		t.Error(err)
	}
}

// A link that is cut in the middle of a run costs no operation and no message.
func TestSeveralNICsFailOver(t *testing.T) {
	p := dialSeveral(t, "b0", "b1")
	c, devices := p.client, p.devices
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
	for _, d := range c.railDocs() {
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

// A message is put where it is wanted; one that comes twice is left out, and a number that is missing
// is counted.
func TestMessageNumbers(t *testing.T) {
	net := memnic.New(memnic.Exchanges())
	s, _ := severalIn(t, net, "a0", "a1")
	r := &overRails{wake: make(chan struct{}, 1)}
	r.in.some = make(chan struct{}, 1)
	letter := func(n uint64, text string) []byte {
		r.number = n - 1
		if _, err := s.buf.WriteAt([]byte(text), 0); err != nil {
			t.Fatal(err)
		}
		p, err := r.letter(all(s.bufs), 0, int64(len(text)))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	var m mark
	for _, x := range []struct {
		n     uint64
		fresh bool
	}{{1, true}, {2, true}, {2, false}, {1, false}, {5, true}, {6, true}} {
		p := letter(x.n, "hello")
		fresh, err := r.arrived(p)
		if err != nil || fresh != x.fresh {
			t.Errorf("number %d: fresh %v, %v", x.n, fresh, err)
		}
		if !fresh {
			continue
		}
		if err := r.receive(part(s.bufs, 64, 5), &m); err != nil {
			t.Error(err)
		}
		r.put(r.next(), p[numberSize:])
	}
	if r.in.lost != 2 || r.in.twice != 2 || len(r.done) != 4 || r.done[0].Op != operation.Recv || r.done[0].Len != 5 {
		t.Errorf("%d lost, %d twice, %+v", r.in.lost, r.in.twice, r.done)
	}
	if _, err := r.arrived([]byte("short")); !errors.Is(err, talk.ErrMalformed) {
		t.Errorf("a message without a number: %v", err)
	}
	// A message that is longer than what is wanted does not go beyond it.
	if err := r.receive(part(s.bufs, 64, 3), &m); err != nil {
		t.Error(err)
	}
	r.put(r.next(), []byte("abcdef"))
	var b [6]byte
	if _, err := s.buf.ReadAt(b[:], 64); err != nil || string(b[:]) != "abclo\x00" {
		t.Errorf("%q, %v", b, err)
	}
	if last := r.done[len(r.done)-1]; last.Len != 6 {
		t.Errorf("%+v", last)
	}
}

// A NIC whose registration is refused says why, and whether another NIC reaches the memory.
func TestDescribeSeveral(t *testing.T) {
	s := &station{src: &source{}}
	refused := errors.New("rxe1 has refused it")
	for _, c := range []struct {
		path        memory.Path
		kind, words string
	}{
		{memory.Path{Direct: memory.Registered, Route: "REG_DMABUF_MR ioctl"}, kindDirect, "registered by REG_DMABUF_MR ioctl"},
		{memory.Path{Direct: memory.Missing, Reason: refused}, pathMissing, "the registration was refused, and another NIC reaches the memory: rxe1 has refused it"},
		{memory.Path{Reason: refused}, kindStaged, "the registration was refused: rxe1 has refused it"},
		{memory.Path{}, kindStaged, "asked for by --policy"},
	} {
		var r registration
		if s.describeOne(&r, c.path); r.Path != c.kind || r.Why != c.words {
			t.Errorf("%v: %+v", c.path, r)
		}
	}
	s.src = nil
	var r registration
	if s.describeOne(&r, memory.Path{}); r.Path != hostSpec {
		t.Errorf("%+v", r)
	}
}

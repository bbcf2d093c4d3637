// SPDX-License-Identifier: Apache-2.0

package memnic_test

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// bound is far above the time that any test needs.
var bound = testenv.Limit(time.Minute)

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

const (
	size      = 256 // bytes of a side's memory
	depth     = 8
	allAccess = ibvfd.AccessLocalWrite | ibvfd.AccessRemoteRead | ibvfd.AccessRemoteWrite | ibvfd.AccessRemoteAtomic
)

// side is a device with a link and registered memory.
type side struct {
	t      testing.TB
	dev    *memnic.Device
	cq     rc.CompletionQueue
	link   *memnic.Link
	mem    []byte
	reg    *rc.Registration
	events chan struct{}
	broken chan error
}

func newSide(t testing.TB, d *memnic.Device, c ibvfd.ConnectAttr) *side {
	s := &side{t: t, dev: d, events: make(chan struct{}, 100), broken: make(chan error, 10)}
	buf := must(hostmem.Alloc(size))(t)
	s.mem = buf.Bytes()
	s.reg = must(d.Host(buf, 0, size, allAccess))(t)
	s.cq = must(d.Queue(100, func() { s.events <- struct{}{} }, func(error) {}))(t)
	s.link = must(d.Link(rc.Attr{
		SendDepth: depth, RecvDepth: depth, SGE: 4, Inline: 64, Connect: c, Queue: s.cq, Broke: func(why error) { s.broken <- why },
	}))(t).(*memnic.Link)
	t.Cleanup(func() {
		for _, end := range []func() error{s.link.Close, s.link.Close, s.cq.Close, s.cq.Close, s.reg.Close, s.reg.Close, d.Close, buf.Close} {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
		d.Ended()
	})
	return s
}

// pairOf connects two new devices.
func pairOf(t testing.TB, n *memnic.Network, c ibvfd.ConnectAttr) (a, b *side) {
	t.Cleanup(func() {
		if n.Open() != 0 {
			t.Errorf("%d registrations, links and queues are left", n.Open())
		}
	})
	a, b = newSide(t, n.Device("a", memnic.Limits{}), c), newSide(t, n.Device("b", memnic.Limits{}), c)
	join(t, a, b)
	return a, b
}

func join(t testing.TB, a, b *side) {
	t.Helper()
	for _, err := range []error{a.link.Connect(b.link.Local(), 16), b.link.Connect(a.link.Local(), 16)} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// eachMode runs a test in both modes. In live mode retries are fast.
func eachMode(t *testing.T, run func(t *testing.T, n *memnic.Network)) {
	t.Run("manual", func(t *testing.T) { run(t, memnic.New(memnic.Manual())) })
	t.Run("live", func(t *testing.T) { run(t, fast()) })
}

func fast() *memnic.Network { return memnic.New(memnic.TimeScale(0.001)) }

// part names bytes of the side's memory.
func (s *side) part(off uint64, n uint32) []ibvfd.SGE {
	return []ibvfd.SGE{{Addr: s.reg.Local[0].Addr + off, Length: n, LKey: s.reg.Local[0].Key}}
}

// op returns a work request between the memories of two sides.
func (s *side) op(op ibvfd.Opcode, off uint64, n uint32, peer *side, there uint64) ibvfd.SendWR {
	r := peer.reg.Remote[0]
	return ibvfd.SendWR{ID: uint64(op) + 100, Op: op, Flags: ibvfd.SendSignaled, SGE: s.part(off, n), RemoteAddr: r.Addr + there, RKey: r.Key}
}

func (s *side) post(queue int, wrs ...ibvfd.SendWR) {
	s.t.Helper()
	if n, err := s.link.Post(queue, wrs); n != len(wrs) || err != nil {
		s.t.Fatal(n, err)
	}
}

func (s *side) recv(id, off uint64, n uint32) {
	s.t.Helper()
	if _, err := s.link.Recv([]ibvfd.RecvWR{{ID: id, SGE: s.part(off, n)}}); err != nil {
		s.t.Fatal(err)
	}
}

// wc waits for a completion.
func (s *side) wc() ibvfd.WC {
	s.t.Helper()
	var wc [1]ibvfd.WC
	for end := time.Now().Add(bound); time.Now().Before(end); runtime.Gosched() {
		if n := must(s.cq.Poll(wc[:]))(s.t); n == 1 {
			return wc[0]
		}
	}
	s.t.Fatal("no completion")
	return wc[0]
}

// done waits for a completion with an ID and a status.
func (s *side) done(id uint64, status ibvfd.WCStatus) ibvfd.WC {
	s.t.Helper()
	wc := s.wc()
	if wc.ID != id || wc.Status != status {
		s.t.Fatalf("completion %+v, want %d with %v", wc, id, status)
	}
	if status != ibvfd.WCSuccess && wc.VendorErr != memnic.VendorErr(status) {
		s.t.Errorf("%+v", wc)
	}
	return wc
}

// nothing checks that there is no completion.
func (s *side) nothing() {
	s.t.Helper()
	var wc [1]ibvfd.WC
	if n, err := s.cq.Poll(wc[:]); n != 0 || err != nil {
		s.t.Fatalf("%+v, %v", wc, err)
	}
}

// fill writes different bytes.
func (s *side) fill(seed byte) {
	for i := range s.mem {
		s.mem[i] = seed + byte(i)
	}
}

func same(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s: % x, want % x", what, got, want)
	}
}

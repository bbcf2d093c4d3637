// SPDX-License-Identifier: Apache-2.0

package fi

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/internal/wire"
	"github.com/gpurdma/gpurdma/layout"
)

// kind is a kind of memory that tests use.
type kind struct {
	name string
	make func(t testing.TB, e *Endpoint, size int64) *MR
}

// setting is where tests run: on a network in memory, or on a NIC.
type setting struct {
	open  func(t testing.TB, opt DomainOptions) *Domain
	kinds []kind
	net   *memnic.Network // nil on a NIC
}

// bound is far above the time that any test needs; no test asserts a time.
var bound = testenv.Limit(time.Minute)

func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// closing closes c when the test ends, twice: the second time must do nothing.
func closing(t testing.TB, c interface{ Close() error }) {
	t.Cleanup(func() {
		for range 2 {
			if err := c.Close(); err != nil {
				t.Errorf("close %T: %v", c, err)
			}
		}
	})
}

// domains are the domains of endpoints. Memory is made for an endpoint, and closed after it: its
// peers have keys.
var domains sync.Map

// end opens a domain with an endpoint.
func (s setting) end(t testing.TB, opt EndpointOptions) *Endpoint {
	t.Helper()
	d := s.open(t, DomainOptions{})
	e := must(d.Endpoint(opt))(t)
	domains.Store(e, d)
	t.Cleanup(func() { domains.Delete(e) })
	closing(t, e)
	return e
}

func domainFor(e *Endpoint) *Domain {
	d, _ := domains.Load(e)
	return d.(*Domain)
}

// closingMR closes memory when the test ends, after the endpoint.
func closingMR(t testing.TB, e *Endpoint, m *MR) *MR {
	closing(t, m)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

var hostKind = kind{"host", func(t testing.TB, e *Endpoint, size int64) *MR {
	t.Helper()
	return closingMR(t, e, must(domainFor(e).AllocHost(size))(t))
}}

// ofMemory returns the network's own memory, which plays the part of a GPU's.
func ofMemory(name string, staged bool) kind {
	return kind{name, func(t testing.TB, e *Endpoint, size int64) *MR {
		t.Helper()
		src := must(memnic.NewMemory(size, memnic.MemoryOptions{Staged: staged}))(t)
		closing(t, src)
		m := closingMR(t, e, must(domainFor(e).Register(src, MROptions{}))(t))
		if p := m.Path(); p.Staged != staged || (p.Reason != nil) != staged || (p.Route == "") != staged {
			t.Errorf("%s: %+v", name, p)
		}
		return m
	}}
}

// inMemory is the setting with a network in memory, which must be empty when the test ends.
func inMemory(t testing.TB, opts ...memnic.Option) setting {
	n := memnic.New(append(opts, memnic.TimeScale(0.01))...)
	t.Cleanup(func() {
		if open := n.Open(); open != 0 {
			t.Errorf("%d registrations, links and queues are left", open)
		}
	})
	return setting{
		open: func(t testing.TB, opt DomainOptions) *Domain {
			d := domainOf(memory.NewNIC(n.Device("mem0", memnic.Limits{MaxSGE: 5, Inline: 64}), memory.NICOptions{MaxPinned: opt.MaxPinned}))
			closing(t, d)
			return d
		},
		kinds: []kind{hostKind, ofMemory("direct", false), ofMemory("staged", true)},
		net:   n,
	}
}

// world is two connected endpoints, each on its own NIC.
type world struct {
	t    testing.TB
	a, b *Endpoint
	ab   Addr // b, from a's point of view
	ba   Addr
}

func (s setting) world(t testing.TB, opt EndpointOptions) *world {
	t.Helper()
	w := &world{t: t, a: s.end(t, opt), b: s.end(t, opt)}
	w.connect()
	return w
}

func (w *world) connect() {
	w.t.Helper()
	addr := must(w.b.Listen("127.0.0.1:0"))(w.t)
	w.ab = must(w.a.Connect(limited(w.t), addr.String()))(w.t)
	w.ba = must(w.b.Accept(limited(w.t)))(w.t)
}

// ok fails the test on an error.
func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// completion is an entry of a CQ: failed is nil, or what ReadErr has returned.
type completion struct {
	CQEntry
	failed *CQErrEntry
}

func (c completion) context() any {
	if c.failed != nil {
		return c.failed.OpContext
	}
	return c.OpContext
}

// poll takes the next entry of a CQ, if there is one.
func (w *world) poll(e *Endpoint) (c completion, ok bool) {
	w.t.Helper()
	var entry [1]CQEntry
	n, err := e.CQ().Read(entry[:])
	return w.entry(e, entry[0], n, err)
}

// wait waits for the next entry of a CQ.
func (w *world) wait(e *Endpoint) completion {
	w.t.Helper()
	var entry [1]CQEntry
	n, err := e.CQ().Sread(limited(w.t), entry[:])
	c, ok := w.entry(e, entry[0], n, err)
	if !ok {
		w.t.Fatalf("no completion: %v", err)
	}
	return c
}

func (w *world) entry(e *Endpoint, entry CQEntry, n int, err error) (c completion, ok bool) {
	w.t.Helper()
	switch {
	case n == 1 && err == nil:
		return completion{CQEntry: entry}, true
	case errors.Is(err, EAVAIL):
		return completion{failed: must(e.CQ().ReadErr())(w.t)}, true
	case !errors.Is(err, EAGAIN):
		w.t.Fatalf("%d entries: %v", n, err)
	}
	return c, false
}

// done waits for a completion without error, with these flags and that context.
func (w *world) done(e *Endpoint, flags Flags, context any) CQEntry {
	w.t.Helper()
	c := w.wait(e)
	if c.failed != nil {
		w.t.Fatalf("%v, want %v with context %v", c.failed, flags, context)
	}
	if c.Flags != flags || c.OpContext != context {
		w.t.Fatalf("completion %+v, want %v with context %v", c.CQEntry, flags, context)
	}
	return c.CQEntry
}

// share makes a key to memory at b and gives it to a.
func (w *world) share(v IOV, access Flags) *Key {
	w.t.Helper()
	k := must(w.b.Key(v, w.ba, access))(w.t)
	w.ok(w.b.Offer(limited(w.t), w.ba, k))
	got := must(w.a.Offered(limited(w.t), w.ab))(w.t)
	if got.Size() != v.Length || got.Access()&^Atomic != access {
		w.t.Fatalf("%d bytes with %v were offered, %d with %v came", v.Length, access, got.Size(), got.Access())
	}
	return got
}

const allAccess = RemoteRead | RemoteWrite

// forgery is what a test changes in a key of one piece.
type forgery struct {
	access Flags
	length int64
	addr   uint64
	key    uint32
}

// forged returns a key that a peer might send that lies.
func forged(t testing.TB, k *Key, change func(*forgery)) *Key {
	t.Helper()
	in := wire.NewReader("key", must(k.MarshalBinary())(t))
	out := append([]byte{}, in.Take(1+8+8+1)...)
	access, sources := in.Uvarint(), in.Uvarint()
	name, pieces := in.Uint64(), in.Uvarint()
	if sources != 1 || pieces != 1 {
		t.Fatalf("%d sources, %d pieces", sources, pieces)
	}
	f := forgery{access: k.Access() &^ Atomic, addr: in.Uvarint(), length: int64(in.Uvarint()), key: in.Uint32()}
	if in.Err != nil {
		t.Fatal(in.Err)
	}
	was := f.access
	change(&f)
	if f.access != was {
		access = uint64(must(f.access.access())(t) | ibvfd.AccessRemoteAtomic)
	}
	out = binary.AppendUvarint(out, access)
	out = binary.AppendUvarint(out, sources)
	out = binary.BigEndian.AppendUint64(out, name)
	out = binary.AppendUvarint(out, pieces)
	out = binary.AppendUvarint(out, f.addr)
	out = binary.AppendUvarint(out, uint64(f.length))
	out = binary.BigEndian.AppendUint32(out, f.key)
	out = must(must(layout.Contiguous(0, f.length))(t).AppendBinary(out))(t)
	lie := new(Key)
	if err := lie.UnmarshalBinary(out); err != nil {
		t.Fatal(err)
	}
	return lie
}

// content returns the bytes of memory.
func content(t testing.TB, m *MR) []byte {
	t.Helper()
	p := make([]byte, m.Size())
	if n, err := m.ReadAt(p, 0); n != len(p) || err != nil {
		t.Fatal(n, err)
	}
	return p
}

// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// kind is a kind of buffer that tests use.
type kind struct {
	name   string
	staged bool
	only   bool // by DirectOnly only
	make   func(t testing.TB, n *memory.NIC, size int64) *memory.Buffer
}

// setting is where tests run: over a fabric in memory, or a NIC.
type setting struct {
	open   func(t testing.TB, opt memory.NICOptions) *memory.NIC
	kinds  []kind
	listen string // where the second endpoint of a world listens; "" is TCP's loopback
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

// endpointsOf are the endpoints that a test has on a NIC. They are closed before its buffers,
// to which peers have keys.
var endpointsOf sync.Map

func closingBuffer(t testing.TB, b *memory.Buffer) {
	closing(t, b)
	t.Cleanup(func() {
		if list, ok := endpointsOf.Load(b.NIC()); ok {
			for _, e := range list.([]*Endpoint) {
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

func (s setting) endpoint(t testing.TB, opt EndpointOptions) *Endpoint {
	n := s.open(t, memory.NICOptions{})
	e := must(NewEndpoint(n, opt))(t)
	endpointsOf.Store(n, []*Endpoint{e})
	closing(t, e)
	t.Cleanup(func() { endpointsOf.Delete(n) })
	return e
}

var hostKind = kind{"host", false, false, func(t testing.TB, n *memory.NIC, size int64) *memory.Buffer {
	b := must(n.AllocHost(size))(t)
	closingBuffer(t, b)
	return b
}}

// inMemory is the setting with the fabric; each test has its own, and must free everything in
// it.
func inMemory(t testing.TB) setting {
	f := newFabric()
	t.Cleanup(func() {
		if f.Open() != 0 {
			t.Errorf("%d MRs and links were left", f.Open())
		}
	})
	return setting{
		open: func(t testing.TB, opt memory.NICOptions) *memory.NIC {
			n := memory.NewNIC(&device{f.Device("fake0", fewSGEs)}, opt)
			closing(t, n)
			return n
		},
		kinds: []kind{hostKind, ofSource("direct", true, memory.PreferDirect), ofSource("staged", false, memory.PreferDirect)},
	}
}

// ofSource returns memory with access by its source only, and by the fabric if it is direct.
func ofSource(name string, direct bool, p memory.Policy) kind {
	return kind{name, !direct, p == memory.DirectOnly, func(t testing.TB, n *memory.NIC, size int64) *memory.Buffer {
		src := &memSource{mem: make([]byte, size), direct: direct}
		t.Cleanup(func() {
			if src.holds != 0 {
				t.Errorf("the source is held %d times", src.holds)
			}
		})
		b := must(n.Register(src, memory.BufferOptions{Policy: p}))(t)
		closingBuffer(t, b)
		return b
	}}
}

// world is two connected endpoints, each on its own NIC.
type world struct {
	t      testing.TB
	a, b   *Endpoint
	ab     operation.Peer // b, from a's point of view
	ba     operation.Peer
	listen string
}

func (s setting) world(t testing.TB, opt EndpointOptions) *world {
	t.Helper()
	if s.listen != "" && opt.TLS == nil {
		opt.AllowPlaintext = true
	}
	w := &world{t: t, a: s.endpoint(t, opt), b: s.endpoint(t, opt), listen: s.listen}
	w.connect()
	return w
}

func (w *world) connect() {
	w.t.Helper()
	addr := must(w.b.Listen(cmp.Or(w.listen, "127.0.0.1:0")))(w.t)
	w.ab = must(w.a.Connect(limited(w.t), addr.String()))(w.t)
	w.ba = must(w.b.Accept(limited(w.t)))(w.t)
}

// ok fails the test on an error of a call that posts.
func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// wait returns the next completion of e. It also polls the peer, which may have work to do.
func (w *world) wait(e *Endpoint) operation.Completion {
	w.t.Helper()
	var c [1]operation.Completion
	if n, err := e.Wait(limited(w.t), c[:]); n != 1 || err != nil {
		w.t.Fatalf("no completion: %v", err)
	}
	return c[0]
}

// done waits for a completion without error and with that context.
func (w *world) done(e *Endpoint, op operation.Kind, context any) operation.Completion {
	w.t.Helper()
	c := w.wait(e)
	if c.Err != nil || c.Op != op || c.Context != context {
		w.t.Fatalf("completion %+v, want a good %v with context %v", c, op, context)
	}
	return c
}

// share shares memory at b and gives the descriptor to a.
func (w *world) share(s memory.Span, access ibvfd.Access) *memory.RemoteBuffer {
	w.t.Helper()
	rb := must(w.b.Share(w.ba, s, access))(w.t)
	w.ok(w.b.Offer(limited(w.t), w.ba, rb))
	got := must(w.a.Offered(limited(w.t), w.ab))(w.t)
	if got.ID() != rb.ID() || got.Size() != rb.Size() || got.Access() != access {
		w.t.Fatalf("offered %+v, came %+v", rb, got)
	}
	return got
}

const allAccess = ibvfd.AccessRemoteRead | ibvfd.AccessRemoteWrite | ibvfd.AccessRemoteAtomic

// random fills a buffer with random bytes, and returns them.
func random(t testing.TB, r *rand.Rand, b interface {
	WriteAt(p []byte, off int64) (int, error)
}, size int64) []byte {
	t.Helper()
	p := make([]byte, size)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	if n, err := b.WriteAt(p, 0); n != len(p) || err != nil {
		t.Fatal(n, err)
	}
	return p
}

// content returns the bytes of a buffer.
func content(t testing.TB, b *memory.Buffer) []byte {
	t.Helper()
	p := make([]byte, b.Size())
	if n, err := b.ReadAt(p, 0); n != len(p) || err != nil {
		t.Fatal(n, err)
	}
	return p
}

// same compares all bytes.
func same(t testing.TB, what string, b *memory.Buffer, want []byte) {
	t.Helper()
	got := content(t, b)
	if bytes.Equal(got, want) {
		return
	}
	n, first := 0, -1
	for i := range got {
		if got[i] != want[i] {
			if first < 0 {
				first = i
			}
			n++
		}
	}
	t.Fatalf("%s: %d of %d bytes are wrong, the first at %d: %#x, want %#x", what, n, len(got), first, got[first], want[first])
}

// eachPair runs a test on every pair of kinds.
func (s setting) eachPair(t *testing.T, run func(t *testing.T, local, remote kind)) {
	for _, l := range s.kinds {
		for _, r := range s.kinds {
			t.Run(fmt.Sprintf("%s-%s", l.name, r.name), func(t *testing.T) { run(t, l, r) })
		}
	}
}

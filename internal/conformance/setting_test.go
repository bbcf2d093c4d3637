// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// setting is where the suite runs.
type setting struct {
	open   func(nics ...string) (*gpurdma.Fabric, error) // a machine
	nics   []string
	listen string
	kinds  []kind
	net    *fabrictest.Network // nil on a NIC
}

// kind is a kind of memory.
type kind struct {
	name   string
	spec   string
	opts   []gpurdma.BufferOption
	staged bool
}

// bound is far above the time that any test needs.
var bound = testenv.Limit(time.Minute)

func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	t.Cleanup(cancel)
	return ctx
}

// soon returns a context that ends after a time that nothing should need.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
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

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inMemory is the setting with a network of fabrictest. A test must leave nothing of it.
func inMemory(t testing.TB, opt fabrictest.Options) *setting {
	noGoroutines(t)
	net := fabrictest.NewNetwork(opt)
	t.Cleanup(func() {
		if n := net.InUse(); n != 0 {
			t.Errorf("%d registrations, connections and queues are left", n)
		}
	})
	return &setting{
		open: net.Open, nics: []string{"mem0"}, listen: "127.0.0.1:7471", net: net,
		kinds: []kind{{name: "host", spec: "host"}, {name: "direct", spec: "cuda:0"}, {name: "staged", spec: "staged", staged: true}},
	}
}

// noGoroutines checks that a test leaves no goroutine.
func noGoroutines(t testing.TB) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for range 200 * testenv.Slow() {
			if runtime.NumGoroutine() <= before {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		stacks := make([]byte, 1<<20)
		t.Errorf("goroutines are left:\n%s", stacks[:runtime.Stack(stacks, true)])
	})
}

// fabric opens a machine, which is closed at the end.
func (s *setting) fabric(t testing.TB) *gpurdma.Fabric {
	t.Helper()
	f := must(s.open(s.nics...))(t)
	t.Cleanup(func() {
		for range 2 {
			if err := f.Close(); err != nil {
				t.Errorf("close the fabric of %v: %v", f.NICs(), err)
			}
		}
	})
	return f
}

// alloc returns memory of a kind.
func (k kind) alloc(t testing.TB, f *gpurdma.Fabric, size int64, opts ...gpurdma.BufferOption) *gpurdma.Buffer {
	t.Helper()
	b := must(f.Alloc(limited(t), k.spec, size, append(opts, k.opts...)...))(t)
	if b.Size() != size || b.Path().Staged != k.staged {
		t.Fatalf("%s: %v, %v", k.name, b, b.Path())
	}
	return b
}

// host returns host memory.
func host(t testing.TB, f *gpurdma.Fabric, size int64) *gpurdma.Buffer {
	t.Helper()
	return kind{name: "host", spec: "host"}.alloc(t, f, size)
}

// pair is two machines with a connection.
type pair struct {
	t              testing.TB
	a, b           *gpurdma.Fabric
	ln             *gpurdma.Listener
	client, server *gpurdma.Conn
	names          int
	memory         func(size int64) (mine, theirs *gpurdma.Buffer) // nil for host memory
}

func (s *setting) pair(t testing.TB) *pair { return s.pairWith(t, gpurdma.Config{}, gpurdma.Config{}) }

func (s *setting) pairWith(t testing.TB, ca, cb gpurdma.Config) *pair {
	t.Helper()
	p := &pair{t: t, a: s.fabric(t), b: s.fabric(t)}
	p.ln = must(p.b.Listen(s.listen, cb))(t)
	p.client, p.server = p.connect(ca)
	return p
}

// connect makes another connection.
func (p *pair) connect(cfg gpurdma.Config) (client, server *gpurdma.Conn) {
	p.t.Helper()
	client = must(p.a.Dial(limited(p.t), p.ln.Addr().String(), cfg))(p.t)
	return client, must(p.ln.Accept(limited(p.t)))(p.t)
}

// export gives the client memory of the server.
func (p *pair) export(s gpurdma.Span, access gpurdma.Access) gpurdma.Remote {
	p.t.Helper()
	return p.exportTo(p.server, p.client, s, access)
}

func (p *pair) exportTo(server, client *gpurdma.Conn, s gpurdma.Span, access gpurdma.Access) gpurdma.Remote {
	p.t.Helper()
	p.names++
	name := fmt.Sprintf("memory %d", p.names)
	ok(p.t, server.Export(name, s, access))
	r := must(client.Import(limited(p.t), name))(p.t)
	if r.Size() != s.Size() || r.Access() != access {
		p.t.Fatalf("exported %d bytes, %v; imported %d, %v", s.Size(), access, r.Size(), r.Access())
	}
	return r
}

// both returns memory of both sides, of which the client has imported the server's.
func (p *pair) both(size int64) (mine, theirs *gpurdma.Buffer, remote gpurdma.Remote) {
	p.t.Helper()
	if p.memory != nil {
		mine, theirs = p.memory(size)
	} else {
		mine, theirs = host(p.t, p.a, size), host(p.t, p.b, size)
	}
	return mine, theirs, p.export(theirs.All(), all)
}

const all = gpurdma.ReadWrite | gpurdma.Atomic

// alive checks that a connection works in both directions.
func (p *pair) alive() {
	p.t.Helper()
	for _, x := range [][2]*gpurdma.Conn{{p.client, p.server}, {p.server, p.client}} {
		ok(p.t, x[0].Send(limited(p.t), []byte("alive")))
		if m := must(x[1].Receive(limited(p.t)))(p.t); string(m) != "alive" {
			p.t.Fatalf("received %q", m)
		}
	}
}

// fill writes random bytes, and returns them.
func fill(t testing.TB, r *rand.Rand, b *gpurdma.Buffer) []byte {
	t.Helper()
	p := make([]byte, b.Size())
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	put(t, b, p)
	return p
}

func put(t testing.TB, b *gpurdma.Buffer, p []byte) {
	t.Helper()
	if n, err := b.WriteAt(p, 0); n != len(p) || err != nil {
		t.Fatal(n, err)
	}
}

// content returns the bytes of a buffer.
func content(t testing.TB, b *gpurdma.Buffer) []byte {
	t.Helper()
	p := make([]byte, b.Size())
	if n, err := b.ReadAt(p, 0); n != len(p) || err != nil {
		t.Fatal(n, err)
	}
	return p
}

// same compares all bytes.
func same(t testing.TB, what string, b *gpurdma.Buffer, want []byte) {
	t.Helper()
	got := content(t, b)
	if bytes.Equal(got, want) {
		return
	}
	n, first := 0, -1
	for i := range got {
		if got[i] != want[i] {
			first = cmp.Or(first+1, i+1) - 1
			n++
		}
	}
	t.Fatalf("%s: %d of %d bytes are wrong, one at %d: %#x, want %#x", what, n, len(got), first, got[first], want[first])
}

// settle returns when the bytes of the client's writes are in the server's memory.
func (p *pair) settle() {
	p.t.Helper()
	p.say(p.client, p.server)
}

func (p *pair) say(from, to *gpurdma.Conn) {
	p.t.Helper()
	ok(p.t, from.Send(limited(p.t), []byte("settled")))
	if m := must(to.Receive(limited(p.t)))(p.t); string(m) != "settled" {
		p.t.Fatalf("received %q", m)
	}
}

// eachKind runs a test on every pair of kinds.
func (s *setting) eachKind(t *testing.T, run func(t *testing.T, local, remote kind)) {
	for _, l := range s.kinds {
		for _, r := range s.kinds {
			if t.Failed() {
				return
			}
			run(t, l, r)
		}
	}
}

// errs collects the errors of goroutines.
type errs struct {
	t  testing.TB
	wg sync.WaitGroup
}

func (e *errs) do(n int, f func(i int) error) {
	for i := range n {
		e.wg.Go(func() {
			if err := f(i); err != nil {
				e.t.Errorf("goroutine %d: %v", i, err)
			}
		})
	}
}

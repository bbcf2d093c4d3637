// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/rails"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// limit is far above the time that any test needs.
var limit = testenv.Limit(time.Minute)

func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
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

// world is two fabrics on a network in memory, and a connection.
type world struct {
	t      testing.TB
	net    *memnic.Network
	a, b   *Fabric
	da, db *memnic.Device
	ln     *Listener
	ca, cb *Conn // of a and b
}

// newWorld fails the test if something stays open.
func newWorld(t testing.TB, cfg Config) *world {
	t.Helper()
	w := &world{t: t, net: memnic.New(memnic.Exchanges(), memnic.TimeScale(0.05))}
	w.a, w.da = w.fabric("nic-a")
	w.b, w.db = w.fabric("nic-b")
	t.Cleanup(func() {
		_ = w.a.Close()
		_ = w.b.Close()
		if n := w.net.Open(); n != 0 {
			t.Errorf("%d registrations, links and queues are left", n)
		}
	})
	w.ln = must(w.b.Listen("b:1", cfg))(t)
	w.ca, w.cb = w.connect(cfg)
	return w
}

func (w *world) fabric(name string) (*Fabric, *memnic.Device) {
	d := w.net.Device(name, memnic.Limits{MaxSGE: 5, Inline: 64})
	return must(fabricOf(memory.NewNIC(d, memory.NICOptions{})))(w.t), d
}

// connect makes another connection.
func (w *world) connect(cfg Config) (a, b *Conn) {
	w.t.Helper()
	a = must(w.a.Dial(limited(w.t), "b:1", cfg))(w.t)
	b = must(w.ln.Accept(limited(w.t)))(w.t)
	return a, b
}

// host returns host memory of a fabric.
func (w *world) host(f *Fabric, size int64) *Buffer {
	w.t.Helper()
	return must(f.Alloc(limited(w.t), "host", size))(w.t)
}

// lend exports new memory of b to a.
func (w *world) lend(name string, size int64) (*Buffer, Remote) {
	w.t.Helper()
	m := w.host(w.b, size)
	w.ok(w.cb.Export(name, m.All(), ReadWrite|Atomic))
	return m, must(w.ca.Import(limited(w.t), name))(w.t)
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// put sets the bytes of a buffer.
func (w *world) put(b *Buffer, p []byte) {
	w.t.Helper()
	if _, err := b.WriteAt(p, 0); err != nil {
		w.t.Fatal(err)
	}
}

// get returns the first n bytes of a buffer.
func (w *world) get(b *Buffer, n int) []byte {
	w.t.Helper()
	p := make([]byte, n)
	if _, err := b.ReadAt(p, 0); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// fabricOf returns a fabric of NICs.
func fabricOf(nics ...*memory.NIC) (*Fabric, error) {
	set, err := rails.NewSet(nics, maxConns)
	return newFabric(set), err
}

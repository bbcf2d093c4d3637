// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"sync/atomic"
	"testing"

	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// BenchmarkWrite measures a 64-byte write that is posted and waited for alone. The network in
// memory carries it out in the poll. Compare the cost of a blocking call and of a queue with that
// of posting and polling by hand.
func BenchmarkWrite(b *testing.B) {
	w := newManual(b)
	for _, way := range w.ways() {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				way.write()
			}
		})
	}
}

// A blocking write and one of a queue allocate no more than one that is posted and polled by
// hand, whose allocations are those of the network in memory.
func TestWritesDoNotAllocate(t *testing.T) {
	w := newManual(t)
	least := 0.0
	for i, way := range w.ways() {
		n := testing.AllocsPerRun(500, way.write)
		if i == 0 {
			least = n
		}
		if n > least+1 { // under the race detector sync.Pool forgets
			t.Errorf("%s: %v allocations, %v by hand", way.name, n, least)
		}
	}
}

// manual is a connection over a network in memory that carries out what is posted in the poll.
type manual struct {
	*world
	op Op
}

func newManual(t testing.TB) *manual {
	w := &world{t: t, net: memnic.New(memnic.Exchanges(), memnic.Manual())}
	w.a, w.da = w.fabric("nic-a")
	w.b, w.db = w.fabric("nic-b")
	t.Cleanup(func() {
		w.ok(w.a.Close())
		w.ok(w.b.Close())
	})
	w.ln = must(w.b.Listen("b:1", Config{}))(t)
	w.ca, w.cb = w.connect(Config{})
	mine := w.host(w.a, 64)
	_, remote := w.lend("memory", 64)
	return &manual{w, Op{Kind: OpWrite, Local: mine.All(), Remote: remote}}
}

// way is a way to write and to wait.
type way struct {
	name  string
	write func()
}

func (m *manual) ways() []way {
	e, s := m.ca.c.FirstRail.NIC.Endpoint, new(counted)
	ctx := limited(m.t)
	q := m.a.NewQueue(16)
	ops, done := []Op{m.op}, make([]Completion, 16)
	return []way{
		{"by-hand", func() {
			if _, err := m.ca.post(ctx, &m.op, false, nil, s); err != nil {
				m.t.Fatal(err)
			}
			for s.n.Load() == 0 {
				e.Look()
			}
			s.n.Store(0)
		}},
		{"blocking", func() {
			if err := m.ca.Write(ctx, m.op.Remote, m.op.Local); err != nil {
				m.t.Fatal(err)
			}
		}},
		{"queue", func() {
			if n, err := q.Post(m.ca, ops); n != 1 {
				m.t.Fatal(err)
			}
			if n, err := q.Wait(ctx, done); n != 1 || done[0].Err != nil {
				m.t.Fatal(err, done[0].Err)
			}
		}},
	}
}

// counted counts completions. The endpoint's own goroutine may take some of them.
type counted struct{ n atomic.Int64 }

func (s *counted) Complete(operation.Completion) { s.n.Add(1) }

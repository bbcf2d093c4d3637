// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memstream"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Programs that do anything at any time, over a network that fails at any time, end, and leave
// nothing: every call returns, and every Close ends.
func TestAnythingAtAnyTime(t *testing.T) {
	seeds := testenv.Seeded(t)
	for range testenv.Count(60) {
		m := mess{t: t, seed: seeds.Uint64(), net: memnic.New(memnic.Exchanges(), memnic.TimeScale(0.05))}
		if m.run(); t.Failed() {
			t.Fatalf("the mess of %#x", m.seed)
		}
	}
}

// mess is two fabrics of two NICs, three clients, and a server.
type mess struct {
	t    *testing.T
	seed uint64
	net  *memnic.Network
	all  sync.WaitGroup
	a, b *Fabric
}

var messConfig = Config{Messages: 2, Depth: 8, PeerTimeout: 500 * time.Millisecond}

func (m *mess) random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(m.seed, stream)) }

func (m *mess) run() {
	a, as := twoNICs(m.t, m.net, "a0", "a1")
	b, bs := twoNICs(m.t, m.net, "b0", "b1")
	m.a, m.b = a, b
	ctx, cancel := context.WithTimeout(limited(m.t), testenv.Limit(5*time.Second))
	defer cancel()
	ln := must(b.Listen("b:1", messConfig))(m.t)
	m.all.Go(func() { m.serve(ctx, ln) })
	for i := range uint64(3) {
		m.all.Go(func() { m.client(ctx, i) })
	}
	r := m.random(100)
	time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
	switch r.IntN(6) {
	case 0:
		m.net.Cut(as[0], bs[0])
		m.net.Cut(as[1], bs[0])
	case 1:
		m.net.CutExchanges(memstream.Reset)
	case 2:
		m.net.CutExchanges(memstream.Silent)
	case 3:
		bs[0].Remove()
	case 4:
		_ = ln.Close()
	}
	pause := time.Duration(r.IntN(2)*20) * time.Millisecond
	m.ends("Close of a fabric", func() {
		var both sync.WaitGroup
		both.Go(func() {
			time.Sleep(pause)
			_ = a.Close()
		})
		both.Go(func() { _ = b.Close() })
		both.Wait()
	})
	cancel()
	m.ends("a call", m.all.Wait)
	if n := m.net.Open(); n != 0 {
		m.t.Errorf("%d registrations, links and queues are left", n)
	}
}

// ends fails the test if something does not end.
func (m *mess) ends(what string, f func()) {
	done := make(chan struct{})
	go func() {
		f()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(testenv.Limit(20 * time.Second)):
		stacks := make([]byte, 1<<18)
		m.t.Fatalf("%s of the mess of %#x does not end\n%s", what, m.seed, stacks[:runtime.Stack(stacks, true)])
	}
}

// memory returns memory that is registered, or staged.
func (m *mess) memory(ctx context.Context, f *Fabric, r *rand.Rand) (*Buffer, error) {
	if r.IntN(2) == 0 {
		return f.Alloc(ctx, "host", 256)
	}
	return f.Register(ctx, newSource(256), StagedOnly())
}

func (m *mess) serve(ctx context.Context, ln *Listener) {
	for i := uint64(200); ; i++ {
		c, err := ln.Accept(ctx)
		if err != nil {
			return
		}
		m.all.Go(func() { m.lend(ctx, c, m.random(i)) })
	}
}

func (m *mess) lend(ctx context.Context, c *Conn, r *rand.Rand) {
	mine, err := m.memory(ctx, m.b, r)
	if err != nil {
		return
	}
	_ = c.Export("m", mine.All(), ReadWrite|Atomic)
	for _, take := range []func(context.Context) ([]byte, error){c.Receive, c.ReceiveNotification} {
		m.all.Go(func() {
			for {
				if _, err := take(ctx); err != nil {
					return
				}
			}
		})
	}
	time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
	switch r.IntN(4) {
	case 0:
		_ = c.Unexport("m")
	case 1:
		_ = c.Close()
	case 2:
		_ = mine.Close()
	}
	<-c.Done()
	_ = mine.Close()
}

func (m *mess) client(ctx context.Context, stream uint64) {
	r := m.random(stream)
	cfg := messConfig
	cfg.NIC = []string{"a0", "a1"}[r.IntN(2)]
	c, err := m.a.Dial(ctx, "b:1", cfg)
	if err != nil {
		return
	}
	defer c.Close()
	remote, err := c.Import(ctx, "m")
	if err != nil {
		return
	}
	q := m.a.NewQueue(8)
	defer q.Close()
	var work sync.WaitGroup
	for i := range uint64(4) {
		work.Go(func() { m.operate(ctx, c, q, remote, m.random(10*stream+i+300)) })
	}
	if r.IntN(3) == 0 {
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		_ = c.Close()
	}
	work.Wait()
}

// operate does 40 operations, with little time for each; most of them fail.
func (m *mess) operate(ctx context.Context, c *Conn, q *Queue, remote Remote, r *rand.Rand) {
	mine, err := m.memory(ctx, m.a, r)
	if err != nil {
		return
	}
	defer mine.Close()
	if r.IntN(3) == 0 {
		mine.SetReady(func(context.Context) error {
			runtime.Gosched()
			return nil
		})
	}
	for range 40 {
		m.operation(ctx, c, q, remote, mine, r)
	}
}

func (m *mess) operation(ctx context.Context, c *Conn, q *Queue, remote Remote, mine *Buffer, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(2000))*time.Microsecond)
	defer cancel()
	write := Op{Kind: OpWrite, Local: mine.All(), Remote: remote}
	switch r.IntN(9) {
	case 0:
		_ = c.Write(ctx, remote, mine.All(), Notify([]byte("n")))
	case 1:
		_ = c.Read(ctx, mine.All(), remote)
	case 2:
		_ = c.Send(ctx, []byte("x"))
	case 3:
		_, _ = c.FetchAdd(ctx, remote.Range(0, 8), 1)
	case 4:
		b := c.Batch()
		for range r.IntN(12) {
			b.Write(remote, mine.All(), Delivered())
			b.Read(mine.All(), remote)
		}
		_ = b.Do(ctx)
	case 5:
		write.Fence, write.Notify = true, r.IntN(2) == 0
		if x, err := c.Start(ctx, write); err == nil {
			if r.IntN(2) == 0 {
				x.Cancel()
			}
			<-x.Done()
			<-x.Released()
		}
	case 6:
		_, _ = q.Post(c, []Op{{Kind: OpRead, Local: mine.All(), Remote: remote}, write})
		_, _ = q.Wait(ctx, make([]Completion, 4))
	case 7:
		name := fmt.Sprint(r.Uint64())
		if c.Export(name, mine.All(), ReadWrite) == nil {
			_ = c.Unexport(name)
		}
	case 8:
		_, _ = mine.ReadAt(make([]byte, 10), 3)
		_, _ = mine.WriteAt(make([]byte, 10), 7)
	}
}

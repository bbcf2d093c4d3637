// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memstream"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Connections end in every way in the middle of everything: each call returns, each operation of
// a queue has one completion, and nothing stays open.
func TestRandomEnds(t *testing.T) {
	r := testenv.Seeded(t)
	for range testenv.Count(30) {
		if randomEnd(t, r.Uint64()); t.Failed() {
			return
		}
	}
}

func randomEnd(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	cfg := Config{PeerTimeout: 300 * time.Millisecond, Depth: 1 + r.IntN(20), Messages: 1 + r.IntN(5)}
	w := &world{t: t, net: memnic.New(memnic.Exchanges(), memnic.TimeScale(0.2))}
	w.a, w.da = w.fabric("nic-a")
	w.b, w.db = w.fabric("nic-b")
	w.ln = must(w.b.Listen("b:1", cfg))(t)
	w.ca, w.cb = w.connect(cfg)
	const size = 1 << 14
	mine, theirs := w.host(w.a, size), w.host(w.b, size)
	w.ok(w.cb.Export("memory", theirs.All(), ReadWrite|Atomic))
	w.ok(w.ca.Export("memory", mine.All(), ReadWrite|Atomic))
	ra, rb := must(w.ca.Import(limited(t), "memory"))(t), must(w.cb.Import(limited(t), "memory"))(t)

	var all sync.WaitGroup
	for g := range 4 {
		c, m, to := w.ca, mine, ra
		if g%2 == 1 {
			c, m, to = w.cb, theirs, rb
		}
		seed := r.Uint64()
		all.Go(func() { useUntilTheEnd(t, rand.New(rand.NewPCG(seed, 2)), c, m, to) })
	}
	for _, c := range []*Conn{w.ca, w.cb} {
		all.Go(func() {
			for {
				if _, err := c.Receive(limited(t)); err != nil {
					return
				}
			}
		})
		all.Go(func() {
			for _, err := range c.Notifications(limited(t)) {
				if errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			}
		})
	}
	time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
	outcomes := make(chan error, 10)
	ends := []func(){
		func() { outcomes <- w.ca.Close() },
		func() { outcomes <- w.cb.Close() },
		func() { w.net.Cut(w.da, w.db); outcomes <- w.ca.Close() },
		func() { w.net.CutExchanges(memstream.Silent); outcomes <- w.cb.Close() },
		func() { w.net.CutExchanges(memstream.Reset) },
		func() { w.da.Remove() },
		func() { outcomes <- w.a.Close() },
		func() { outcomes <- w.b.Close() },
	}
	for range 1 + r.IntN(3) {
		end := ends[r.IntN(len(ends))]
		all.Go(end)
	}
	all.Wait()
	close(outcomes)
	for err := range outcomes {
		if err != nil && !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("Close: %v", err)
		}
	}
	for _, f := range []*Fabric{w.a, w.b} {
		if err := f.Close(); err != nil && !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("Fabric.Close: %v", err)
		}
	}
	if n := w.net.Open(); n != 0 {
		t.Errorf("seed %#x: %d registrations, links and queues are left", seed, n)
	}
}

// useUntilTheEnd uses a connection in all ways until it has ended.
func useUntilTheEnd(t *testing.T, r *rand.Rand, c *Conn, m *Buffer, to Remote) {
	q := c.fabric.NewQueue(8)
	posted, completed := 0, 0
	done := make([]Completion, 8)
	wrong := func(err error) bool {
		return err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) &&
			!errors.Is(err, ErrQueueFull) && !errors.Is(err, net.ErrClosed) && c.Err() == nil && !ending(c)
	}
	for {
		select {
		case <-c.Done():
			for completed < posted {
				n, err := q.Wait(limited(t), done)
				if completed += n; err != nil {
					t.Errorf("%d of %d completions: %v", completed, posted, err)
					return
				}
			}
			return
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(2000))*time.Microsecond)
		n := int64(1 + r.IntN(2000))
		off := int64(r.IntN(1000)) * 8
		var err error
		switch r.IntN(7) {
		case 0:
			err = c.Write(ctx, to.Range(off, n), m.Range(off, n))
		case 1:
			err = c.Write(ctx, to.Range(off, n), m.Range(off, n), Notify([]byte("note")))
		case 2:
			err = c.Read(ctx, m.Range(off, n), to.Range(off, n))
		case 3:
			_, err = c.FetchAdd(ctx, to.Range(off, 8), 1)
		case 4:
			err = c.Send(ctx, []byte("message"))
		case 5:
			var x *Transfer
			if x, err = c.Start(ctx, Op{Kind: OpWrite, Local: m.Range(off, n), Remote: to.Range(off, n), Notify: true}); err == nil {
				if r.IntN(2) == 0 {
					x.Cancel()
				}
				<-x.Done()
				err = x.Err()
			}
		case 6:
			var k int
			k, err = q.Post(c, []Op{{Kind: OpWrite, Inline: []byte{1, 2, 3}, Remote: to.Range(off, 3)}, {Kind: OpSend, Inline: []byte("from a queue")}})
			posted += k
			if n, e := q.Poll(done); e != nil {
				t.Error(e)
			} else {
				completed += n
			}
		}
		if cancel(); wrong(err) {
			time.Sleep(time.Second) // the end may be on its way
			if wrong(err) {
				t.Errorf("%v", err)
			}
		}
	}
}

// ending reports whether the connection cannot be used any more.
func ending(c *Conn) bool { return !c.c.First.Up() }

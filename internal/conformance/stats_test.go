// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// tally is a test's own count, of each kind.
type tally struct {
	mu     sync.Mutex
	counts map[gpurdma.OpKind]gpurdma.Stats // Done, Failed, Bytes, Staged
}

func (y *tally) count(kind gpurdma.OpKind, done, failed uint64, bytes, staged int64) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.counts == nil {
		y.counts = map[gpurdma.OpKind]gpurdma.Stats{}
	}
	s := y.counts[kind]
	s.Done, s.Failed, s.Bytes, s.Staged = s.Done+done, s.Failed+failed, s.Bytes+bytes, s.Staged+staged
	y.counts[kind] = s
}

// opKinds are all kinds.
var opKinds = []gpurdma.OpKind{gpurdma.OpWrite, gpurdma.OpRead, gpurdma.OpSend, gpurdma.OpFetchAdd, gpurdma.OpCompareSwap}

// compare compares counters with the test's own count. Those of memory that a test does not count
// are not compared.
func (y *tally) compare(t testing.TB, what string, got gpurdma.Stats, staged bool) {
	t.Helper()
	if len(got.ByKind) != len(opKinds) {
		t.Errorf("%s: %d kinds", what, len(got.ByKind))
	}
	var sum gpurdma.Stats
	for _, kind := range opKinds {
		x, want := got.ByKind[kind], y.counts[kind]
		if x.Done != want.Done || x.Failed != want.Failed || x.Bytes != want.Bytes || staged && x.Staged != want.Staged {
			t.Errorf("%s: %v: %d done, %d failed, %d bytes, %d staged; counted %d, %d, %d, %d", what, kind, x.Done, x.Failed, x.Bytes, x.Staged, want.Done, want.Failed, want.Bytes, want.Staged)
		}
		consistent(t, fmt.Sprintf("%s: %v", what, kind), x)
		sum.Done, sum.Failed, sum.Bytes, sum.Time = sum.Done+x.Done, sum.Failed+x.Failed, sum.Bytes+x.Bytes, sum.Time+x.Time
	}
	consistent(t, what, got)
	if got.Done != sum.Done || got.Failed != sum.Failed || got.Bytes != sum.Bytes || got.Time != sum.Time {
		t.Errorf("%s: %+v is not the sum of the kinds", what, got)
	}
}

// consistent checks that a histogram of times has all that were done.
func consistent(t testing.TB, what string, s gpurdma.Stats) {
	t.Helper()
	if len(s.Latency) != 26 {
		t.Fatalf("%s: %d buckets", what, len(s.Latency))
	}
	var n uint64
	var least time.Duration
	for i, x := range s.Latency {
		n += x
		if i > 0 {
			least += time.Duration(x) * (time.Microsecond << (i - 1))
		}
	}
	if n != s.Done || s.Time < least || s.Time > 2*least+time.Duration(s.Latency[0])*time.Microsecond && s.Latency[25] == 0 {
		t.Errorf("%s: %d in the histogram, %v at least, %d done in %v", what, n, least, s.Done, s.Time)
	}
}

// Stats counts what is done, and not what is refused before it is posted.
func testStats(t *testing.T, s *setting) {
	p := s.pair(t)
	mine, _, remote := p.both(100)
	var y tally
	ok(t, p.client.Write(limited(t), remote, mine.All()))
	ok(t, p.client.Write(limited(t), remote.Range(0, 7), mine.Range(0, 7), gpurdma.Notify([]byte("seven")), gpurdma.Delivered()))
	y.count(gpurdma.OpWrite, 2, 0, 107, 0)
	ok(t, p.client.Read(limited(t), mine.Range(0, 10), remote.Range(0, 10)))
	y.count(gpurdma.OpRead, 1, 0, 10, 0)
	_ = p.client.Write(limited(t), remote.Range(0, 200), mine.All())
	_ = must(p.client.FetchAdd(limited(t), remote.Range(0, 8), 1))(t)
	y.count(gpurdma.OpFetchAdd, 1, 0, 8, 0)
	_ = must(p.client.CompareSwap(limited(t), remote.Range(0, 8), 1, 2))(t)
	y.count(gpurdma.OpCompareSwap, 1, 0, 8, 0)
	ok(t, p.client.Send(limited(t), []byte("hello")))
	y.count(gpurdma.OpSend, 1, 0, 5, 0)
	y.compare(t, "a connection", p.client.Stats(), true)
	y.compare(t, "its NIC", p.client.Stats().ByNIC[s.nics[0]], true)
	f := p.a.Stats()
	y.compare(t, "a fabric", f, true)
	y.compare(t, "the fabric's NIC", f.ByNIC[s.nics[0]], true)
	if n := f.ByNIC[s.nics[0]]; f.Pinned < 100 || f.Staged != 0 || f.Conns != 1 || n.Pinned > f.Pinned || len(s.nics) == 1 && n.Pinned != f.Pinned || n.Conns != 1 || len(f.ByNIC) != len(s.nics) {
		t.Errorf("%+v", f)
	}
	(&tally{}).compare(t, "the peer", p.server.Stats(), true)
}

// Stats counts what several goroutines do by all calls, on connections in both directions. Others
// read the counters meanwhile: none becomes smaller.
func testStatsOfMany(t *testing.T, s *setting) {
	p := s.pairWith(t, gpurdma.Config{Depth: 16}, gpurdma.Config{})
	const size = 1000
	seed := testenv.Seeded(t).Uint64()
	n := testenv.Count(25)
	var y tally
	e := errs{t: t}
	done, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		var last gpurdma.Stats
		for {
			x := p.client.Stats()
			if x.Done < last.Done || x.Failed < last.Failed || x.Bytes < last.Bytes || x.Time < last.Time {
				t.Errorf("%+v, then %+v", last, x)
			}
			last = p.a.Stats()
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	ctx, stop := context.WithCancel(limited(t))
	e.do(1, func(int) error { // takes messages and notifications
		for m, err := range p.server.Notifications(ctx) {
			if err != nil {
				break
			}
			_ = m
		}
		return nil
	})
	e.do(1, func(int) error {
		for ctx.Err() == nil {
			_, _ = p.server.Receive(ctx)
		}
		return nil
	})
	work := errs{t: t}
	shared := p.export(host(t, p.b, 8).All(), all)
	work.do(6, func(i int) error {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		k := s.kinds[i%len(s.kinds)]
		mine, theirs := k.alloc(t, p.a, size), host(t, p.b, size)
		name := fmt.Sprint("memory of ", i)
		if err := p.server.Export(name, theirs.All(), all); err != nil {
			return err
		}
		remote, err := p.client.Import(limited(t), name)
		if err != nil {
			return err
		}
		q := p.a.NewQueue(4)
		defer q.Close()
		for range n {
			op := gpurdma.Op{Kind: opKinds[r.IntN(len(opKinds))]}
			bytes := 1 + r.Int64N(size)
			switch op.Kind {
			case gpurdma.OpWrite:
				op.Local, op.Remote, op.Notify, op.Delivered = mine.Range(0, bytes), remote.Range(size-bytes, bytes), r.IntN(3) == 0, r.IntN(3) == 0
				if r.IntN(3) == 0 {
					bytes = min(bytes, 200)
					op.Local, op.Inline, op.Remote = gpurdma.Span{}, make([]byte, bytes), remote.Range(0, bytes)
				}
			case gpurdma.OpRead:
				op.Local, op.Remote = mine.Range(0, bytes), remote.Range(size-bytes, bytes)
			case gpurdma.OpSend:
				op.Inline = make([]byte, bytes)
			default:
				op.Remote, bytes = shared, 8
			}
			var err error
			switch r.IntN(3) {
			case 0:
				x, startErr := p.client.Start(limited(t), op)
				if err = startErr; err == nil {
					<-x.Done()
					err = x.Err()
				}
			case 1:
				b := p.client.Batch()
				b.Add(op)
				b.Add(op)
				err = b.Do(limited(t))
				y.count(op.Kind, 1, 0, bytes, 0)
			case 2:
				done, posted := make([]gpurdma.Completion, 1), 0
				for posted == 0 && (err == nil || errors.Is(err, gpurdma.ErrQueueFull)) {
					posted, err = q.Post(p.client, []gpurdma.Op{op})
					for took := 0; err == nil && took == 0; {
						took, err = q.Wait(limited(t), done)
					}
				}
				if err == nil {
					err = done[0].Err
				}
			}
			if err != nil {
				return fmt.Errorf("%v: %w", op.Kind, err)
			}
			y.count(op.Kind, 1, 0, bytes, 0)
		}
		return nil
	})
	work.wg.Wait()
	stop()
	close(done)
	e.wg.Wait()
	<-watched
	y.compare(t, "a connection", p.client.Stats(), false)
	y.compare(t, "the fabric", p.a.Stats(), false)
}

// A fabric counts what connections have done that have ended, and each operation once.
func testStatsOfEnded(t *testing.T, s *setting) {
	p := s.pair(t)
	var y tally
	ended := p.client
	for range 3 {
		client, server := p.connect(gpurdma.Config{})
		e := errs{t: t}
		e.do(4, func(int) error { return client.Send(limited(t), []byte("hello")) })
		e.wg.Wait()
		y.count(gpurdma.OpSend, 4, 0, 20, 0)
		y.compare(t, "an open connection", p.a.Stats(), true)
		ok(t, client.Close())
		if n := client.Stats(); n.Done != 4 || n.Bytes != 20 {
			t.Errorf("after its end: %+v", n)
		}
		gone(t, server)
		y.compare(t, "an ended connection", p.a.Stats(), true)
		ended = client
	}
	if err := ended.Send(limited(t), []byte("too late")); err == nil {
		t.Error("an ended connection sends")
	}
	if n := p.a.Stats(); n.Conns != 1 || n.ByNIC[s.nics[0]].Conns != 1 {
		t.Errorf("%d connections", n.Conns)
	}
	ok(t, p.client.Send(limited(t), []byte("last")))
	y.count(gpurdma.OpSend, 1, 0, 4, 0)
	ok(t, p.a.Close())
	y.compare(t, "a closed fabric", p.a.Stats(), true)
	if n := p.a.Stats(); n.Conns != 0 || n.Pinned != 0 {
		t.Errorf("%+v", n)
	}
}

// Operations that were withdrawn, and those of a connection that fails, count as failed, and their
// bytes do not count.
func TestStatsOfFailures(t *testing.T) {
	s := inMemory(t, fabrictest.Options{})
	p := s.carelessPair(t, impatient)
	mine, _, remote := p.both(1000)
	var y tally
	open := gated(t, mine)
	var list []*gpurdma.Transfer
	for i := range int64(5) {
		list = append(list, must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.Range(0, 100+i), Remote: remote.Range(0, 100+i)}))(t))
	}
	for _, i := range []int{1, 4} {
		if !list[i].Cancel() {
			t.Error("not withdrawn")
		}
	}
	open()
	for _, x := range list {
		<-x.Released()
	}
	mine.SetReady(nil)
	y.count(gpurdma.OpWrite, 3, 2, 100+102+103, 0)
	y.compare(t, "withdrawn", p.client.Stats(), true)

	// A call whose context has ended posts nothing.
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.client.Write(over, remote, mine.All()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := p.client.Write(limited(t), remote.Range(0, 1), mine.All()); !errors.Is(err, failure.ErrRange) {
		t.Error(err)
	}
	y.compare(t, "refused", p.client.Stats(), true)

	s.net.Cut(p.a, p.b)
	s.net.CutExchanges(fabrictest.Silent, p.b)
	e := errs{t: t}
	fails := func(err error) error {
		if err == nil {
			return errors.New("it has succeeded")
		}
		return nil
	}
	e.do(3, func(int) error { return fails(p.client.Write(limited(t), remote, mine.All())) })
	e.do(2, func(int) error { return fails(p.client.Send(limited(t), []byte("hello"))) })
	e.do(2, func(int) error {
		x, err := p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpRead, Local: mine.All(), Remote: remote})
		if err != nil {
			return err
		}
		<-x.Done()
		return fails(x.Err())
	})
	e.wg.Wait()
	<-p.client.Done()
	// Those that came after the end were refused.
	got := p.client.Stats()
	write, read, send := got.ByKind[gpurdma.OpWrite].Failed-2, got.ByKind[gpurdma.OpRead].Failed, got.ByKind[gpurdma.OpSend].Failed
	if write > 3 || read > 2 || send > 2 || write+read+send == 0 {
		t.Errorf("%d, %d and %d have failed", write, read, send)
	}
	y.count(gpurdma.OpWrite, 0, write, 0, 0)
	y.count(gpurdma.OpRead, 0, read, 0, 0)
	y.count(gpurdma.OpSend, 0, send, 0, 0)
	y.compare(t, "failed", got, true)
	y.compare(t, "failed, of the fabric", p.a.Stats(), true)
}

// Operations that the peer's NIC does not carry out in time all fail, and each counts.
func TestStatsOfCutPath(t *testing.T) {
	s := inMemory(t, fabrictest.Options{})
	p := s.carelessPair(t, impatient)
	mine, _, remote := p.both(1000)
	var y tally
	s.net.Cut(p.a, p.b)
	q := p.a.NewQueue(0)
	defer q.Close()
	ops := []gpurdma.Op{
		{Kind: gpurdma.OpWrite, Local: mine.All(), Remote: remote, Notify: true},
		{Kind: gpurdma.OpRead, Local: mine.All(), Remote: remote},
		{Kind: gpurdma.OpSend, Inline: []byte("hello")},
		{Kind: gpurdma.OpFetchAdd, Remote: remote.Range(0, 8)},
		{Kind: gpurdma.OpCompareSwap, Remote: remote.Range(0, 8)},
		{Kind: gpurdma.OpWrite, Inline: []byte("1"), Remote: remote.Range(0, 1)},
	}
	if n, err := q.Post(p.client, ops); n != len(ops) || err != nil {
		t.Fatal(n, err)
	}
	for _, op := range ops {
		y.count(op.Kind, 0, 1, 0, 0)
	}
	done := make([]gpurdma.Completion, len(ops))
	for n := 0; n < len(ops); {
		k := must(q.Wait(limited(t), done[n:]))(t)
		for _, d := range done[n : n+k] {
			if d.Err == nil {
				t.Errorf("%v has succeeded", d.Kind)
			}
		}
		n += k
	}
	y.compare(t, "a cut path", p.client.Stats(), true)
}

// Bytes that are copied for staged memory count for the operation that needs the copy.
func TestStatsOfStagedMemory(t *testing.T) {
	s := inMemory(t, fabrictest.Options{})
	p := s.pair(t)
	const size = 200_000
	src := must(fabrictest.NewStagedMemory(size))(t)
	mine := must(p.a.Register(limited(t), src))(t)
	theirs := host(t, p.b, size)
	remote := p.export(theirs.All(), all)
	var y tally
	gpu := func(off, n int64, value byte) {
		p := make([]byte, n)
		for i := range p {
			p[i] = value
		}
		must(src.WriteAt(p, off))(t)
	}
	write := func(off, n, staged int64) {
		ok(t, p.client.Write(limited(t), remote.Range(off, n), mine.Range(off, n)))
		y.count(gpurdma.OpWrite, 1, 0, n, staged)
	}
	gpu(0, size, 1)
	write(0, size, size) // all is new
	write(0, size, 0)    // nothing has changed
	gpu(100_000, 50, 2)
	write(0, 100_000, 0)
	write(99_000, 10_000, 50)
	ok(t, p.client.Read(limited(t), mine.Range(7, 90_000), remote.Range(0, 90_000)))
	y.count(gpurdma.OpRead, 1, 0, 90_000, 90_000)
	_ = must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpFetchAdd, Local: mine.Range(64, 8), Remote: remote.Range(0, 8)}))(t)
	ok(t, p.client.Send(limited(t), []byte("hello")))
	y.count(gpurdma.OpFetchAdd, 1, 0, 8, 8)
	y.count(gpurdma.OpSend, 1, 0, 5, 0)
	for p.client.Stats().Done < 7 { // the copy goes on
		time.Sleep(time.Millisecond)
	}
	y.compare(t, "staged", p.client.Stats(), true)
	if got, want := p.a.Stats().Staged, int64(size+50+90_000+8); got != want || p.client.Stats().Staged != want || p.a.Stats().ByNIC["mem0"].Staged != want {
		t.Errorf("the fabric has copied %d, the connection %d, want %d", got, p.client.Stats().Staged, want)
	}
	gpu(0, 10, 3)
	ok(t, mine.Sync())
	if f, c := p.a.Stats().Staged, p.client.Stats().Staged; f != c+10 {
		t.Errorf("after Sync: %d and %d", f, c)
	}
	// An operation that is withdrawn before its copy.
	gpu(0, 10, 4)
	open := gated(t, mine)
	first := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.Range(0, 10), Remote: remote.Range(0, 10)}))(t)
	if !first.Cancel() {
		t.Error("not withdrawn")
	}
	open()
	<-first.Released()
	y.count(gpurdma.OpWrite, 0, 1, 0, 0)
	y.compare(t, "withdrawn", p.client.Stats(), true)
	ok(t, mine.Close())
	ok(t, src.Close())
}

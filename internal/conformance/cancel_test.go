// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// A batch does all its operations, more than the connection has room for.
func testBatch(t *testing.T, s *setting) {
	p := s.pairWith(t, gpurdma.Config{Depth: 8}, gpurdma.Config{})
	r := testenv.Seeded(t)
	s.eachKind(t, func(t *testing.T, lk, rk kind) {
		m := newModel(p, r, lk, rk, 3000, 3000)
		b := p.client.Batch()
		for range 2 {
			for i := int64(0); i < 1000; i += 20 {
				b.Write(m.remote.Range(i, 20), m.mine.Range(980-i, 20))
				copy(m.r[i:i+20], m.l[980-i:])
			}
			for i := int64(0); i < 1000; i += 100 {
				b.Read(m.mine.Range(1000+i, 100), m.remote.Range(2000+i, 100))
				copy(m.l[1000+i:1100+i], m.r[2000+i:])
			}
			ok(t, b.Do(limited(t)))
			m.check()
			ok(t, b.Do(limited(t))) // it is empty
			m.check()
		}
	})
}

// An operation of a batch that cannot be posted is reported with its index. Those before it are
// carried out, and those behind it are not.
func testBatchError(t *testing.T, s *setting) {
	p := s.pair(t)
	mine, theirs, remote := p.both(8)
	put(t, mine, []byte("12345678"))
	b := p.client.Batch()
	b.Write(remote.Range(0, 1), mine.Range(0, 1))
	b.Write(remote.Range(1, 1), mine.Range(1, 1))
	b.Write(remote.Range(2, 9), mine.Range(2, 1))
	b.Write(remote.Range(3, 1), mine.Range(3, 1))
	err := b.Do(limited(t))
	var e *gpurdma.OpError
	if !errors.Is(err, failure.ErrRange) || !strings.Contains(err.Error(), "operation 2") || !errors.As(err, &e) || e.Op != gpurdma.OpWrite {
		t.Errorf("%v", err)
	}
	p.settle()
	same(t, "a batch with an error", theirs, []byte("12\x00\x00\x00\x00\x00\x00"))
	ctx, cancel := context.WithCancel(limited(t))
	cancel()
	b.Write(remote, mine.All())
	if err := b.Do(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a batch without time: %v", err)
	}
	p.settle()
	same(t, "a batch without time", theirs, []byte("12\x00\x00\x00\x00\x00\x00"))
}

func testStart(t *testing.T, s *setting) {
	p := s.pair(t)
	mine, theirs, remote := p.both(8)
	put(t, mine, []byte("12345678"))
	x := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.All(), Remote: remote}))(t)
	<-x.Done()
	ok(t, x.Err())
	if x.Cancel() {
		t.Error("a transfer that is done was withdrawn")
	}
	ok(t, x.Err())
	p.settle()
	same(t, "started", theirs, []byte("12345678"))
	ctx, cancel := context.WithCancel(limited(t))
	cancel()
	if _, err := p.client.Start(ctx, gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.All(), Remote: remote}); !errors.Is(err, context.Canceled) {
		t.Errorf("started without time: %v", err)
	}
}

// gated is memory that may not be read until open is called.
func gated(t testing.TB, b *gpurdma.Buffer) (open func()) {
	gate := make(chan struct{})
	b.SetReady(func(ctx context.Context) error {
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return func() { close(gate) }
}

// A transfer that is withdrawn before the NIC has it leaves no byte, and no notification.
func testCancel(t *testing.T, s *setting) {
	p := s.pair(t)
	for _, k := range s.kinds {
		mine, theirs := k.alloc(t, p.a, 5000), host(t, p.b, 5000)
		remote := p.export(theirs.All(), all)
		r := testenv.Seeded(t)
		want := fill(t, r, mine)
		open := gated(t, mine)
		gone := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.All(), Remote: remote, Notify: true, Note: []byte("withdrawn")}))(t)
		ctx, cancel := context.WithCancel(limited(t))
		late := must(p.client.Start(ctx, gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.All(), Remote: remote, Notify: true, Note: []byte("expired")}))(t)
		next := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.Range(7, 3), Remote: remote.Range(7, 3), Notify: true, Note: []byte("next")}))(t)
		select {
		case <-next.Done():
			t.Fatal("a write has overtaken others")
		case <-time.After(10 * time.Millisecond):
		}
		if !gone.Cancel() {
			t.Error("the transfer was not withdrawn")
		}
		<-gone.Done()
		if !errors.Is(gone.Err(), context.Canceled) {
			t.Errorf("withdrawn: %v", gone.Err())
		}
		cancel()
		<-late.Done()
		if !errors.Is(late.Err(), context.Canceled) {
			t.Errorf("expired: %v", late.Err())
		}
		open()
		if n := must(p.server.ReceiveNotification(limited(t)))(t); string(n) != "next" {
			t.Errorf("%s: note %q", k.name, n)
		}
		<-next.Done()
		ok(t, next.Err())
		bytes := make([]byte, 5000)
		copy(bytes[7:10], want[7:])
		same(t, "after a withdrawal: "+k.name, theirs, bytes)
		mine.SetReady(nil)
	}
	p.alive()
}

// Transfers that are withdrawn at any time leave no byte if Cancel says so, and all others
// arrive.
func testCancelMany(t *testing.T, s *setting) {
	p, r := s.pair(t), testenv.Seeded(t)
	for _, k := range s.kinds {
		const n, size = 64, 3000
		mine, theirs := k.alloc(t, p.a, n*size), k.alloc(t, p.b, n*size)
		remote := p.export(theirs.All(), all)
		want := fill(t, r, mine)
		old := fill(t, r, theirs)
		ok(t, theirs.Sync())
		for i := range want {
			if old[i] == want[i] {
				old[i]++
			}
		}
		put(t, theirs, old)
		ok(t, theirs.Sync())
		var list []*gpurdma.Transfer
		for i := range int64(n) {
			op := gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.Range(i*size, size), Remote: remote.Range(i*size, size)}
			if i%8 == 0 {
				op.Notify, op.Note = true, fmt.Append(nil, i)
			}
			list = append(list, must(p.client.Start(limited(t), op))(t))
		}
		withdrawn := map[int]bool{}
		for _, i := range r.Perm(n)[:n/2] {
			withdrawn[i] = list[i].Cancel()
			if withdrawn[i] && list[i].Err() == nil {
				t.Error("withdrawn without an error")
			}
		}
		for _, x := range list {
			<-x.Done()
		}
		p.settle()
		got := content(t, theirs)
		for i, x := range list {
			part, is := got[i*size:(i+1)*size], "other"
			switch string(part) {
			case string(want[i*size : (i+1)*size]):
				is = "new"
			case string(old[i*size : (i+1)*size]):
				is = "old"
			}
			switch _, cancelled := withdrawn[i]; {
			case withdrawn[i] && is != "old":
				t.Errorf("%s: transfer %d was withdrawn, and its bytes are %s", k.name, i, is)
			case !cancelled && (x.Err() != nil || is != "new"):
				t.Errorf("%s: transfer %d: %v, and its bytes are %s", k.name, i, x.Err(), is)
			}
		}
		// The notifications of what was not withdrawn are there, in order.
		last, ctx := -1, soon(t)
		for {
			note, err := p.server.ReceiveNotification(ctx)
			if err != nil {
				break
			}
			var i int
			if _, err := fmt.Sscan(string(note), &i); err != nil || i <= last || i%8 != 0 || withdrawn[i] {
				t.Errorf("%s: note %q after %d", k.name, note, last)
			}
			last = i
		}
	}
	p.alive()
}

// Contexts that end concern their own operations only.
func testContextEnds(t *testing.T, s *setting) {
	p := s.pairWith(t, gpurdma.Config{Depth: 16}, gpurdma.Config{})
	seed := testenv.Seeded(t).Uint64()
	for _, k := range s.kinds {
		const size = 50_000
		n := testenv.Count(30)
		e := errs{t: t}
		e.do(8, func(i int) error {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			mine, theirs := k.alloc(t, p.a, size), k.alloc(t, p.b, size)
			name := fmt.Sprintf("%s %d", k.name, i)
			if err := p.server.Export(name, theirs.All(), all); err != nil {
				return err
			}
			remote, err := p.client.Import(limited(t), name)
			if err != nil {
				return err
			}
			for range n {
				ctx, cancel := limited(t), func() {}
				hurried := i%2 == 0
				if hurried {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(400))*time.Microsecond)
				}
				var err error
				switch r.IntN(3) {
				case 0:
					err = p.client.Write(ctx, remote, mine.All())
				case 1:
					err = p.client.Read(ctx, mine.All(), remote)
				case 2:
					b := p.client.Batch()
					for off := int64(0); off < size; off += size / 10 {
						b.Write(remote.Range(off, size/10), mine.Range(off, size/10))
					}
					err = b.Do(ctx)
				}
				cancel()
				if err != nil && (!hurried || !errors.Is(err, context.DeadlineExceeded)) {
					return err
				}
			}
			return nil
		})
		e.wg.Wait()
		p.alive()
	}
}

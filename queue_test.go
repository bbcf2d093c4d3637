// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"errors"
	"sync"
	"testing"
)

// A queue gives a completion with the tag for each operation, whatever its depth and the
// connection's.
func TestQueue(t *testing.T) {
	w := newWorld(t, Config{Depth: 7})
	_, remote := w.lend("memory", 1<<12)
	mine := w.host(w.a, 1<<12)
	q := w.a.NewQueue(5)
	const n = 500
	ops := make([]Op, n)
	for i := range ops {
		ops[i] = Op{Kind: OpWrite, Local: mine.Range(int64(i), 8), Remote: remote.Range(int64(i), 8), Tag: uint64(i)}
		switch i % 4 {
		case 1:
			ops[i].Kind = OpRead
		case 2:
			ops[i] = Op{Kind: OpFetchAdd, Remote: remote.Range(0, 8), Add: 1, Tag: uint64(i)}
		case 3:
			ops[i].Local, ops[i].Inline = Span{}, []byte("12345678")
		}
	}
	seen := make([]int, n)
	got := 0
	take := func(k int, done []Completion, err error) {
		w.ok(err)
		for _, c := range done[:k] {
			seen[c.Tag]++
			got++
			if c.Err != nil || c.Conn != w.ca || c.Kind != ops[c.Tag].Kind || c.Len != 8 {
				t.Fatalf("%+v", c)
			}
		}
	}
	done := make([]Completion, 3)
	for rest := ops; got < n; {
		k, err := q.Post(w.ca, rest)
		if rest = rest[k:]; err != nil && !errors.Is(err, ErrQueueFull) {
			t.Fatal(err)
		}
		k, err = q.Wait(limited(t), done)
		take(k, done, err)
	}
	for i, k := range seen {
		if k != 1 {
			t.Errorf("operation %d has %d completions", i, k)
		}
	}
	k, err := q.Poll(done)
	if k != 0 || err != nil {
		t.Errorf("%d further completions, %v", k, err)
	}
	ended := make(chan error)
	go func() {
		_, err := q.Wait(limited(t), done)
		ended <- err
	}()
	w.ok(q.Close())
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("Wait during Close: %v", err)
	}
	if k, err := q.Post(w.ca, ops[:1]); k != 0 || !errors.Is(err, ErrClosed) {
		t.Errorf("posted %d: %v", k, err)
	}
}

// Of a queue's operations the first one that cannot be posted stops the rest, and the operations
// before it go on.
func TestQueueRefusesOne(t *testing.T) {
	w := newWorld(t, Config{})
	_, remote := w.lend("memory", 64)
	mine := w.host(w.a, 64)
	q := w.a.NewQueue(0)
	ops := []Op{
		{Kind: OpWrite, Local: mine.All(), Remote: remote.All()},
		{Kind: OpWrite, Local: mine.Range(60, 8), Remote: remote.Range(0, 8)},
		{Kind: OpWrite, Local: mine.All(), Remote: remote.All()},
	}
	n, err := q.Post(w.ca, ops)
	var o *OpError
	if n != 1 || !errors.As(err, &o) || o.Op != OpWrite {
		t.Errorf("posted %d: %v", n, err)
	}
	done := make([]Completion, 4)
	if n, err := q.Wait(limited(t), done); n != 1 || err != nil || done[0].Err != nil {
		t.Errorf("%d completions, %v: %v", n, err, done[0])
	}
}

// The end of a connection completes what a queue has under way.
func TestQueueAtTheEnd(t *testing.T) {
	w := newWorld(t, Config{Messages: 1})
	q := w.a.NewQueue(0)
	ops := []Op{{Kind: OpSend, Inline: []byte("taken")}, {Kind: OpSend, Inline: []byte("not taken"), Tag: 1}}
	if n, err := q.Post(w.ca, ops); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	done := make([]Completion, 2)
	if n, err := q.Wait(limited(t), done); n != 1 || err != nil || done[0].Err != nil {
		t.Fatal(n, err, done[0])
	}
	w.ok(w.cb.Close())
	if n, err := q.Wait(limited(t), done); n != 1 || err != nil || !errors.Is(done[0].Err, ErrPeerGone) || done[0].Tag != 1 {
		t.Error(n, err, done[0])
	}
}

// Many goroutines use one connection, with contexts that end in the middle.
func TestManyGoroutines(t *testing.T) {
	w := newWorld(t, Config{Depth: 5, Messages: 3})
	_, remote := w.lend("memory", 1<<12)
	mine := w.host(w.a, 1<<12)
	var senders, all sync.WaitGroup
	for g := range 8 {
		senders.Go(func() {
			for i := range 50 {
				ctx, cancel := context.WithCancel(limited(t))
				if i%7 == g%7 {
					cancel()
				} else if i%3 == 0 {
					go cancel()
				}
				off := int64(g * 64)
				var err error
				switch i % 5 {
				case 0:
					err = w.ca.Write(ctx, remote.Range(off, 64), mine.Range(off, 64), Notify([]byte("note")))
				case 1:
					err = w.ca.Read(ctx, mine.Range(off, 64), remote.Range(off, 64))
				case 2:
					_, err = w.ca.FetchAdd(ctx, remote.Range(1<<11, 8), 1)
				case 3:
					err = w.ca.Send(ctx, []byte("message"))
				case 4:
					b := w.ca.Batch()
					for k := range int64(9) {
						b.Write(remote.Range(off+k, 4), mine.Range(off, 4))
					}
					err = b.Do(ctx)
				}
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
				cancel()
			}
		})
	}
	for _, receive := range []func(context.Context) ([]byte, error){w.cb.Receive, w.cb.ReceiveNotification} {
		all.Go(func() {
			for {
				if _, err := receive(limited(t)); err != nil {
					if !errors.Is(err, ErrPeerGone) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	senders.Wait()
	w.ok(w.ca.Close())
	all.Wait()
}

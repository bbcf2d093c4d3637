// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/failure"
)

// A queue takes what fits, reports each operation once by its tag, and loses nothing.
func testQueue(t *testing.T, s *setting) {
	p := s.pairWith(t, gpurdma.Config{Depth: 12}, gpurdma.Config{})
	c2, s2 := p.connect(gpurdma.Config{})
	for _, k := range s.kinds {
		const n = 300
		mine, theirs := k.alloc(t, p.a, n), k.alloc(t, p.b, 2*n)
		r1, r2 := p.export(theirs.All(), all), p.exportTo(s2, c2, theirs.All(), all)
		want := make([]byte, n)
		for i := range want {
			want[i] = byte(i) | 1
		}
		put(t, mine, want)
		q := p.a.NewQueue(16)
		var ops [2][]gpurdma.Op
		for i := range int64(n) {
			ops[0] = append(ops[0], gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.Range(i, 1), Remote: r1.Range(i, 1), Tag: uint64(i)})
			ops[1] = append(ops[1], gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.Range(i, 1), Remote: r2.Range(n+i, 1), Tag: uint64(n + i)})
		}
		seen := make([]int, 2*n)
		done := make([]gpurdma.Completion, 7)
		full := 0
		for left := 2 * n; left > 0; {
			refused := false
			for x, c := range []*gpurdma.Conn{p.client, c2} {
				k, err := q.Post(c, ops[x])
				if k < len(ops[x]) && !errors.Is(err, gpurdma.ErrQueueFull) || k == len(ops[x]) && err != nil {
					t.Fatalf("posted %d of %d: %v", k, len(ops[x]), err)
				}
				if err != nil {
					full++
					refused = true
				}
				ops[x] = ops[x][k:]
			}
			k, err := q.Poll(done)
			if k == 0 && err == nil {
				k, err = q.Wait(limited(t), done)
			}
			ok(t, err)
			if k == 0 && !refused { // Wait returns 0 when there is room for what was refused
				t.Fatal("Wait has waited for nothing")
			}
			for _, d := range done[:k] {
				conn := p.client
				if d.Tag >= n {
					conn = c2
				}
				if d.Err != nil || d.Len != 1 || d.Kind != gpurdma.OpWrite || d.Conn != conn {
					t.Fatalf("%+v", d)
				}
				seen[d.Tag]++
			}
			left -= k
		}
		for tag, times := range seen {
			if times != 1 {
				t.Errorf("%s: operation %d has completed %d times", k.name, tag, times)
			}
		}
		if full == 0 {
			t.Error("the queue was never full")
		}
		if k, err := q.Poll(done); k != 0 || err != nil {
			t.Errorf("%d more completions, %v", k, err)
		}
		if k, err := q.Wait(soon(t), done); k != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d more completions, %v", k, err)
		}
		p.settle()
		p.say(c2, s2)
		same(t, "by a queue: "+k.name, theirs, append(want, want...))

		// Atomics and reads bring values.
		if k, err := q.Post(p.client, []gpurdma.Op{{Kind: gpurdma.OpFetchAdd, Remote: r1.Range(0, 8), Add: 1, Tag: 7}}); k != 1 || err != nil {
			t.Fatal(k, err)
		}
		if k, err := q.Wait(limited(t), done); k != 1 || err != nil || done[0].Tag != 7 || done[0].Err != nil || byte(done[0].Value) != want[0] {
			t.Errorf("%d, %v: %+v", k, err, done[0])
		}
		ok(t, q.Close())
	}
}

// An operation that cannot be posted is reported by Post, after those before it were taken.
func testQueueErrors(t *testing.T, s *setting) {
	p := s.pair(t)
	mine, theirs, remote := p.both(8)
	put(t, mine, []byte("12345678"))
	q := p.a.NewQueue(0)
	good := gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.Range(0, 1), Remote: remote.Range(0, 1), Tag: 1}
	bad := gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.Range(7, 2), Remote: remote.Range(0, 2), Tag: 2}
	k, err := q.Post(p.client, []gpurdma.Op{good, bad, good})
	if k != 1 || !errors.Is(err, failure.ErrRange) {
		t.Errorf("posted %d: %v", k, err)
	}
	done := make([]gpurdma.Completion, 4)
	if k, err := q.Wait(limited(t), done); k != 1 || err != nil || done[0].Tag != 1 || done[0].Err != nil {
		t.Errorf("%d, %v: %+v", k, err, done[0])
	}
	if k, err := q.Post(p.server, []gpurdma.Op{good}); k != 0 || err == nil {
		t.Errorf("posted %d on a connection of another fabric: %v", k, err)
	}
	if k, err := q.Wait(limited(t), nil); k != 0 || err != nil {
		t.Errorf("no room for completions: %d, %v", k, err)
	}

	// Operations that fail complete with their tags.
	open := gated(t, mine)
	defer open()
	if k, err := q.Post(p.client, []gpurdma.Op{good, good}); k != 2 || err != nil {
		t.Fatal(k, err)
	}
	ok(t, p.client.Close())
	for left := 2; left > 0; {
		k, err := q.Wait(limited(t), done)
		ok(t, err)
		for _, d := range done[:k] {
			if d.Tag != 1 || !errors.Is(d.Err, gpurdma.ErrClosed) || d.Conn != p.client {
				t.Errorf("%+v", d)
			}
		}
		left -= k
	}
	if k, err := q.Post(p.client, []gpurdma.Op{good}); k != 0 || !errors.Is(err, gpurdma.ErrClosed) {
		t.Errorf("posted %d on a closed connection: %v", k, err)
	}
	ended := make(chan error)
	go func() {
		_, err := q.Wait(limited(t), done)
		ended <- err
	}()
	time.Sleep(time.Millisecond)
	ok(t, q.Close())
	if err := <-ended; !errors.Is(err, gpurdma.ErrClosed) {
		t.Errorf("Wait on a closed queue: %v", err)
	}
	if _, err := q.Post(p.client, []gpurdma.Op{good}); !errors.Is(err, gpurdma.ErrClosed) {
		t.Errorf("Post on a closed queue: %v", err)
	}
	if _, err := q.Poll(done); !errors.Is(err, gpurdma.ErrClosed) {
		t.Errorf("Poll of a closed queue: %v", err)
	}
	select {
	case <-p.server.Done():
	case <-limited(t).Done():
		t.Error("the peer has not ended")
	}
	want := []byte("1\x00\x00\x00\x00\x00\x00\x00")
	same(t, "withdrawn by Close", theirs, want)
}

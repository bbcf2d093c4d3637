// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Every n-th work request makes a completion, whatever the batches are. The count
// begins again after one that has SendSignaled.
func TestSignalEvery(t *testing.T) {
	wrs := func(n int, asks ...int) []SendWR {
		list := make([]SendWR, n)
		for i := range list {
			list[i] = SendWR{Op: OpWrite, Flags: SendFence}
		}
		for _, i := range asks {
			list[i].Flags |= SendSignaled
		}
		return list
	}
	for _, c := range []struct {
		name    string
		every   int
		batches [][]SendWR
		want    []int // those that make a completion
	}{
		{"never", 0, [][]SendWR{wrs(10)}, nil},
		{"each", 1, [][]SendWR{wrs(2), wrs(1)}, []int{0, 1, 2}},
		{"fourth", 4, [][]SendWR{wrs(10)}, []int{3, 7}},
		{"fourth, in batches", 4, [][]SendWR{wrs(3), wrs(1), wrs(1), wrs(5)}, []int{3, 7}},
		{"over the array's end", 7, [][]SendWR{wrs(30)}, []int{6, 13, 20, 27}},
		{"after one that asks", 4, [][]SendWR{wrs(2, 1), wrs(5), wrs(3, 0)}, []int{1, 5, 7}},
		{"asked for where it is due", 3, [][]SendWR{wrs(6, 2)}, []int{2, 5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			qp, q := newSend(t, 100, 0, 8, 2)
			q.every = c.every
			for _, b := range c.batches {
				given := slices.Clone(b)
				if n, bad, errno := q.post(b); n != len(b) || bad != postOK {
					t.Fatal(n, bad, errno)
				}
				for i := range b {
					if b[i].Flags != given[i].Flags {
						t.Error("the caller's work request was changed")
					}
				}
			}
			var got []int
			for i, s := range qp.Sent() {
				if SendFlags(s.Flags)&SendSignaled != 0 {
					got = append(got, i)
				}
				if SendFlags(s.Flags)&^SendSignaled != SendFence {
					t.Errorf("work request %d has flags %#x", i, s.Flags)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// A queue whose work requests are sometimes refused never holds SendDepth of them
// without one that makes a completion. So a completion always comes and frees
// places.
func TestSignalEveryReclaims(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		depth := 1 + r.IntN(12)
		every := 1 + r.IntN(depth)
		// A recorder takes so many in all; each is one posting until it is full.
		room := r.IntN(60)
		qp, q := newSend(t, room, int(unix.ENOMEM), depth, 1)
		q.every = every
		total, refused := 0, 0
		for total < room || refused == 0 {
			batch := make([]SendWR, 1+r.IntN(2*depth))
			for i := range batch {
				batch[i].Op = OpWrite
				if r.IntN(20) == 0 {
					batch[i].Op = Opcode(8) // there is none
				}
			}
			n, bad, _ := q.post(batch)
			total += n
			if bad == postProvider {
				refused++
			}
		}
		since := 0
		for i, s := range qp.Sent() {
			if since++; SendFlags(s.Flags)&SendSignaled != 0 {
				if since > every {
					t.Fatalf("seed %d: %d before work request %d make no completion, every %d", seed, since, i, every)
				}
				since = 0
			}
		}
		if since >= every || since != q.since {
			t.Fatalf("seed %d: %d at the end make no completion, counted %d, every %d", seed, since, q.since, every)
		}
	}
}

// A setting that cannot give places back is refused when the queue pair is made.
func TestSignalEveryChecked(t *testing.T) {
	pd := scripted(t, newScript(), &kernel{reg: always(0)})
	cq, err := pd.Context().CreateCQ(8)
	if err != nil {
		t.Fatal(err)
	}
	defer cq.Close()
	for _, c := range []struct {
		depth, every int
		all, ok      bool
	}{
		{0, 1, false, true},
		{16, 16, false, true},
		{16, 0, true, true},
		{16, 17, false, false},
		{0, 2, false, false},
		{16, -1, false, false},
		{16, 4, true, false},
	} {
		qp, err := pd.CreateQP(QPAttr{Type: RC, SendCQ: cq, RecvCQ: cq, SendDepth: c.depth, SignalEvery: c.every, SignalAll: c.all})
		if (err == nil) != c.ok || err != nil && !errors.Is(err, unix.EINVAL) {
			t.Errorf("%+v: %v", c, err)
		}
		if err == nil {
			if qp.send.q.every != c.every || qp.Attr().SignalEvery != c.every {
				t.Errorf("%+v: the queue has %d, the attributes %d", c, qp.send.q.every, qp.Attr().SignalEvery)
			}
			if err := qp.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

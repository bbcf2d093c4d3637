// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// A failure on a connection ends in its completion status, in bounded
// time; Connect then brings both ends back.
func TestVMFailures(t *testing.T) {
	pd := openPD(t)
	host, mr := hostMR(t, pd, 8192)
	readOnly, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.HostMemory, Host: host.Bytes(), Length: 8192, Access: ibvfd.AccessRemoteRead, Owner: host})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, readOnly)
	cq, bcq := waitCQ(t, pd), waitCQ(t, pd)
	a := newQP(t, pd, ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: cq, RecvCQ: cq, SendDepth: 4})
	b := newQP(t, pd, ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: bcq, RecvCQ: bcq, RecvDepth: 4})
	for _, c := range []struct {
		name string
		opt  ibvfd.ConnectAttr
		recv []ibvfd.SGE // posted at b unless nil
		wr   ibvfd.SendWR
		want []ibvfd.WCStatus
	}{
		{
			"wrong rkey", ibvfd.ConnectAttr{}, nil,
			ibvfd.SendWR{Op: ibvfd.OpWrite, SGE: sge(mr, 0, 64), RemoteAddr: mr.IOVA(), RKey: mr.RKey() ^ 0xff},
			[]ibvfd.WCStatus{ibvfd.WCRemAccessErr},
		},
		{
			"past the end", ibvfd.ConnectAttr{}, nil,
			ibvfd.SendWR{Op: ibvfd.OpRead, SGE: sge(mr, 0, 64), RemoteAddr: mr.IOVA() + 8192 - 63, RKey: mr.RKey()},
			[]ibvfd.WCStatus{ibvfd.WCRemAccessErr},
		},
		{
			"the MR does not allow it", ibvfd.ConnectAttr{}, nil,
			ibvfd.SendWR{Op: ibvfd.OpWrite, SGE: sge(mr, 0, 64), RemoteAddr: readOnly.IOVA(), RKey: readOnly.RKey()},
			[]ibvfd.WCStatus{ibvfd.WCRemAccessErr},
		},
		{
			"the connection does not allow it", ibvfd.ConnectAttr{Access: ibvfd.AccessRemoteRead}, nil,
			ibvfd.SendWR{Op: ibvfd.OpWrite, SGE: sge(mr, 0, 64), RemoteAddr: mr.IOVA(), RKey: mr.RKey()},
			[]ibvfd.WCStatus{ibvfd.WCRemInvReqErr, ibvfd.WCRemAccessErr},
		},
		{
			"READ into memory that the NIC may not write", ibvfd.ConnectAttr{}, nil,
			ibvfd.SendWR{Op: ibvfd.OpRead, SGE: sge(readOnly, 0, 64), RemoteAddr: mr.IOVA() + 4096, RKey: mr.RKey()},
			[]ibvfd.WCStatus{ibvfd.WCLocProtErr, ibvfd.WCLocAccessErr},
		},
		{
			"wrong lkey", ibvfd.ConnectAttr{}, nil,
			ibvfd.SendWR{Op: ibvfd.OpWrite, SGE: []ibvfd.SGE{{Addr: mr.IOVA(), Length: 64, LKey: mr.LKey() ^ 0xff}}, RemoteAddr: mr.IOVA(), RKey: mr.RKey()},
			// rxe of 6.12 flushes the work request that made the error, too.
			[]ibvfd.WCStatus{ibvfd.WCLocProtErr, ibvfd.WCLocQPOpErr, ibvfd.WCWRFlushErr},
		},
		{
			"no receive", ibvfd.ConnectAttr{RNRRetry: ibvfd.Zero}, nil,
			ibvfd.SendWR{Op: ibvfd.OpSend, SGE: sge(mr, 0, 64)},
			[]ibvfd.WCStatus{ibvfd.WCRNRRetryExcErr},
		},
		{
			"no receive, retried", ibvfd.ConnectAttr{RNRRetry: 3, MinRNRTimer: 1}, nil,
			ibvfd.SendWR{Op: ibvfd.OpSend, SGE: sge(mr, 0, 64)},
			[]ibvfd.WCStatus{ibvfd.WCRNRRetryExcErr},
		},
		{
			"receive too small", ibvfd.ConnectAttr{}, sge(mr, 4096, 63),
			ibvfd.SendWR{Op: ibvfd.OpSend, SGE: sge(mr, 0, 64)},
			[]ibvfd.WCStatus{ibvfd.WCRemInvReqErr, ibvfd.WCRemOpErr},
		},
		{
			"receive into memory that the NIC may not write", ibvfd.ConnectAttr{}, sge(readOnly, 4096, 64),
			ibvfd.SendWR{Op: ibvfd.OpSend, SGE: sge(mr, 0, 64)},
			[]ibvfd.WCStatus{ibvfd.WCRemOpErr},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			join(t, a, b, c.opt)
			clear(host.Bytes())
			fill(host.Bytes()[:64], 4)
			want := bytes.Clone(host.Bytes())
			if c.recv != nil {
				receive(t, b, ibvfd.RecvWR{ID: 100, SGE: c.recv})
			}
			c.wr.ID, c.wr.Flags = 1, ibvfd.SendSignaled
			post(t, a, c.wr)
			w := one(t, cq)
			if w.ID != 1 || !slices.Contains(c.want, w.Status) {
				t.Fatalf("%v, want %v", w.Status, c.want)
			}
			if !errors.Is(w.Err(), &ibvfd.WCError{Status: w.Status}) {
				t.Errorf("Err() = %v", w.Err())
			}
			if c.recv != nil {
				if w := one(t, bcq); w.ID != 100 || w.Err() == nil {
					t.Errorf("the receive: %+v", w)
				}
			}
			reach(t, a, ibvfd.StateErr)
			if !bytes.Equal(host.Bytes(), want) {
				t.Error("memory was changed")
			}
			// A work request to a queue pair in the error state completes flushed.
			post(t, a, c.wr)
			if w := one(t, cq); w.Status != ibvfd.WCWRFlushErr {
				t.Errorf("posted after the error: %v", w.Status)
			}
			join(t, a, b, ibvfd.ConnectAttr{})
			post(t, a, ibvfd.SendWR{ID: 2, Op: ibvfd.OpWrite, Flags: ibvfd.SendSignaled, SGE: sge(mr, 0, 64), RemoteAddr: mr.IOVA() + 1024, RKey: mr.RKey()})
			if w := one(t, cq); w.ID != 2 || w.Err() != nil || !bytes.Equal(host.Bytes()[1024:1088], host.Bytes()[:64]) {
				t.Errorf("after Connect: %+v", w)
			}
		})
	}
}

// reach waits for a state: a NIC may report the error first.
func reach(t testing.TB, q *ibvfd.QP, want ibvfd.QPState) {
	t.Helper()
	for range 1000 * testenv.Slow() {
		s, err := q.State()
		if err != nil {
			t.Fatal(err)
		}
		if s == want {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("the queue pair does not get to %v", want)
}

// A peer whose queue pair is gone does not answer: the retries end.
func TestVMPeerGone(t *testing.T) {
	pd := openPD(t)
	_, mr := hostMR(t, pd, 4096)
	cq := waitCQ(t, pd)
	attr := ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: cq, RecvCQ: cq, SendDepth: 4, RecvDepth: 4}
	a, b, c := newQP(t, pd, attr), newQP(t, pd, attr), newQP(t, pd, attr)
	join(t, a, b, ibvfd.ConnectAttr{Timeout: 10, RetryCount: 2})
	closed(t, b)
	wr := ibvfd.SendWR{ID: 1, Op: ibvfd.OpWrite, Flags: ibvfd.SendSignaled, SGE: sge(mr, 0, 8), RemoteAddr: mr.IOVA() + 8, RKey: mr.RKey()}
	post(t, a, wr)
	if w := one(t, cq); w.Status != ibvfd.WCRetryExcErr {
		t.Errorf("%v, want %v", w.Status, ibvfd.WCRetryExcErr)
	}
	join(t, a, c, ibvfd.ConnectAttr{})
	post(t, a, wr)
	if w := one(t, cq); w.Err() != nil {
		t.Errorf("towards another peer: %v", w.Err())
	}
}

// More completions than a CQ holds: the device says so. The CQ's completions are good and
// the rest is lost; the queue pair can be ended, its work is flushed, and another
// with a CQ of its own works.
func TestVMCQOverrun(t *testing.T) {
	pd := openPD(t)
	host, mr := hostMR(t, pd, 4096)
	cq, err := pd.Context().CreateCQ(1)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, cq)
	a, b, err := ibvfd.LoopbackPair(pd, cq, ibvfd.QPAttr{Type: ibvfd.RC, SendDepth: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, a)
	defer closed(t, b)
	write := ibvfd.SendWR{Op: ibvfd.OpWrite, Flags: ibvfd.SendSignaled, SGE: sge(mr, 0, 8), RemoteAddr: mr.IOVA() + 8, RKey: mr.RKey()}
	wrs := make([]ibvfd.SendWR, 64)
	for i := range wrs {
		wrs[i] = write
		wrs[i].ID = uint64(i)
	}
	if n, err := a.PostSend(wrs); n != len(wrs) || err != nil {
		t.Fatal(n, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	for e, err := range pd.Context().Events(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == ibvfd.EventCQErr {
			if e.CQ != cq {
				t.Errorf("%v names another CQ", e)
			}
			break
		}
	}
	// A NIC may end the queue pair, as mlx5 does; rxe drops completions and goes on.
	if s, err := a.State(); err != nil || s != ibvfd.StateRTS && s != ibvfd.StateErr {
		t.Errorf("state %v, %v", s, err)
	}
	if err := errors.Join(a.Err(), b.Err()); err != nil {
		t.Fatal(err)
	}
	reach(t, a, ibvfd.StateErr)
	// The rest of the work is flushed, and so are later work requests, as far as
	// the CQ has room.
	held, last, flushed := 0, -1, false
	for id, wc := uint64(len(wrs)), make([]ibvfd.WC, 8); last < len(wrs); id++ {
		n, err := cq.Poll(wc)
		if err != nil || ctx.Err() != nil {
			t.Fatalf("nothing that is posted after the end is flushed: %v", err)
		}
		for _, c := range wc[:n] {
			if int(c.ID) < len(wrs) {
				held++
			}
			if int(c.ID) <= last || c.Status != ibvfd.WCWRFlushErr && (flushed || c.Status != ibvfd.WCSuccess) || last < 0 && c.Err() != nil {
				t.Errorf("after %d, flushed %v: %+v", last, flushed, c)
			}
			last, flushed = int(c.ID), c.Status != ibvfd.WCSuccess
		}
		write.ID = id
		_, _ = a.PostSend([]ibvfd.SendWR{write}) // it may be full for a moment
		time.Sleep(time.Millisecond)
	}
	if held >= len(wrs) {
		t.Errorf("%d completions of %d: nothing was lost", held, len(wrs))
	}
	if !flushed {
		t.Error("a queue pair in the error state has carried something out")
	}

	fill(host.Bytes(), 9)
	next := waitCQ(t, pd)
	attr := ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: next, RecvCQ: next, SendDepth: 64}
	x := newQP(t, pd, attr)
	join(t, x, newQP(t, pd, attr), ibvfd.ConnectAttr{})
	for i := range 64 {
		wr := ibvfd.SendWR{ID: uint64(i), Op: ibvfd.OpWrite, Flags: ibvfd.SendSignaled, SGE: sge(mr, i, 8), RemoteAddr: mr.IOVA() + 2048 + 8*uint64(i), RKey: mr.RKey()}
		post(t, x, wr)
	}
	for i := range 64 {
		if c := one(t, next); c.ID != uint64(i) || c.Err() != nil {
			t.Fatalf("with another CQ: completion %d: %+v", i, c)
		}
		if at := 2048 + 8*i; !bytes.Equal(host.Bytes()[at:at+8], host.Bytes()[i:i+8]) {
			t.Errorf("with another CQ: WRITE %d: wrong bytes", i)
		}
	}
}

// The states: receives posted in INIT are there for the first message; the error
// state flushes everything; a drained queue pair holds back what is posted until
// it resumes. rxe of 6.1, 6.12 and 7.2 goes on with that only when something else is posted
// after Resume, which is why something is.
func TestVMQueuePairStates(t *testing.T) {
	pd := openPD(t)
	_, mr := hostMR(t, pd, 4096)
	cq, bcq := waitCQ(t, pd), waitCQ(t, pd)
	a := newQP(t, pd, ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: cq, RecvCQ: cq, SendDepth: 8})
	b := newQP(t, pd, ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: bcq, RecvCQ: bcq, RecvDepth: 8})
	in := func(q *ibvfd.QP, want ibvfd.QPState) {
		t.Helper()
		if s, err := q.State(); err != nil || s != want {
			t.Errorf("state %v, %v; want %v", s, err, want)
		}
	}
	in(b, ibvfd.StateReset)
	if err := b.Init(ibvfd.ConnectAttr{}); err != nil {
		t.Fatal(err)
	}
	in(b, ibvfd.StateInit)
	receive(t, b, ibvfd.RecvWR{ID: 100, SGE: sge(mr, 1024, 8)}, ibvfd.RecvWR{ID: 101, SGE: sge(mr, 1024, 8)}, ibvfd.RecvWR{ID: 102, SGE: sge(mr, 1024, 8)}, ibvfd.RecvWR{ID: 103, SGE: sge(mr, 1024, 8)})
	join(t, a, b, ibvfd.ConnectAttr{RNRRetry: ibvfd.Zero})
	in(a, ibvfd.StateRTS)
	send := ibvfd.SendWR{ID: 1, Op: ibvfd.OpSend, Flags: ibvfd.SendSignaled, SGE: sge(mr, 0, 8)}
	post(t, a, send)
	if w, r := one(t, cq), one(t, bcq); w.Err() != nil || r.Err() != nil || r.ID != 100 {
		t.Fatalf("the first message: %+v, %+v", w, r)
	}

	if err := a.Drain(); err != nil {
		t.Fatal(err)
	}
	in(a, ibvfd.StateSQD)
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	for e, err := range pd.Context().Events(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == ibvfd.EventSQDrained {
			if e.QP != a {
				t.Errorf("%v names another queue pair", e)
			}
			break
		}
	}
	held := send
	held.ID = 2
	post(t, a, held)
	var wc [1]ibvfd.WC
	for range 50 * testenv.Slow() {
		for _, q := range []*ibvfd.CQ{cq, bcq} {
			if n, err := q.Poll(wc[:]); n != 0 || err != nil {
				t.Fatalf("drained: %d completions, %v, %+v", n, err, wc[0])
			}
		}
		time.Sleep(time.Millisecond)
	}
	in(a, ibvfd.StateSQD)
	if err := a.Resume(); err != nil {
		t.Fatal(err)
	}
	in(a, ibvfd.StateRTS)
	send.ID = 3
	post(t, a, send)
	for i := range uint64(2) { // in the order of posting
		if w, r := one(t, cq), one(t, bcq); w.Err() != nil || w.ID != 2+i || r.Err() != nil || r.ID != 101+i {
			t.Fatalf("after Resume: %+v, %+v", w, r)
		}
	}

	if err := b.Err(); err != nil {
		t.Fatal(err)
	}
	in(b, ibvfd.StateErr)
	if r := one(t, bcq); r.ID != 103 || r.Status != ibvfd.WCWRFlushErr {
		t.Errorf("in the error state: %+v", r)
	}
	if err := b.Resume(); err == nil {
		t.Error("resumed from the error state")
	}
	if err := errors.Join(a.Reset(), b.Reset()); err != nil {
		t.Fatal(err)
	}
	in(b, ibvfd.StateReset)
	join(t, a, b, ibvfd.ConnectAttr{})
	receive(t, b, ibvfd.RecvWR{ID: 104, SGE: sge(mr, 1024, 8)})
	post(t, a, send)
	if w, r := one(t, cq), one(t, bcq); w.Err() != nil || r.Err() != nil || r.ID != 104 {
		t.Fatalf("after Reset: %+v, %+v", w, r)
	}
}

// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
)

// waitCQ is a CQ with events.
func waitCQ(t testing.TB, pd *ibvfd.PD) *ibvfd.CQ {
	t.Helper()
	cq, err := pd.Context().CreateCQWith(ibvfd.CQAttr{Depth: 256, Events: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, cq) })
	return cq
}

func newQP(t testing.TB, pd *ibvfd.PD, attr ibvfd.QPAttr) *ibvfd.QP {
	t.Helper()
	qp, err := pd.CreateQP(attr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, qp) })
	return qp
}

// join connects two queue pairs with each other, patiently unless opt says
// otherwise.
func join(t testing.TB, a, b *ibvfd.QP, opt ibvfd.ConnectAttr) {
	t.Helper()
	if opt.Timeout == 0 {
		opt.Timeout = 20
	}
	if err := errors.Join(a.Connect(b.Local(), opt), b.Connect(a.Local(), opt)); err != nil {
		t.Fatal(err)
	}
}

// one waits for a completion.
func one(t testing.TB, cq *ibvfd.CQ) ibvfd.WC {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	var wc [1]ibvfd.WC
	wait := cq.PollUntil
	if cq.Attr().Events {
		wait = cq.Wait
	}
	if _, err := wait(ctx, wc[:]); err != nil {
		t.Fatal(err)
	}
	return wc[0]
}

func post(t testing.TB, qp *ibvfd.QP, wr ibvfd.SendWR) {
	t.Helper()
	if n, err := qp.PostSend([]ibvfd.SendWR{wr}); n != 1 || err != nil {
		t.Fatalf("PostSend: %d, %v", n, err)
	}
}

func receive(t testing.TB, qp *ibvfd.QP, wrs ...ibvfd.RecvWR) {
	t.Helper()
	if n, err := qp.PostRecv(wrs); n != len(wrs) || err != nil {
		t.Fatalf("PostRecv: %d, %v", n, err)
	}
}

func sge(mr *ibvfd.MR, off, n int) []ibvfd.SGE {
	return []ibvfd.SGE{{Addr: mr.IOVA() + uint64(off), Length: uint32(n), LKey: mr.LKey()}}
}

// linkTo sets the state of rxe0's network device, which comes up again at the
// end.
func linkTo(t testing.TB) func(state string) {
	t.Helper()
	link := func(state string) {
		if out, err := exec.Command("ip", "link", "set", "dummy0", state).CombinedOutput(); err != nil {
			t.Fatalf("ip link set dummy0 %s: %v: %s", state, err, out)
		}
	}
	t.Cleanup(func() {
		link("up") // the address goes with the link's state on some kernels
		_ = exec.Command("ip", "addr", "replace", "10.9.0.1/24", "dev", "dummy0").Run()
	})
	return link
}

// Sleeping for completions: each ends a wait, also one that comes while no call
// waits; a solicited one only where that was asked for; the context's end and
// Close end a wait too.
func TestVMWait(t *testing.T) {
	pd := openPD(t)
	_, mr := hostMR(t, pd, 4096)
	sent, received := waitCQ(t, pd), waitCQ(t, pd)
	attr := ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: sent, RecvCQ: received, SendDepth: 8, RecvDepth: 200}
	a, b := newQP(t, pd, attr), newQP(t, pd, attr)
	join(t, a, b, ibvfd.ConnectAttr{})
	send := func(flags ibvfd.SendFlags) {
		t.Helper()
		post(t, a, ibvfd.SendWR{ID: 1, Op: ibvfd.OpSend, Flags: ibvfd.SendSignaled | flags, SGE: sge(mr, 0, 8)})
		if c := one(t, sent); c.Err() != nil {
			t.Fatal(c.Err())
		}
	}
	const rounds = 150 // more than one batch of acknowledgements
	for i := range rounds {
		receive(t, b, ibvfd.RecvWR{ID: uint64(i), SGE: sge(mr, 64, 8)})
		send(0)
		if c := one(t, received); c.Err() != nil || c.ID != uint64(i) {
			t.Fatalf("receive %d: %+v", i, c)
		}
	}

	wc := make([]ibvfd.WC, 8)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := received.WaitSolicited(ctx, wc)
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	// One armed wait, and two messages of which the second is solicited: both are
	// there when it ends, or the first was found by polling before it slept.
	receive(t, b, ibvfd.RecvWR{ID: 1, SGE: sge(mr, 64, 8)}, ibvfd.RecvWR{ID: 2, SGE: sge(mr, 64, 8)})
	got := make(chan int)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		total := 0
		for total < 2 {
			n, err := received.WaitSolicited(ctx, wc)
			if err != nil {
				t.Error(err)
				break
			}
			total += n
		}
		got <- total
	}()
	send(0)
	send(ibvfd.SendSolicited)
	if n := <-got; n != 2 {
		t.Errorf("%d completions", n)
	}

	waits := make(chan error)
	go func() {
		_, err := received.Wait(t.Context(), wc)
		waits <- err
	}()
	if err := received.Close(); !errors.Is(err, failure.ErrInUse) {
		t.Errorf("closing a CQ that queue pairs use: %v", err)
	}
	closed(t, a)
	closed(t, b)
	closed(t, received)
	if err := <-waits; !errors.Is(err, os.ErrClosed) {
		t.Errorf("a wait that Close ended: %v", err)
	}
}

// A port that goes down and comes up again is reported.
func TestVMPortEvents(t *testing.T) {
	pd := openPD(t)
	link := linkTo(t)
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	want := []ibvfd.EventType{ibvfd.EventPortErr, ibvfd.EventPortActive}
	link("down")
	link("up")
	for e, err := range pd.Context().Events(ctx) {
		if err != nil {
			t.Fatalf("waiting for %v: %v", want[0], err)
		}
		t.Log(e)
		if e.Type != want[0] {
			continue // addresses change with the link
		}
		if e.Port != 1 {
			t.Errorf("%v: port %d", e.Type, e.Port)
		}
		if want = want[1:]; len(want) == 0 {
			break
		}
	}
}

// Memory windows: the window's range is open to the peer with the window's
// key, until it is invalidated by either side.
func TestVMMemoryWindows(t *testing.T) {
	pd := openPD(t)
	host, src := hostMR(t, pd, 4096)
	fill(host.Bytes(), 21)
	mem, err := hostmem.Alloc(8192)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, mem)
	mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.HostMemory, Host: mem.Bytes(), Length: 8192, Access: ibvfd.AccessLocalWrite | ibvfd.AccessMWBind, Owner: mem})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, mr)
	cq, bcq := waitCQ(t, pd), waitCQ(t, pd)
	a := newQP(t, pd, ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: cq, RecvCQ: cq, SendDepth: 4})
	b := newQP(t, pd, ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: bcq, RecvCQ: bcq, SendDepth: 4, RecvDepth: 4})
	join(t, a, b, ibvfd.ConnectAttr{})
	write := func(off int, rkey uint32, want ibvfd.WCStatus) {
		t.Helper()
		post(t, a, ibvfd.SendWR{ID: 1, Op: ibvfd.OpWrite, Flags: ibvfd.SendSignaled, SGE: sge(src, 0, 100), RemoteAddr: mr.IOVA() + uint64(off), RKey: rkey})
		if c := one(t, cq); c.Status != want {
			t.Errorf("WRITE at %d: %v, want %v", off, c.Status, want)
		}
		if want != ibvfd.WCSuccess {
			join(t, a, b, ibvfd.ConnectAttr{})
		} else if !bytes.Equal(mem.Bytes()[off:off+100], host.Bytes()[:100]) {
			t.Errorf("WRITE at %d: wrong bytes", off)
		}
	}
	bind := func(mw *ibvfd.MW) uint32 {
		t.Helper()
		key, err := b.BindMW(mw, ibvfd.MWBind{
			ID: 2, Flags: ibvfd.SendSignaled, MR: mr, Addr: mr.IOVA() + 1000, Length: 2000,
			Access: ibvfd.AccessRemoteWrite | ibvfd.AccessRemoteRead,
		})
		if err != nil {
			t.Fatal(err)
		}
		if c := one(t, bcq); c.Err() != nil || c.Opcode != ibvfd.WCOpBindMW || key != mw.RKey() {
			t.Fatalf("bind: %+v, key %#x of %#x", c, key, mw.RKey())
		}
		return key
	}
	for _, typ := range []ibvfd.MWType{ibvfd.MWType1, ibvfd.MWType2} {
		mw, err := pd.AllocMW(typ)
		if err != nil {
			t.Fatal(err)
		}
		unbound := mw.RKey()
		write(1000, unbound, ibvfd.WCRemAccessErr)
		key := bind(mw)
		if key == unbound {
			t.Errorf("type %d: the key did not change", typ)
		}
		write(1000, key, ibvfd.WCSuccess)
		write(2900, key, ibvfd.WCSuccess)
		if typ == ibvfd.MWType2 {
			// The binding belongs to the queue pair: an error would end it with that.
			post(t, b, ibvfd.SendWR{ID: 3, Op: ibvfd.OpLocalInv, Flags: ibvfd.SendSignaled, RKey: key})
			if c := one(t, bcq); c.Err() != nil || c.Opcode != ibvfd.WCOpLocalInv {
				t.Errorf("invalidate: %+v", c)
			}
			again := bind(mw)
			if again == key {
				t.Error("a new binding has the old key")
			}
			write(1500, again, ibvfd.WCSuccess)
			receive(t, b, ibvfd.RecvWR{ID: 4})
			post(t, a, ibvfd.SendWR{ID: 5, Op: ibvfd.OpSendInv, Flags: ibvfd.SendSignaled, RKey: again})
			if c := one(t, cq); c.Err() != nil {
				t.Errorf("SEND with invalidate: %v", c.Err())
			}
			// rxe reports the invalidation by the kernel's bit for it, which verbs has
			// for something else: what counts is that the key does not work any more.
			if c := one(t, bcq); c.Err() != nil || c.ID != 4 || c.Flags&ibvfd.WCWithInv != 0 && c.Imm != again {
				t.Errorf("its receive: %+v, want key %#x", c, again)
			}
			key = again
			write(1000, key, ibvfd.WCRemAccessErr)
		} else {
			// rxe holds a WRITE against the MR's range, not against the window's.
			write(8192-99, key, ibvfd.WCRemAccessErr)
			if err := mr.Close(); err == nil {
				t.Fatal("an MR with a window bound to it was deregistered")
			}
		}
		closed(t, mw)
		write(1000, key, ibvfd.WCRemAccessErr)
	}
}

// A window's rights are its own, whatever the connection and the MR allow: an access
// that it was not bound with is refused and changes nothing, the rest works.
func TestVMMemoryWindowRights(t *testing.T) {
	pd := openPD(t)
	host, src := hostMR(t, pd, 4096)
	mem, err := hostmem.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, mem)
	mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.HostMemory, Host: mem.Bytes(), Length: 4096, Access: allRemote | ibvfd.AccessMWBind, Owner: mem})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, mr)
	cq, bcq := waitCQ(t, pd), waitCQ(t, pd)
	a := newQP(t, pd, ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: cq, RecvCQ: cq, SendDepth: 4})
	b := newQP(t, pd, ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: bcq, RecvCQ: bcq, SendDepth: 4})
	join(t, a, b, ibvfd.ConnectAttr{})
	const at, n = 1024, 64 // the window's, in mem and in host
	ops := []struct {
		op     ibvfd.Opcode
		need   ibvfd.Access
		length int
		// carried out on what host and mem hold
		effect func(host, mem []byte)
	}{
		{ibvfd.OpWrite, ibvfd.AccessRemoteWrite, n, func(host, mem []byte) { copy(mem, host) }},
		{ibvfd.OpRead, ibvfd.AccessRemoteRead, n, func(host, mem []byte) { copy(host, mem) }},
		{ibvfd.OpFetchAdd, ibvfd.AccessRemoteAtomic, 8, func(host, mem []byte) {
			copy(host, mem)
			binary.NativeEndian.PutUint64(mem, binary.NativeEndian.Uint64(mem)+5)
		}},
		{ibvfd.OpCompareSwap, ibvfd.AccessRemoteAtomic, 8, func(host, mem []byte) {
			copy(host, mem)
			binary.NativeEndian.PutUint64(mem, 7)
		}},
	}
	for _, typ := range []ibvfd.MWType{ibvfd.MWType1, ibvfd.MWType2} {
		for _, access := range []ibvfd.Access{
			ibvfd.AccessRemoteRead, ibvfd.AccessRemoteWrite, ibvfd.AccessRemoteAtomic,
			ibvfd.AccessRemoteRead | ibvfd.AccessRemoteWrite, ibvfd.AccessRemoteRead | ibvfd.AccessRemoteAtomic,
			ibvfd.AccessRemoteWrite | ibvfd.AccessRemoteAtomic,
		} {
			for i, op := range ops {
				what := fmt.Sprintf("type %d, bound with %v: %v", typ, access, op.op)
				// An error ends the binding of a window of type 2 with its queue pair's
				// connection: each operation has a window of its own.
				mw, err := pd.AllocMW(typ)
				if err != nil {
					t.Fatal(err)
				}
				key, err := b.BindMW(mw, ibvfd.MWBind{ID: 2, Flags: ibvfd.SendSignaled, MR: mr, Addr: mr.IOVA() + at, Length: n, Access: access})
				if err != nil {
					t.Fatal(err)
				}
				if c := one(t, bcq); c.Err() != nil || c.Opcode != ibvfd.WCOpBindMW {
					t.Fatalf("%s: %+v", what, c)
				}
				fill(host.Bytes(), 2*uint64(i))
				fill(mem.Bytes(), 2*uint64(i)+1)
				wantHost, wantMem := bytes.Clone(host.Bytes()), bytes.Clone(mem.Bytes())
				wr := ibvfd.SendWR{ID: 1, Op: op.op, Flags: ibvfd.SendSignaled, SGE: sge(src, at, op.length), RemoteAddr: mr.IOVA() + at, RKey: key}
				switch op.op {
				case ibvfd.OpFetchAdd:
					wr.CompareAdd = 5
				case ibvfd.OpCompareSwap:
					wr.CompareAdd, wr.Swap = binary.NativeEndian.Uint64(wantMem[at:]), 7
				}
				allowed, want := access&op.need != 0, ibvfd.WCRemAccessErr
				if allowed {
					want = ibvfd.WCSuccess
					op.effect(wantHost[at:at+op.length], wantMem[at:at+op.length])
				}
				post(t, a, wr)
				if c := one(t, cq); c.ID != 1 || c.Status != want {
					t.Errorf("%s: %v, want %v", what, c.Status, want)
					allowed = c.Err() == nil
				}
				if !bytes.Equal(mem.Bytes(), wantMem) {
					t.Errorf("%s: the memory behind the window is not what it is to be", what)
				}
				if !bytes.Equal(host.Bytes(), wantHost) {
					t.Errorf("%s: the memory on this side is not what it is to be", what)
				}
				if allowed && typ == ibvfd.MWType2 {
					post(t, b, ibvfd.SendWR{ID: 3, Op: ibvfd.OpLocalInv, Flags: ibvfd.SendSignaled, RKey: key})
					if c := one(t, bcq); c.Err() != nil {
						t.Fatalf("%s: invalidate: %v", what, c.Err())
					}
				}
				closed(t, mw)
				if !allowed {
					join(t, a, b, ibvfd.ConnectAttr{})
				}
			}
		}
	}
}

// Several goroutines sleep on one CQ, others post to it, one follows the events:
// each completion goes to one of them, and none is lost.
func TestVMConcurrentWaits(t *testing.T) {
	pd := openPD(t)
	_, mr := hostMR(t, pd, 4096)
	sent, received := waitCQ(t, pd), waitCQ(t, pd)
	const pairs, rounds = 4, 20
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		for _, err := range pd.Context().Events(ctx) {
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
	var left atomic.Int64
	left.Store(2 * pairs * rounds)
	for i := range 4 {
		wait := sent.Wait
		if i%2 == 1 {
			wait = received.WaitSolicited
		}
		all.Go(func() {
			wc := make([]ibvfd.WC, 3)
			for {
				n, err := wait(ctx, wc)
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Errorf("waiting with %d completions left: %v", left.Load(), err)
					}
					return
				}
				for _, c := range wc[:n] {
					if c.Err() != nil {
						t.Error(c.Err())
					}
				}
				if left.Add(-int64(n)) <= 0 {
					cancel()
				}
			}
		})
	}
	for range pairs {
		attr := ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: sent, RecvCQ: received, SendDepth: rounds, RecvDepth: rounds}
		a, b := newQP(t, pd, attr), newQP(t, pd, attr)
		join(t, a, b, ibvfd.ConnectAttr{})
		all.Go(func() {
			for i := range rounds {
				if _, err := b.PostRecv([]ibvfd.RecvWR{{SGE: sge(mr, 64, 8)}}); err != nil {
					t.Error(err)
				}
				if _, err := a.PostSend([]ibvfd.SendWR{{Op: ibvfd.OpSend, Flags: ibvfd.SendSignaled | ibvfd.SendSolicited, SGE: sge(mr, 0, 8)}}); err != nil {
					t.Errorf("message %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
	if n := left.Load(); n != 0 {
		t.Errorf("%d completions lost", n)
	}
}

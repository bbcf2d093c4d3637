// SPDX-License-Identifier: Apache-2.0

package memnic_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/rc"
)

var _ rc.Device = (*memnic.Device)(nil)

// Each operation moves the bytes that it names, and completes as a NIC's does.
func TestOperations(t *testing.T) {
	eachMode(t, func(t *testing.T, n *memnic.Network) {
		a, b := pairOf(t, n, ibvfd.ConnectAttr{})
		a.fill(1)
		b.fill(100)
		a.post(rc.WriteQueue, a.op(ibvfd.OpWrite, 0, 10, b, 200))
		if wc := a.done(100, ibvfd.WCSuccess); wc.Opcode != ibvfd.WCOpWrite || wc.QPN != a.link.Local()[rc.WriteQueue].QPN {
			t.Errorf("%+v", wc)
		}
		same(t, "written", b.mem[200:210], a.mem[:10])

		read := a.op(ibvfd.OpRead, 20, 10, b, 50)
		read.SGE = append(a.part(20, 4), a.part(30, 6)...)
		a.post(rc.ReadQueue, read)
		if wc := a.done(104, ibvfd.WCSuccess); wc.Opcode != ibvfd.WCOpRead || wc.ByteLen != 10 {
			t.Errorf("%+v", wc)
		}
		same(t, "read", append(append([]byte{}, a.mem[20:24]...), a.mem[30:36]...), b.mem[50:60])

		for i, c := range []struct {
			op     ibvfd.Opcode
			opcode ibvfd.WCOpcode
			flags  ibvfd.WCFlags
		}{
			{ibvfd.OpSend, ibvfd.WCOpRecv, 0},
			{ibvfd.OpSendImm, ibvfd.WCOpRecv, ibvfd.WCWithImm},
			{ibvfd.OpWriteImm, ibvfd.WCOpRecvWriteImm, ibvfd.WCWithImm},
		} {
			b.recv(uint64(i), 0, 64)
			wr := a.op(c.op, 40, 12, b, 0)
			wr.Imm = 77
			a.post(rc.WriteQueue, wr)
			a.done(wr.ID, ibvfd.WCSuccess)
			wc := b.done(uint64(i), ibvfd.WCSuccess)
			if wc.Opcode != c.opcode || wc.ByteLen != 12 || wc.Flags != c.flags || c.flags != 0 && wc.Imm != 77 {
				t.Errorf("%v: %+v", c.op, wc)
			}
			same(t, c.op.String(), b.mem[:12], a.mem[40:52])
			clear(b.mem[:12])
		}

		word := func(s *side, off int) uint64 { return binary.NativeEndian.Uint64(s.mem[off:]) }
		binary.NativeEndian.PutUint64(b.mem[8:], 5)
		add := a.op(ibvfd.OpFetchAdd, 0, 8, b, 8)
		add.CompareAdd = 3
		swap := a.op(ibvfd.OpCompareSwap, 8, 8, b, 8)
		swap.CompareAdd, swap.Swap = 8, 90
		again := a.op(ibvfd.OpCompareSwap, 16, 8, b, 8)
		again.CompareAdd, again.Swap = 8, 91
		a.post(rc.WriteQueue, add, swap, again)
		a.done(add.ID, ibvfd.WCSuccess)
		a.done(swap.ID, ibvfd.WCSuccess)
		a.done(again.ID, ibvfd.WCSuccess)
		if got := [4]uint64{word(a, 0), word(a, 8), word(a, 16), word(b, 8)}; got != [4]uint64{5, 8, 90, 90} {
			t.Errorf("atomics: %v", got)
		}

		// Inline data is taken when the work request is posted.
		inline := a.op(ibvfd.OpWrite, 64, 16, b, 128)
		inline.Flags |= ibvfd.SendInline
		want := append([]byte{}, a.mem[64:80]...)
		a.post(rc.WriteQueue, inline)
		clear(a.mem[64:80])
		a.done(inline.ID, ibvfd.WCSuccess)
		same(t, "inline", b.mem[128:144], want)

		// An unsignaled work request makes no completion; one without bytes needs no key.
		quiet := a.op(ibvfd.OpWrite, 0, 1, b, 0)
		quiet.Flags = 0
		a.post(rc.WriteQueue, quiet, ibvfd.SendWR{ID: 9, Op: ibvfd.OpWrite, Flags: ibvfd.SendSignaled})
		a.done(9, ibvfd.WCSuccess)
		a.nothing()
		b.nothing()
	})
}

// A live network needs no poll, neither of the sender nor of the receiver.
func TestLiveNeedsNoPoll(t *testing.T) {
	a, b := pairOf(t, memnic.New(), ibvfd.ConnectAttr{})
	a.mem[0] = 42
	a.post(rc.WriteQueue, a.op(ibvfd.OpWrite, 0, 8, b, 0))
	flag := (*uint64)(unsafe.Pointer(&b.mem[0]))
	for atomic.LoadUint64(flag) == 0 {
		runtime.Gosched()
	}
	a.done(100, ibvfd.WCSuccess)
}

// An armed queue raises one event, for a completion that comes later.
func TestEvents(t *testing.T) {
	eachMode(t, func(t *testing.T, n *memnic.Network) {
		a, b := pairOf(t, n, ibvfd.ConnectAttr{})
		b.recv(1, 0, 8)
		b.recv(2, 0, 8)
		if err := errors.Join(a.cq.Arm(), b.cq.Arm()); err != nil {
			t.Fatal(err)
		}
		a.post(rc.WriteQueue, a.op(ibvfd.OpSend, 0, 8, b, 0))
		<-a.events
		<-b.events
		a.done(102, ibvfd.WCSuccess)
		b.done(1, ibvfd.WCSuccess)
		a.post(rc.WriteQueue, a.op(ibvfd.OpSend, 0, 8, b, 0))
		a.done(102, ibvfd.WCSuccess)
		b.done(2, ibvfd.WCSuccess)
		if len(a.events)+len(b.events) != 0 {
			t.Error("a queue that was not armed raised an event")
		}
		why := errors.New("no events")
		b.link.Queue().StopEvents(why)
		if err := b.cq.Arm(); err != why {
			t.Error(err)
		}
	})
}

// Limits are granted, and kept.
func TestLimits(t *testing.T) {
	n := memnic.New(memnic.Manual())
	d := n.Device("few", memnic.Limits{MaxSGE: 3, MaxSGERead: 2, Inline: -1, MaxMsg: 100, NoAtomics: true})
	s, b := newSide(t, d, ibvfd.ConnectAttr{MTU: 1024, MaxRead: 3}), newSide(t, n.Device("b", memnic.Limits{}), ibvfd.ConnectAttr{})
	join(t, s, b)
	if a := s.link.Attr(); a.SGE != 3 || a.ReadSGE != 2 || a.Inline != 0 || a.MaxMsg != 100 || a.ReadsIn != 3 || a.ReadsOut != 3 || d.Atomics() {
		t.Errorf("%+v", a)
	}
	if s.link.MTU(0) != 1024 || b.link.MTU(1) != 1024 {
		t.Error(s.link.MTU(0), b.link.MTU(1))
	}
	for name, change := range map[string]func(*ibvfd.SendWR){
		"SGEs":   func(wr *ibvfd.SendWR) { wr.SGE = make([]ibvfd.SGE, 4) },
		"READs":  func(wr *ibvfd.SendWR) { wr.Op, wr.SGE = ibvfd.OpRead, make([]ibvfd.SGE, 3) },
		"inline": func(wr *ibvfd.SendWR) { wr.Flags |= ibvfd.SendInline },
	} {
		wr := s.op(ibvfd.OpWrite, 0, 8, b, 0)
		change(&wr)
		if k, err := s.link.Post(rc.WriteQueue, []ibvfd.SendWR{wr}); k != 0 || !errors.Is(err, unix.ENOMEM) {
			t.Errorf("%s: %d, %v", name, k, err)
		}
	}
	wrs := make([]ibvfd.SendWR, depth+1)
	if k, err := s.link.Post(rc.WriteQueue, wrs); k != depth || err == nil || len(s.link.Posted(rc.WriteQueue)) != depth {
		t.Errorf("%d posted, %v", k, err)
	}
	if k, err := s.link.Recv(make([]ibvfd.RecvWR, depth+1)); k != depth || err == nil {
		t.Errorf("%d receives posted, %v", k, err)
	}
	d.Configure(func(l *memnic.Limits) { l.NoAtomics = false })
	if !d.Atomics() || s.link.Down() != nil {
		t.Error("no atomics")
	}
}

// Devices and queue pairs differ, and what is in use is not closed.
func TestNamesAndEnds(t *testing.T) {
	n := memnic.New(memnic.Manual())
	a, b := pairOf(t, n, ibvfd.ConnectAttr{})
	la, lb := a.link.Local(), b.link.Local()
	if la[0].QPN == la[1].QPN || la[0].QPN == lb[0].QPN || la[0].GID == lb[0].GID || la[0].Port != 1 {
		t.Errorf("%+v, %+v", la, lb)
	}
	if a.dev.GID() != netip.MustParseAddr("10.0.0.1") || rc.AddrOf(lb[0]) != netip.MustParseAddr("10.0.0.2") || a.dev.On() != n {
		t.Error(a.dev.GID(), rc.AddrOf(lb[0]))
	}
	if err := a.dev.Close(); !errors.Is(err, failure.ErrInUse) {
		t.Errorf("close: %v", err)
	}
	if err := a.cq.Close(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("close the queue: %v", err)
	}
	if access, k, ok := n.Access(a.reg.Remote[0].Key); !ok || k != size || access != allAccess {
		t.Error(access, k, ok)
	}
	if _, _, ok := n.Access(1); ok {
		t.Error("there is a key 1")
	}
}

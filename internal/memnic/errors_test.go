// SPDX-License-Identifier: Apache-2.0

package memnic_test

import (
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// A work request that a key does not allow fails with the status that a NIC gives, and moves no
// bytes.
func TestRefusedKeys(t *testing.T) {
	other := func(t *testing.T, s *side, access ibvfd.Access, domain bool) *rc.Registration {
		buf := must(hostmem.Alloc(size))(t)
		var d rc.Device = s.dev
		if domain {
			d = must(s.dev.NewDomain())(t)
		}
		r := must(d.Host(buf, 0, size, access))(t)
		t.Cleanup(func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if domain {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
			_ = buf.Close()
		})
		return r
	}
	remote := func(access ibvfd.Access, domain bool) func(*testing.T, *ibvfd.SendWR, *side, *side) {
		return func(t *testing.T, wr *ibvfd.SendWR, _, b *side) {
			r := other(t, b, access, domain).Remote[0]
			wr.RemoteAddr, wr.RKey = r.Addr, r.Key
		}
	}
	const refused, prot = ibvfd.WCRemAccessErr, ibvfd.WCLocProtErr
	for name, c := range map[string]struct {
		op     ibvfd.Opcode
		change func(t *testing.T, wr *ibvfd.SendWR, a, b *side)
		want   ibvfd.WCStatus
	}{
		"a wrong key":         {ibvfd.OpWrite, func(_ *testing.T, wr *ibvfd.SendWR, _, _ *side) { wr.RKey ^= 0xff00 }, refused},
		"an lkey":             {ibvfd.OpWrite, func(_ *testing.T, wr *ibvfd.SendWR, _, b *side) { wr.RKey = b.reg.Local[0].Key }, refused},
		"before it":           {ibvfd.OpRead, func(_ *testing.T, wr *ibvfd.SendWR, _, _ *side) { wr.RemoteAddr-- }, refused},
		"past it":             {ibvfd.OpRead, func(_ *testing.T, wr *ibvfd.SendWR, _, _ *side) { wr.RemoteAddr += size - 7 }, refused},
		"overflow":            {ibvfd.OpRead, func(_ *testing.T, wr *ibvfd.SendWR, _, _ *side) { wr.RemoteAddr = ^uint64(3) }, refused},
		"read of write-only":  {ibvfd.OpRead, remote(ibvfd.AccessLocalWrite|ibvfd.AccessRemoteWrite, false), refused},
		"write of read-only":  {ibvfd.OpWrite, remote(ibvfd.AccessRemoteRead, false), refused},
		"atomic of read-only": {ibvfd.OpFetchAdd, remote(ibvfd.AccessRemoteRead, false), refused},
		"another domain":      {ibvfd.OpWrite, remote(allAccess, true), refused},
		"a wrong lkey":        {ibvfd.OpWrite, func(_ *testing.T, wr *ibvfd.SendWR, _, _ *side) { wr.SGE[0].LKey++ }, prot},
		"past it here":        {ibvfd.OpWrite, func(_ *testing.T, wr *ibvfd.SendWR, _, _ *side) { wr.SGE[0].Addr += size - 1 }, prot},
		"read into read-only": {ibvfd.OpRead, func(t *testing.T, wr *ibvfd.SendWR, a, _ *side) {
			r := other(t, a, 0, false).Local[0]
			wr.SGE[0].Addr, wr.SGE[0].LKey = r.Addr, r.Key
		}, prot},
		"an atomic askew":   {ibvfd.OpFetchAdd, func(_ *testing.T, wr *ibvfd.SendWR, _, _ *side) { wr.RemoteAddr += 4 }, ibvfd.WCRemInvReqErr},
		"an atomic, short":  {ibvfd.OpFetchAdd, func(_ *testing.T, wr *ibvfd.SendWR, _, _ *side) { wr.SGE[0].Length = 4 }, ibvfd.WCLocLenErr},
		"no such operation": {ibvfd.OpLocalInv, func(*testing.T, *ibvfd.SendWR, *side, *side) {}, ibvfd.WCLocQPOpErr},
	} {
		t.Run(name, func(t *testing.T) {
			eachMode(t, func(t *testing.T, n *memnic.Network) {
				a, b := pairOf(t, n, ibvfd.ConnectAttr{})
				a.fill(3)
				here := append([]byte{}, a.mem...)
				wr := a.op(c.op, 0, 8, b, 0)
				c.change(t, &wr, a, b)
				a.post(rc.WriteQueue, wr)
				a.done(wr.ID, c.want)
				same(t, "there", b.mem, make([]byte, size))
				same(t, "here", a.mem, here)
			})
		})
	}
}

// A work request longer than the device allows fails before anything is sent.
func TestTooLong(t *testing.T) {
	n := memnic.New(memnic.Manual())
	a, b := newSide(t, n.Device("a", memnic.Limits{MaxMsg: 100}), ibvfd.ConnectAttr{}), newSide(t, n.Device("b", memnic.Limits{}), ibvfd.ConnectAttr{})
	join(t, a, b)
	a.post(rc.WriteQueue, a.op(ibvfd.OpWrite, 0, 101, b, 0))
	a.done(100, ibvfd.WCLocLenErr)
}

// A message that does not fit its receive fails on both sides.
func TestMessageTooLong(t *testing.T) {
	eachMode(t, func(t *testing.T, n *memnic.Network) {
		a, b := pairOf(t, n, ibvfd.ConnectAttr{})
		b.recv(1, 0, 7)
		b.recv(2, 0, 7)
		a.post(rc.WriteQueue, a.op(ibvfd.OpSend, 0, 8, b, 0))
		a.done(102, ibvfd.WCRemInvReqErr)
		b.done(1, ibvfd.WCLocLenErr)
		b.done(2, ibvfd.WCWRFlushErr)
	})
}

// A receive into memory that the receiver may not write fails on both sides.
func TestBadReceive(t *testing.T) {
	eachMode(t, func(t *testing.T, n *memnic.Network) {
		a, b := pairOf(t, n, ibvfd.ConnectAttr{})
		if _, err := b.link.Recv([]ibvfd.RecvWR{{ID: 1, SGE: []ibvfd.SGE{{Addr: 1, Length: 8, LKey: 1}}}}); err != nil {
			t.Fatal(err)
		}
		a.post(rc.WriteQueue, a.op(ibvfd.OpSend, 0, 8, b, 0))
		a.done(102, ibvfd.WCRemOpErr)
		b.done(1, ibvfd.WCLocProtErr)
	})
}

// After an error all work requests of the queue pair are flushed, in order, and so are those
// that are posted later. The other queue pair goes on.
func TestFlushOrder(t *testing.T) {
	eachMode(t, func(t *testing.T, n *memnic.Network) {
		a, b := pairOf(t, n, ibvfd.ConnectAttr{})
		a.recv(50, 0, 8)
		a.recv(51, 0, 8)
		bad := a.op(ibvfd.OpWrite, 0, 8, b, 0)
		bad.ID, bad.RKey = 1, 0
		wrs := []ibvfd.SendWR{a.op(ibvfd.OpWrite, 0, 8, b, 0), bad}
		for i := range uint64(3) {
			wr := a.op(ibvfd.OpWrite, 0, 8, b, 0)
			wr.ID, wr.Flags = 10+i, 0 // errors complete, signaled or not
			wrs = append(wrs, wr)
		}
		a.post(rc.WriteQueue, wrs...)
		a.done(100, ibvfd.WCSuccess)
		a.done(1, ibvfd.WCRemAccessErr)
		for _, id := range []uint64{10, 11, 12, 50, 51} {
			a.done(id, ibvfd.WCWRFlushErr)
		}
		a.post(rc.WriteQueue, a.op(ibvfd.OpWrite, 0, 8, b, 0))
		a.done(100, ibvfd.WCWRFlushErr)
		a.recv(52, 0, 8)
		a.done(52, ibvfd.WCWRFlushErr)
		a.post(rc.ReadQueue, a.op(ibvfd.OpRead, 0, 8, b, 0))
		a.done(104, ibvfd.WCSuccess)
	})
}

// Fail flushes at once, and the peer gets no answer any more.
func TestFail(t *testing.T) {
	eachMode(t, func(t *testing.T, n *memnic.Network) {
		a, b := pairOf(t, n, ibvfd.ConnectAttr{})
		b.recv(1, 0, 8)
		if err := b.link.Fail(); err != nil {
			t.Fatal(err)
		}
		b.done(1, ibvfd.WCWRFlushErr)
		a.post(rc.WriteQueue, a.op(ibvfd.OpWrite, 0, 8, b, 0))
		a.done(100, ibvfd.WCRetryExcErr)
	})
}

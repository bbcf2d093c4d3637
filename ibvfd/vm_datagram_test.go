// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Datagrams between two queue pairs, out of and into every exporter's memory:
// the first 40 bytes of a receive are the GRH's, which shows the way back.
func TestVMDatagrams(t *testing.T) {
	d := newDatagrams(t)
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) { d.exchange(t, x.Spec) })
}

// datagrams is two queue pairs that send them.
type datagrams struct {
	pd   *ibvfd.PD
	host *hostmem.Buf
	hmr  *ibvfd.MR
	cq   *ibvfd.CQ
	a, b *ibvfd.QP
	toB  *ibvfd.AH
}

func newDatagrams(t *testing.T) *datagrams {
	t.Helper()
	pd := openPD(t)
	host, hmr := hostMR(t, pd, 4096)
	fill(host.Bytes(), 11)
	cq := waitCQ(t, pd)
	attr := ibvfd.QPAttr{Type: ibvfd.UD, SendCQ: cq, RecvCQ: cq, SendDepth: 4, RecvDepth: 4, QKey: 0x1111}
	a := newQP(t, pd, attr)
	attr.QKey = 0x2222
	b := newQP(t, pd, attr)
	if err := errors.Join(b.Init(ibvfd.ConnectAttr{}), a.Activate(0)); err != nil {
		t.Fatal(err)
	}
	toB, err := a.CreateAH(b.Local(), ibvfd.PathAttr{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, toB) })
	return &datagrams{pd, host, hmr, cq, a, b, toB}
}

// exchange sends one into that memory, and another back.
func (d *datagrams) exchange(t *testing.T, spec string) {
	buf := alloc(t, spec, 8192, gpualloc.Options{})
	mr, err := d.pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, buf), Length: 8192, Access: allRemote, Owner: buf})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, mr)
	const n = 1000
	receive(t, d.b, ibvfd.RecvWR{ID: 100, SGE: sge(mr, 0, 2000)})
	if s, err := d.b.State(); err != nil {
		t.Fatal(err)
	} else if s == ibvfd.StateInit { // the first time: the receive is kept
		if err := d.b.Activate(0); err != nil {
			t.Fatal(err)
		}
	}
	// A datagram with the wrong Q_Key is dropped without a notice.
	wr := ibvfd.SendWR{ID: 1, Op: ibvfd.OpSend, Flags: ibvfd.SendSignaled, SGE: sge(d.hmr, 0, n), AH: d.toB, QPN: d.b.Num(), QKey: 0x3333}
	post(t, d.a, wr)
	if c := one(t, d.cq); c.ID != 1 || c.Err() != nil {
		t.Fatalf("%+v", c)
	}
	wr.Op, wr.Imm, wr.QKey = ibvfd.OpSendImm, 0xcafe0003, d.b.Local().QKey
	post(t, d.a, wr)
	var c ibvfd.WC
	for range 2 {
		if w := one(t, d.cq); w.Err() != nil {
			t.Fatal(w.Err())
		} else if w.ID == 100 {
			c = w
		}
	}
	if c.ByteLen != ibvfd.GRHLen+n || c.SrcQP != d.a.Num() || c.Imm != 0xcafe0003 || c.Flags&(ibvfd.WCWithGRH|ibvfd.WCWithImm) != ibvfd.WCWithGRH|ibvfd.WCWithImm {
		t.Fatalf("received %+v", c)
	}
	got := make([]byte, 2000)
	if _, err := buf.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got[ibvfd.GRHLen:ibvfd.GRHLen+n], d.host.Bytes()[:n]) || !bytes.Equal(got[ibvfd.GRHLen+n:], make([]byte, 2000-ibvfd.GRHLen-n)) {
		t.Error("wrong bytes")
	}

	// The way back is in the GRH.
	toA, err := d.b.ReplyAH(&c, got[:ibvfd.GRHLen])
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, toA)
	receive(t, d.a, ibvfd.RecvWR{ID: 200, SGE: sge(d.hmr, 2048, 2000)})
	post(t, d.b, ibvfd.SendWR{ID: 2, Op: ibvfd.OpSend, Flags: ibvfd.SendSignaled, SGE: sge(mr, ibvfd.GRHLen, n), AH: toA, QPN: c.SrcQP, QKey: d.a.Local().QKey})
	for range 2 {
		if w := one(t, d.cq); w.Err() != nil || w.ID == 200 && w.SrcQP != d.b.Num() {
			t.Fatalf("the answer: %+v", w)
		}
	}
	if reply := d.host.Bytes()[2048+ibvfd.GRHLen:]; !bytes.Equal(reply[:n], d.host.Bytes()[:n]) {
		t.Error("the answer has wrong bytes")
	}
}

// After a datagram out of memory that the NIC may not read the queue pair is in the
// error state. Activate brings it back, with the address handle that there was, and
// datagrams go both ways again; the other end has noticed nothing.
func TestVMDatagramsAfterError(t *testing.T) {
	d := newDatagrams(t)
	d.exchange(t, exporter)
	for _, bad := range []struct {
		name string
		sge  []ibvfd.SGE
	}{
		{"wrong lkey", []ibvfd.SGE{{Addr: d.hmr.IOVA(), Length: 64, LKey: d.hmr.LKey() ^ 0xff}}},
		{"past the end", sge(d.hmr, 4096-63, 64)},
	} {
		t.Run(bad.name, func(t *testing.T) {
			wr := ibvfd.SendWR{ID: 3, Op: ibvfd.OpSend, Flags: ibvfd.SendSignaled, SGE: bad.sge, AH: d.toB, QPN: d.b.Num(), QKey: d.b.Local().QKey}
			post(t, d.a, wr)
			// rxe of 6.12 flushes the work request that made the error, too.
			if c := one(t, d.cq); c.ID != 3 || !slices.Contains([]ibvfd.WCStatus{ibvfd.WCLocProtErr, ibvfd.WCLocQPOpErr, ibvfd.WCWRFlushErr}, c.Status) {
				t.Fatalf("%+v", c)
			}
			reach(t, d.a, ibvfd.StateErr)
			wr.ID, wr.SGE = 4, sge(d.hmr, 0, 64) // a good one
			post(t, d.a, wr)
			if c := one(t, d.cq); c.ID != 4 || c.Status != ibvfd.WCWRFlushErr {
				t.Errorf("posted after the error: %+v", c)
			}
			if err := d.a.Resume(); err == nil {
				t.Error("resumed from the error state")
			}
			if err := d.a.Activate(0); err != nil {
				t.Fatal(err)
			}
			if s, err := d.a.State(); err != nil || s != ibvfd.StateRTS {
				t.Errorf("state %v, %v", s, err)
			}
			if s, err := d.b.State(); err != nil || s != ibvfd.StateRTS {
				t.Errorf("the other end: state %v, %v", s, err)
			}
			clear(d.host.Bytes()[2048:])
			d.exchange(t, exporter)
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// A shared receive queue feeds several queue pairs, warns when it runs low, and
// outlives none of them. Its receives go to every exporter's memory.
func TestVMSharedReceives(t *testing.T) {
	pd := openPD(t)
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) { sharedReceives(t, pd, x.Spec) })
}

// sharedReceives receives into that memory.
func sharedReceives(t *testing.T, pd *ibvfd.PD, spec string) {
	host, hmr := hostMR(t, pd, 4096)
	buf := alloc(t, spec, 4096, gpualloc.Options{})
	mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, buf), Length: 4096, Access: ibvfd.AccessLocalWrite, Owner: buf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, mr) })
	srq, err := pd.CreateSRQ(ibvfd.SRQAttr{Depth: 16, SGE: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, srq) }) // after the queue pairs
	if a := srq.Attr(); a.Depth < 16 || a.SGE < 2 {
		t.Errorf("granted %+v", a)
	}
	cq, received := waitCQ(t, pd), waitCQ(t, pd)
	const pairs = 3
	var senders, receivers [pairs]*ibvfd.QP
	for i := range pairs {
		senders[i] = newQP(t, pd, ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: cq, RecvCQ: cq})
		receivers[i] = newQP(t, pd, ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: cq, RecvCQ: received, SRQ: srq})
		join(t, senders[i], receivers[i], ibvfd.ConnectAttr{})
	}
	if err := srq.Close(); !errors.Is(err, failure.ErrInUse) {
		t.Errorf("closing it under queue pairs: %v", err)
	}
	const receives = 6
	for i := range receives {
		wr := ibvfd.RecvWR{ID: uint64(i), SGE: append(sge(mr, 1024+64*i, 3), sge(mr, 1024+64*i+32, 5)...)}
		if n, err := srq.Post([]ibvfd.RecvWR{wr}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := srq.SetLimit(4); err != nil {
		t.Fatal(err)
	}
	if n, err := srq.Limit(); err != nil || n != 4 {
		t.Errorf("limit %d, %v", n, err)
	}
	fill(host.Bytes(), 3)
	there, got := make([]byte, 4096), make([]byte, 4096)
	fill(there, 4)
	if _, err := buf.WriteAt(there, 0); err != nil {
		t.Fatal(err)
	}
	for i := range receives {
		s := i % pairs
		post(t, senders[s], ibvfd.SendWR{ID: 9, Op: ibvfd.OpSend, Flags: ibvfd.SendSignaled, SGE: sge(hmr, 8*i, 8)})
		if c := one(t, cq); c.Err() != nil {
			t.Fatal(c.Err())
		}
		c := one(t, received)
		if c.Err() != nil || c.ID != uint64(i) || c.QPN != receivers[s].Num() || c.ByteLen != 8 {
			t.Fatalf("message %d: %+v", i, c)
		}
		want := host.Bytes()[8*i:]
		copy(there[1024+64*i:], want[:3])
		copy(there[1024+64*i+32:], want[3:8])
		if _, err := buf.ReadAt(got, 0); err != nil || !bytes.Equal(got, there) {
			t.Errorf("message %d: wrong bytes, %v", i, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	for e, err := range pd.Context().Events(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == ibvfd.EventSRQLimit {
			if e.SRQ != srq {
				t.Errorf("%v names another SRQ", e)
			}
			break
		}
	}
	if n, err := receivers[0].PostRecv(make([]ibvfd.RecvWR, 1)); n != 0 || err == nil {
		t.Errorf("PostRecv beside an SRQ: %d, %v", n, err)
	}
}

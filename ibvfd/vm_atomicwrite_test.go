// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Eight bytes at once, between other operations of the same queue, where the
// kernel has it; before, the queue pair is refused with the reason.
func TestVMAtomicWrite(t *testing.T) {
	pd := openPD(t)
	cq := waitCQ(t, pd)
	if !testenv.AtLeast(t, "6.12") {
		if qp, err := pd.CreateQP(wordAttr(cq)); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%v, %v", qp, err)
		}
		return
	}
	w := newWords(t, pd, cq)
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) { w.atomicWrites(t, x.Spec) })
	// 8 bytes of no MR, and a queue pair again.
	post(t, w.a, ibvfd.SendWR{Op: ibvfd.OpAtomicWrite, RemoteAddr: w.mr.IOVA(), RKey: w.mr.RKey() + 1, CompareAdd: 1})
	if c := one(t, cq); c.Status != ibvfd.WCRemAccessErr {
		t.Errorf("a key that is none: %+v", c)
	}
}

// words is a queue pair that writes 8 bytes at once.
type words struct {
	pd   *ibvfd.PD
	cq   *ibvfd.CQ
	a    *ibvfd.QP
	host *hostmem.Buf
	mr   *ibvfd.MR
}

func wordAttr(cq *ibvfd.CQ) ibvfd.QPAttr {
	return ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: cq, RecvCQ: cq, SendDepth: 8, SendSGE: 1, AtomicWrite: true}
}

func newWords(t *testing.T, pd *ibvfd.PD, cq *ibvfd.CQ) *words {
	t.Helper()
	w := &words{pd: pd, cq: cq, a: newQP(t, pd, wordAttr(cq))}
	join(t, w.a, newQP(t, pd, wordAttr(cq)), ibvfd.ConnectAttr{})
	w.host, w.mr = hostMR(t, pd, 64)
	fill(w.host.Bytes(), 5)
	return w
}

func (w *words) atomicWrites(t *testing.T, spec string) {
	buf := alloc(t, spec, 1<<16, gpualloc.Options{})
	mr, err := w.pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, buf), Length: 1 << 16, IOVA: 1 << 32, Access: allRemote, Owner: buf})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, mr)
	const last = 1<<16 - 8
	wrs := []ibvfd.SendWR{
		{ID: 1, Op: ibvfd.OpWrite, SGE: sge(w.mr, 0, 24), RemoteAddr: mr.IOVA() + 64, RKey: mr.RKey()},
		{ID: 2, Op: ibvfd.OpAtomicWrite, RemoteAddr: mr.IOVA() + 72, RKey: mr.RKey(), CompareAdd: 0x1122334455667788},
		{ID: 3, Op: ibvfd.OpAtomicWrite, RemoteAddr: mr.IOVA() + last, RKey: mr.RKey(), CompareAdd: 42},
		{ID: 4, Op: ibvfd.OpFetchAdd, SGE: sge(w.mr, 32, 8), RemoteAddr: mr.IOVA() + last, RKey: mr.RKey(), CompareAdd: 1},
	}
	for i := range wrs {
		wrs[i].Flags = ibvfd.SendSignaled
	}
	if n, err := w.a.PostSend(wrs); n != len(wrs) || err != nil {
		t.Fatal(n, err)
	}
	for i, op := range []ibvfd.WCOpcode{ibvfd.WCOpWrite, ibvfd.WCOpAtomicWrite, ibvfd.WCOpAtomicWrite, ibvfd.WCOpFetchAdd} {
		if c := one(t, w.cq); c.Err() != nil || c.ID != uint64(i+1) || c.Opcode != op {
			t.Fatalf("completion %d: %+v", i, c)
		}
	}
	got := make([]byte, 24)
	if _, err := buf.ReadAt(got, 64); err != nil {
		t.Fatal(err)
	}
	want := append([]byte(nil), w.host.Bytes()[:24]...)
	binary.NativeEndian.PutUint64(want[8:], 0x1122334455667788)
	if string(got) != string(want) {
		t.Errorf("%x, want %x", got, want)
	}
	if _, err := buf.ReadAt(got[:8], last); err != nil || binary.NativeEndian.Uint64(got) != 43 || binary.NativeEndian.Uint64(w.host.Bytes()[32:]) != 42 {
		t.Errorf("at the end: %x, %v; fetched %x", got[:8], err, w.host.Bytes()[32:40])
	}
}

// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Eight bytes at once, between other operations of the same queue, where the
// kernel has it; before, the queue pair is refused with the reason.
func TestVMAtomicWrite(t *testing.T) {
	pd := openPD(t)
	cq := waitCQ(t, pd)
	attr := ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: cq, RecvCQ: cq, SendDepth: 8, SendSGE: 1, AtomicWrite: true}
	if !testenv.AtLeast(t, "6.12") {
		if qp, err := pd.CreateQP(attr); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%v, %v", qp, err)
		}
		return
	}
	a, b := newQP(t, pd, attr), newQP(t, pd, attr)
	join(t, a, b, ibvfd.ConnectAttr{})
	host, hmr := hostMR(t, pd, 64)
	fill(host.Bytes(), 5)
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		buf := alloc(t, x.Spec, 1<<16, gpualloc.Options{})
		mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, buf), Length: 1 << 16, IOVA: 1 << 32, Access: allRemote, Owner: buf})
		if err != nil {
			t.Fatal(err)
		}
		defer closed(t, mr)
		const last = 1<<16 - 8
		wrs := []ibvfd.SendWR{
			{ID: 1, Op: ibvfd.OpWrite, SGE: sge(hmr, 0, 24), RemoteAddr: mr.IOVA() + 64, RKey: mr.RKey()},
			{ID: 2, Op: ibvfd.OpAtomicWrite, RemoteAddr: mr.IOVA() + 72, RKey: mr.RKey(), CompareAdd: 0x1122334455667788},
			{ID: 3, Op: ibvfd.OpAtomicWrite, RemoteAddr: mr.IOVA() + last, RKey: mr.RKey(), CompareAdd: 42},
			{ID: 4, Op: ibvfd.OpFetchAdd, SGE: sge(hmr, 32, 8), RemoteAddr: mr.IOVA() + last, RKey: mr.RKey(), CompareAdd: 1},
		}
		for i := range wrs {
			wrs[i].Flags = ibvfd.SendSignaled
		}
		if n, err := a.PostSend(wrs); n != len(wrs) || err != nil {
			t.Fatal(n, err)
		}
		for i, op := range []ibvfd.WCOpcode{ibvfd.WCOpWrite, ibvfd.WCOpAtomicWrite, ibvfd.WCOpAtomicWrite, ibvfd.WCOpFetchAdd} {
			if c := one(t, cq); c.Err() != nil || c.ID != uint64(i+1) || c.Opcode != op {
				t.Fatalf("completion %d: %+v", i, c)
			}
		}
		got := make([]byte, 24)
		if _, err := buf.ReadAt(got, 64); err != nil {
			t.Fatal(err)
		}
		want := append([]byte(nil), host.Bytes()[:24]...)
		binary.NativeEndian.PutUint64(want[8:], 0x1122334455667788)
		if string(got) != string(want) {
			t.Errorf("%x, want %x", got, want)
		}
		if _, err := buf.ReadAt(got[:8], last); err != nil || binary.NativeEndian.Uint64(got) != 43 || binary.NativeEndian.Uint64(host.Bytes()[32:]) != 42 {
			t.Errorf("at the end: %x, %v; fetched %x", got[:8], err, host.Bytes()[32:40])
		}
	})
	// Nobody's 8 bytes, and a queue pair again.
	post(t, a, ibvfd.SendWR{Op: ibvfd.OpAtomicWrite, RemoteAddr: hmr.IOVA(), RKey: hmr.RKey() + 1, CompareAdd: 1})
	if c := one(t, cq); c.Status != ibvfd.WCRemAccessErr {
		t.Errorf("a key that is none: %+v", c)
	}
}

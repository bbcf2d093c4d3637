// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
	"github.com/gpurdma/gpurdma/ibvfd/internal/verbsstub"
)

func TestAddressHandles(t *testing.T) {
	s := newScript()
	pd, qp, _ := queuePair(t, s, QPAttr{Type: UD})
	ah, err := qp.CreateAH(Endpoint{GID: [16]byte{3}, LID: 4}, PathAttr{TrafficClass: 5})
	if err != nil {
		t.Fatal(err)
	}
	want := libibverbs.Path{Port: 1, LID: 4, GID: [16]byte{3}, GIDIndex: 1, Global: true, HopLimit: 64, Class: 5}
	if got := ah.v.(*scriptAH).path; got != want {
		t.Errorf("path %+v, want %+v", got, want)
	}
	if err := pd.Close(); !errors.Is(err, failure.ErrInUse) {
		t.Errorf("the PD closes under an address handle: %v", err)
	}
	wr := []SendWR{{Op: OpSend, AH: ah, QPN: 5, QKey: 6}}
	if n, err := qp.PostSend(wr); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	s.failWith("destroyAH", unix.EBUSY)
	if err := ah.Close(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("Close: %v", err)
	}
	if n, err := qp.PostSend(wr); n != 1 || err != nil {
		t.Errorf("after a Close that failed: %d, %v", n, err)
	}
	s.failWith("destroyAH", nil)
	for range 2 {
		if err := ah.Close(); err != nil {
			t.Error(err)
		}
	}
	if n, err := qp.PostSend(wr); n != 0 || !errors.Is(err, unix.EINVAL) {
		t.Errorf("a closed address handle: %d, %v", n, err)
	}
	if _, err := qp.ReplyAH(&WC{}, make([]byte, GRHLen-1)); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a short GRH: %v", err)
	}
	reply, err := qp.ReplyAH(&WC{}, make([]byte, GRHLen))
	if err != nil {
		t.Fatal(err)
	}
	if err := reply.Close(); err != nil {
		t.Error(err)
	}
	s.failWith("createAH", unix.EHOSTUNREACH)
	if _, err := qp.CreateAH(Endpoint{}, PathAttr{}); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("CreateAH: %v", err)
	}
	if _, err := qp.ReplyAH(&WC{}, make([]byte, GRHLen)); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("ReplyAH: %v", err)
	}
}

// Work requests of UD carry handle, QPN and Q_Key, and nothing else is posted.
func TestPostUD(t *testing.T) {
	pd, other := &PD{}, &PD{}
	stub, q := newSend(t, 100, 0, 8, 2)
	q.ud = &pd.parent
	ok := SendWR{ID: 1, Op: OpSend, AH: &AH{home: &pd.parent, addr: 0xabcdef0123456789}, QPN: 0x123456, QKey: 0x87654321}
	imm := ok
	imm.Op, imm.Imm = OpSendImm, 0x01020304
	for _, c := range []struct {
		name string
		wr   SendWR
		bad  postRefusal
	}{
		{"SEND", ok, postOK},
		{"SEND with immediate", imm, postOK},
		{"no handle", SendWR{Op: OpSend}, postNoAH},
		{"closed handle", SendWR{Op: OpSend, AH: &AH{home: &pd.parent}}, postNoAH},
		{"another PD's handle", SendWR{Op: OpSend, AH: &AH{home: &other.parent, addr: 1}}, postNoAH},
		{"WRITE", SendWR{Op: OpWrite, AH: ok.AH}, postOpcode},
		{"SEND with invalidate", SendWR{Op: OpSendInv, AH: ok.AH}, postOpcode},
	} {
		n, bad, _ := q.post([]SendWR{c.wr})
		if bad != c.bad || (n == 1) != (c.bad == postOK) {
			t.Errorf("%s: posted %d, %v; want %v", c.name, n, bad, c.bad)
		}
	}
	sent := stub.Sent()
	if len(sent) != 2 || sent[1].Imm != imm.Imm {
		t.Fatalf("arrived: %+v", sent)
	}
	for _, s := range sent {
		if s.AH != uint64(ok.AH.addr) || s.QPN != ok.QPN || s.QKey != ok.QKey || s.Rest {
			t.Errorf("arrived as %+v", s)
		}
	}
}

// Keys to invalidate are in the host's byte order, which immediate data is not.
func TestInvalidate(t *testing.T) {
	stub, q := newSend(t, 100, 0, 8, 2)
	if n, bad, _ := q.post([]SendWR{{Op: OpLocalInv, RKey: 0x01020304}, {Op: OpSendInv, RKey: 0x05060708}}); n != 2 || bad != postOK {
		t.Fatal(n, bad)
	}
	for i, want := range []uint32{0x01020304, 0x05060708} {
		if s := stub.Sent()[i]; s.Invalidate != want || s.Rest {
			t.Errorf("%+v, want key %#x", s, want)
		}
	}
	cq := verbsstub.NewCQ(1, 0, verbsstub.Completion{Imm: bigEndian(0x0a0b0c0d), Flags: uint32(WCWithInv)})
	defer cq.Free()
	c, err := newCompletionQueue(cq.Ptr(), verbsstub.NumberedPoll(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Free()
	wc := make([]WC, 1)
	if n := c.poll(wc); n != 1 || wc[0].Imm != 0x0a0b0c0d {
		t.Errorf("%d completions, %+v", n, wc[0])
	}
}

func TestSRQ(t *testing.T) {
	s := newScript()
	pd := scripted(t, s, &kernel{reg: always(0)})
	c := pd.Context()
	for _, fn := range []string{"createSRQ", "receive array"} {
		s.failWith(fn, unix.ENOMEM)
		if _, err := pd.CreateSRQ(SRQAttr{}); !errors.Is(err, unix.ENOMEM) {
			t.Errorf("%s: %v", fn, err)
		}
		s.failWith(fn, nil)
	}
	if _, err := pd.CreateSRQ(SRQAttr{Depth: -1}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("depth -1: %v", err)
	}
	srq, err := pd.CreateSRQ(SRQAttr{Depth: 8, SGE: 2})
	if err != nil {
		t.Fatal(err)
	}
	cq, err := c.CreateCQ(8)
	if err != nil {
		t.Fatal(err)
	}
	attr := QPAttr{Type: RC, SendCQ: cq, RecvCQ: cq, SRQ: srq}
	wrong := attr
	wrong.RecvDepth = 1
	if _, err := pd.CreateQP(wrong); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a receive depth beside an SRQ: %v", err)
	}
	qp, err := pd.CreateQP(attr)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := qp.PostRecv(make([]RecvWR, 1)); n != 0 || !errors.Is(err, unix.EINVAL) {
		t.Errorf("PostRecv beside an SRQ: %d, %v", n, err)
	}
	if n, err := srq.Post(make([]RecvWR, 5)); n != 5 || err != nil {
		t.Errorf("Post: %d, %v", n, err)
	}
	if n, err := srq.Post([]RecvWR{{}, {SGE: make([]SGE, 3)}}); n != 1 || !errors.Is(err, unix.EINVAL) {
		t.Errorf("too many SGEs: %d, %v", n, err)
	}
	if err := srq.SetLimit(4); err != nil {
		t.Error(err)
	}
	if n, err := srq.Limit(); n != 4 || err != nil {
		t.Errorf("Limit: %d, %v", n, err)
	}
	for _, n := range []int{-1, 9} {
		if err := srq.SetLimit(n); !errors.Is(err, unix.EINVAL) {
			t.Errorf("limit %d of 8: %v", n, err)
		}
	}
	// The script grants 64.
	if err := errors.Join(srq.Resize(16), srq.SetLimit(60), srq.SetLimit(0)); err != nil || srq.Attr() != (SRQAttr{64, 2}) {
		t.Errorf("%v, %+v", err, srq.Attr())
	}
	for fn, call := range map[string]func() error{
		"modifySRQ": func() error { return srq.SetLimit(1) }, "resizeSRQ": func() error { return srq.Resize(1) },
		"querySRQ": func() error { _, err := srq.Limit(); return err },
	} {
		s.failWith(fn, unix.EINVAL)
		if err := call(); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s: %v", fn, err)
		}
		s.failWith(fn, nil)
	}
	if err := srq.Close(); !errors.Is(err, failure.ErrInUse) {
		t.Errorf("Close under a queue pair: %v", err)
	}
	if err := errors.Join(qp.Close(), cq.Close()); err != nil {
		t.Error(err)
	}
	if err := pd.Close(); !errors.Is(err, failure.ErrInUse) {
		t.Errorf("the PD closes under an SRQ: %v", err)
	}
	s.failWith("destroySRQ", unix.EBUSY)
	if err := srq.Close(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("Close: %v", err)
	}
	s.failWith("destroySRQ", nil)
	for range 2 {
		if err := srq.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := srq.Post(make([]RecvWR, 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Post to a closed SRQ: %v", err)
	}
	if err := srq.SetLimit(1); !errors.Is(err, os.ErrClosed) {
		t.Errorf("SetLimit of a closed SRQ: %v", err)
	}
}

func TestMemoryWindows(t *testing.T) {
	s := newScript()
	pd, qp, v := queuePair(t, s, QPAttr{Type: RC})
	mem, err := hostmem.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	reg := func(a Access) *MR {
		t.Helper()
		mr, err := pd.RegMR(MRAttr{Kind: HostMemory, Host: mem.Bytes(), Length: 100, Access: a, Owner: mem})
		if err != nil {
			t.Fatal(err)
		}
		return mr
	}
	bindable, plain := reg(AccessLocalWrite|AccessMWBind), reg(AccessLocalWrite)
	defer bindable.Close()
	gone := reg(AccessMWBind)
	_ = gone.Close()
	if _, err := pd.AllocMW(3); !errors.Is(err, unix.EINVAL) {
		t.Errorf("type 3: %v", err)
	}
	s.failWith("allocMW", unix.EOPNOTSUPP)
	if _, err := pd.AllocMW(MWType1); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("AllocMW: %v", err)
	}
	s.failWith("allocMW", nil)
	one, err := pd.AllocMW(MWType1)
	if err != nil {
		t.Fatal(err)
	}
	two, err := pd.AllocMW(MWType2)
	if err != nil {
		t.Fatal(err)
	}
	if err := pd.Close(); !errors.Is(err, failure.ErrInUse) {
		t.Errorf("the PD closes under a window: %v", err)
	}
	good := MWBind{ID: 1, Flags: SendSignaled, MR: bindable, Addr: bindable.IOVA() + 10, Length: 20, Access: AccessRemoteRead}
	key, err := qp.BindMW(two, good)
	if err != nil || key != 0x1201 || two.RKey() != key || len(v.bound) != 1 || v.bound[0] != (libibverbs.Bind{ID: good.ID, Flags: uint32(good.Flags), Addr: good.Addr, Length: good.Length, Access: uint32(good.Access)}) {
		t.Errorf("key %#x, %v, %+v", key, err, v.bound)
	}
	bad := func(mw *MW, mr *MR, want error) {
		t.Helper()
		b := good
		b.MR = mr
		if _, err := qp.BindMW(mw, b); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	bad(two, plain, unix.EINVAL)
	bad(two, nil, unix.EINVAL)
	bad(one, nil, unix.EINVAL) // with a length
	bad(two, gone, os.ErrClosed)
	if _, err := qp.BindMW(one, MWBind{}); err != nil {
		t.Errorf("unbind: %v", err)
	}
	s.failWith("bindMW", unix.ENOMEM)
	bad(two, bindable, unix.ENOMEM)
	s.failWith("bindMW", nil)
	_ = plain.Close()
	for _, mw := range []*MW{one, one, two} {
		if err := mw.Close(); err != nil {
			t.Error(err)
		}
	}
	bad(two, bindable, os.ErrClosed)
	if two.RKey() != 0 {
		t.Error("a closed window has a key")
	}
}

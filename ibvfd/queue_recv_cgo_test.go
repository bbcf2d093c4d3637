// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

import (
	"context"
	"errors"
	"os"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/verbsstub"
)

func TestPostRecv(t *testing.T) {
	qp := verbsstub.NewQP(5, int(unix.ENOMEM))
	defer qp.Free()
	q, err := newRecvQueue(qp.Ptr(), verbsstub.RecordRecv(), 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Free()
	in := make([]RecvWR, 7)
	for i := range in {
		in[i] = RecvWR{ID: uint64(100 + i), SGE: []SGE{{uint64(i), 2, 3}, {4, 5, uint32(i)}}}
	}
	n, bad, errno := q.post(in)
	if n != 5 || bad != postProvider || errno != unix.ENOMEM {
		t.Errorf("posted %d, %v, %v; want 5 and ENOMEM", n, bad, errno)
	}
	for i, r := range qp.Received() {
		want := verbsstub.Recv{ID: uint64(100 + i), SGE: []verbsstub.SGE{{Addr: uint64(i), Length: 2, LKey: 3}, {Addr: 4, Length: 5, LKey: uint32(i)}}}
		if !reflect.DeepEqual(r, want) {
			t.Errorf("receive %d arrived as %+v, want %+v", i, r, want)
		}
	}
	if n, bad, _ := q.post([]RecvWR{{SGE: make([]SGE, 3)}}); n != 0 || bad != postTooMany {
		t.Errorf("too many SGEs: %d, %v", n, bad)
	}
}

func TestPollDecoding(t *testing.T) {
	cq := verbsstub.NewCQ(5, 0, verbsstub.Completion{Status: 10, Opcode: 129, VendorErr: 0x80, ByteLen: 1234, Imm: 0x01020304, QPN: 17, SrcQP: 18, Flags: 2})
	defer cq.Free()
	q, err := newCompletionQueue(cq.Ptr(), verbsstub.NumberedPoll(), 3)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Free()
	wc := make([]WC, 8)
	for _, want := range []int{3, 2, 0} { // the array has room for three
		if n := q.poll(wc); n != want {
			t.Fatalf("polled %d, want %d", n, want)
		}
	}
	want := WC{ID: 3, Status: WCRemAccessErr, Opcode: WCOpRecvWriteImm, VendorErr: 0x80, ByteLen: 1234, Imm: 0x01020304, QPN: 17, SrcQP: 18, Flags: WCWithImm}
	if wc[0] != want {
		t.Errorf("decoded %+v, want %+v", wc[0], want)
	}
	var e *WCError
	if err := wc[0].Err(); !errors.As(err, &e) || e.VendorErr != 0x80 || !errors.Is(err, &WCError{Status: WCRemAccessErr}) {
		t.Errorf("Err() = %v", err)
	}
	broken := verbsstub.NewCQ(1, -1, verbsstub.Completion{})
	defer broken.Free()
	b, err := newCompletionQueue(broken.Ptr(), verbsstub.NumberedPoll(), 3)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	if n := b.poll(wc); n >= 0 {
		t.Errorf("a failing poll answered %d", n)
	}
}

// pairOf is a scripted queue pair on a CQ.
func pairOf(t *testing.T) (*script, *QP, *CQ) {
	t.Helper()
	s := newScript()
	pd := scripted(t, s, &kernel{reg: always(0)})
	cq, err := pd.Context().CreateCQ(8)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := pd.CreateQP(QPAttr{Type: RC, SendCQ: cq, RecvCQ: cq, SendSGE: 2, RecvSGE: 2, SendDepth: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, x := range []interface{ Close() error }{qp, cq} {
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return s, qp, cq
}

// Posting and polling allocate nothing.
func TestNoAllocations(t *testing.T) {
	_, qp, cq := pairOf(t)
	sge := []SGE{{1, 2, 3}}
	send, recv, wc := make([]SendWR, 64), make([]RecvWR, 64), make([]WC, 64)
	for i := range send {
		send[i] = SendWR{Op: OpWrite, SGE: sge}
		recv[i] = RecvWR{SGE: sge}
	}
	for name, f := range map[string]func(){
		"PostSend": func() {
			if n, err := qp.PostSend(send); n != 64 || err != nil {
				t.Fatal(n, err)
			}
		},
		"PostRecv": func() {
			if n, err := qp.PostRecv(recv); n != 64 || err != nil {
				t.Fatal(n, err)
			}
		},
		"Poll": func() {
			if n, err := cq.Poll(wc); n != 64 || err != nil {
				t.Fatal(n, err)
			}
		},
		"PollUntil": func() {
			if n, err := cq.PollUntil(context.Background(), wc); n != 64 || err != nil {
				t.Fatal(n, err)
			}
		},
	} {
		if a := testing.AllocsPerRun(100, f); a != 0 {
			t.Errorf("%s allocates %v times", name, a)
		}
	}
}

func TestConnectTransitions(t *testing.T) {
	s, qp, _ := pairOf(t)
	local := qp.Local()
	if local.GIDIndex != 1 || local.MTU != 1024 || local.Port != 1 || local.QPN != 17 || local.PSN >= 1<<24 {
		t.Errorf("Local() = %+v; GID 1 is the RoCE v2 one with an IPv4 address", local)
	}
	remote := Endpoint{QPN: 18, MTU: 512, GID: local.GID}
	for _, state := range []string{"RESET", "INIT", "RTR", "RTS"} {
		s.failWith("modify "+state, unix.ENETUNREACH)
		if err := qp.Connect(remote, ConnectAttr{}); !errors.Is(err, unix.ENETUNREACH) {
			t.Errorf("refused at %s: %v", state, err)
		}
		s.failWith("modify "+state, nil)
	}
	if err := qp.Connect(remote, ConnectAttr{}); err != nil {
		t.Fatal(err)
	}
	if state, err := qp.State(); err != nil || state != StateRTS {
		t.Errorf("state %v, %v; want RTS", state, err)
	}
	if err := errors.Join(qp.Err(), qp.Reset()); err != nil {
		t.Error(err)
	}
	if err := qp.Connect(Endpoint{MTU: 100}, ConnectAttr{}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("MTU 100: %v", err)
	}
}

// An error path destroys the objects it made, and the others stay usable.
func TestQueueConstructorsFail(t *testing.T) {
	s := newScript()
	pd := scripted(t, s, &kernel{reg: always(0)})
	c := pd.Context()
	s.failWith("completion array", unix.ENOMEM)
	if _, err := c.CreateCQ(1); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("CreateCQ: %v", err)
	}
	s.failWith("completion array", nil)
	cq, err := c.CreateCQ(1)
	if err != nil {
		t.Fatal(err)
	}
	attr := QPAttr{Type: RC, SendCQ: cq, RecvCQ: cq}
	for _, fn := range []string{"createQP", "work request arrays", "queryPort"} {
		s.failWith(fn, unix.ENOMEM)
		if _, err := pd.CreateQP(attr); !errors.Is(err, unix.ENOMEM) {
			t.Errorf("CreateQP with failing %s: %v", fn, err)
		}
		s.failWith(fn, nil)
	}
	s.failWith("modify RTS", unix.EINVAL)
	if _, _, err := LoopbackPair(pd, cq, attr); !errors.Is(err, unix.EINVAL) {
		t.Errorf("LoopbackPair: %v", err)
	}
	s.failWith("destroyCQ", unix.EBUSY)
	if err := cq.Close(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("Close: %v, want EBUSY", err)
	}
	s.failWith("destroyCQ", nil)
	if _, err := cq.Poll(make([]WC, 1)); err != nil {
		t.Errorf("a CQ that could not be closed cannot be polled: %v", err)
	}
	if err := cq.Close(); err != nil {
		t.Error(err)
	}
	if _, err := pd.CreateQP(attr); !errors.Is(err, os.ErrClosed) {
		t.Errorf("CreateQP on a closed CQ: %v", err)
	}
}

func TestPollUntilEnds(t *testing.T) {
	cq := verbsstub.NewCQ(0, 0, verbsstub.Completion{})
	defer cq.Free()
	q, err := newCompletionQueue(cq.Ptr(), verbsstub.NumberedPoll(), 3)
	if err != nil {
		t.Fatal(err)
	}
	c := &CQ{ctx: &Context{name: "none"}}
	c.poll.q = q
	defer q.Free()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := c.PollUntil(ctx, make([]WC, 1))
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("PollUntil: %v, want Canceled", err)
	}
	if n, err := c.PollUntil(t.Context(), nil); n != 0 || err != nil {
		t.Errorf("PollUntil with no room: %d, %v", n, err)
	}
}

// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

import (
	"context"
	"errors"
	"os"
	"reflect"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
	"github.com/gpurdma/gpurdma/ibvfd/internal/verbsstub"
)

func (q *scriptCQ) Queue() (*libibverbs.CompletionQueue, error) {
	if err := q.failing("completion array"); err != nil {
		return nil, err
	}
	if q.channel == nil {
		return libibverbs.NewCompletionQueue(nil, verbsstub.FullPoll(), 64)
	}
	cq := verbsstub.NewCQ(0, 0, verbsstub.Completion{})
	q.add, q.free = cq.Add, cq.Free
	return libibverbs.NewCompletionQueue(cq.Ptr(), verbsstub.NumberedPoll(), 64)
}

func (q *scriptQP) Queues() (*libibverbs.SendQueue, *libibverbs.RecvQueue, error) {
	if err := q.failing("work request arrays"); err != nil {
		return nil, nil, err
	}
	send, err := libibverbs.NewSendQueue(nil, verbsstub.NoopSend(), 64, 2)
	if err != nil || q.init.SRQ != nil {
		return send, nil, err
	}
	recv, err := libibverbs.NewRecvQueue(nil, verbsstub.NoopRecv(), 64, 2)
	return send, recv, err
}

func (q *scriptSRQ) Queue() (*libibverbs.RecvQueue, error) {
	if err := q.failing("receive array"); err != nil {
		return nil, err
	}
	return libibverbs.NewRecvQueue(nil, verbsstub.NoopRecv(), 64, 2)
}

func newSendQueue(qp, post unsafe.Pointer, depth, sges int) (*sendQueue, error) {
	q, err := libibverbs.NewSendQueue(qp, post, depth, sges)
	return &sendQueue{SendQueue: q}, err
}

func newRecvQueue(qp, post unsafe.Pointer, depth, sges int) (*recvQueue, error) {
	q, err := libibverbs.NewRecvQueue(qp, post, depth, sges)
	return &recvQueue{q}, err
}

func newCompletionQueue(cq, poll unsafe.Pointer, depth int) (*completionQueue, error) {
	q, err := libibverbs.NewCompletionQueue(cq, poll, depth)
	return &completionQueue{q}, err
}

func newSend(t *testing.T, room, rc, depth, sges int) (*verbsstub.QP, *sendQueue) {
	t.Helper()
	qp := verbsstub.NewQP(room, rc)
	q, err := newSendQueue(qp.Ptr(), verbsstub.RecordSend(), depth, sges)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Free(); qp.Free() })
	return qp, q
}

// C sees each work request as it was given.
func TestPostSendEncoding(t *testing.T) {
	qp, q := newSend(t, 100, 0, 8, 2)
	in := []SendWR{
		{ID: 1 << 60, Op: OpWrite, Flags: SendSignaled | SendFence, SGE: []SGE{{0x1111222233334444, 5, 6}, {7, 8, 9}}, RemoteAddr: 0xaaaabbbbccccdddd, RKey: 0x12345678},
		{ID: 2, Op: OpFetchAdd, SGE: []SGE{{1, 8, 2}}, RemoteAddr: 64, RKey: 77, CompareAdd: 0xffffffff00000001},
		{ID: 3, Op: OpCompareSwap, SGE: []SGE{{1, 8, 2}}, RemoteAddr: 72, RKey: 78, CompareAdd: 5, Swap: 6},
		{ID: 4, Op: OpSendImm, Imm: 0x01020304, Flags: SendInline | SendSolicited},
	}
	n, bad, errno := q.post(in)
	if n != len(in) || bad != postOK || errno != 0 || qp.Calls() != 1 {
		t.Fatalf("posted %d in %d calls, %v, %v; want %d in one", n, qp.Calls(), bad, errno, len(in))
	}
	for i, s := range qp.Sent() {
		w := in[i]
		if s.ID != w.ID || Opcode(s.Op) != w.Op || SendFlags(s.Flags) != w.Flags || s.Imm != w.Imm || s.Rest || s.Addr != w.RemoteAddr || len(s.SGE) != len(w.SGE) {
			t.Errorf("work request %d arrived as %+v, was %+v", i, s, w)
		}
		for j, g := range s.SGE {
			if (SGE{g.Addr, g.Length, g.LKey}) != w.SGE[j] {
				t.Errorf("work request %d, SGE %d arrived as %+v, was %+v", i, j, g, w.SGE[j])
			}
		}
		switch w.Op {
		case OpFetchAdd, OpCompareSwap:
			if s.Compare != w.CompareAdd || s.Swap != w.Swap || s.AtomicRKey != w.RKey {
				t.Errorf("atomic %d arrived as %+v, was %+v", i, s, w)
			}
		default:
			if s.RKey != w.RKey {
				t.Errorf("work request %d: rkey %#x, want %#x", i, s.RKey, w.RKey)
			}
		}
	}
}

// The provider's bad_wr and our own refusals become the count of what was
// posted, across the array's end too.
func TestPostSendRefusals(t *testing.T) {
	many := func(n int) []SendWR {
		wrs := make([]SendWR, n)
		for i := range wrs {
			wrs[i] = SendWR{ID: uint64(i), Op: OpWrite}
		}
		return wrs
	}
	at := func(wrs []SendWR, i int, w SendWR) []SendWR { wrs[i] = w; return wrs }
	for _, c := range []struct {
		name      string
		room, rc  int
		depth     int
		wrs       []SendWR
		posted    int
		bad       postRefusal
		errno     unix.Errno
		crossings int
	}{
		{"none", 10, 0, 4, nil, 0, postOK, 0, 0},
		{"all, over the array's end", 100, 0, 4, many(10), 10, postOK, 0, 3},
		{"full", 6, int(unix.ENOMEM), 4, many(10), 6, postProvider, unix.ENOMEM, 2},
		{"full at once", 0, int(unix.EINVAL), 4, many(1), 0, postProvider, unix.EINVAL, 1},
		{"negative errno", 1, -int(unix.ENOMEM), 4, many(2), 1, postProvider, unix.ENOMEM, 1},
		{"too many SGEs", 100, 0, 4, at(many(6), 5, SendWR{SGE: make([]SGE, 3)}), 5, postTooMany, unix.EINVAL, 2},
		{"too many SGEs first", 100, 0, 4, at(many(6), 0, SendWR{SGE: make([]SGE, 3)}), 0, postTooMany, unix.EINVAL, 0},
		{"inline from a dma-buf", 100, 0, 4, at(many(6), 2, SendWR{Flags: SendInline, SGE: []SGE{{Addr: 1 << 30, Length: 8}, {Addr: 4096, Length: 8}}}), 2, postForeign, unix.EINVAL, 1},
		{"inline, and nothing of it", 100, 0, 4, at(many(1), 0, SendWR{Flags: SendInline, SGE: []SGE{{}}}), 1, postOK, 0, 1},
		{"an atomic on no word", 100, 0, 4, at(many(6), 3, SendWR{Op: OpFetchAdd, RemoteAddr: 4, SGE: []SGE{{1 << 20, 8, 1}}}), 3, postUnaligned, unix.EINVAL, 1},
		{"another", 100, 0, 4, at(many(1), 0, SendWR{Op: OpCompareSwap, RemoteAddr: 1<<40 + 1, SGE: []SGE{{1 << 20, 8, 1}}}), 0, postUnaligned, unix.EINVAL, 0},
		{"unknown opcode", 100, 0, 4, at(many(6), 2, SendWR{Op: 8}), 2, postOpcode, unix.EINVAL, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			qp, q := newSend(t, c.room, c.rc, c.depth, 2)
			n, bad, errno := q.post(c.wrs)
			if n != c.posted || bad != c.bad || errno != c.errno || qp.Calls() != c.crossings {
				t.Errorf("posted %d, %v, %v, %d crossings; want %d, %v, %v, %d", n, bad, errno, qp.Calls(), c.posted, c.bad, c.errno, c.crossings)
			}
			for i, s := range qp.Sent() {
				if s.ID != uint64(i) {
					t.Errorf("work request %d arrived as number %d", s.ID, i)
				}
			}
		})
	}
}

// Atomic writes and FLUSH go another way into the provider, in their place between
// the others; where there is no such way they are refused.
func TestPostOneByOne(t *testing.T) {
	var wrs []SendWR
	for i, op := range []Opcode{OpAtomicWrite, OpWrite, OpWrite, OpFlush, OpAtomicWrite, OpFetchAdd, OpFlush} {
		w := SendWR{ID: uint64(i), Op: op, Flags: SendSignaled, RemoteAddr: uint64(8 * i), RKey: uint32(100 + i), CompareAdd: 0x1122334455667700 + uint64(i)}
		if op == OpFlush {
			w.FlushLength, w.Placement = uint32(i), FlushGlobal
		}
		wrs = append(wrs, w)
	}
	for _, c := range []struct {
		room, depth, posted, crossings int
		errno                          unix.Errno
		bad                            postRefusal
	}{
		{100, 16, 7, 6, 0, postOK},
		{100, 4, 7, 6, 0, postOK}, // over the array's end
		{3, 16, 3, 3, unix.ENOMEM, postProvider},
		{4, 16, 4, 4, unix.ENOMEM, postProvider},
		{5, 16, 5, 5, unix.ENOMEM, postProvider},
		{0, 16, 0, 1, unix.ENOMEM, postProvider},
	} {
		qp, q := newSend(t, c.room, int(unix.ENOMEM), c.depth, 1)
		ex, free := qp.Extended()
		q.Extend(ex, true, true)
		n, bad, errno := q.post(wrs)
		free()
		if n != c.posted || bad != c.bad || errno != c.errno || qp.Calls() != c.crossings {
			t.Errorf("room %d: posted %d, %v, %v in %d calls; want %+v", c.room, n, bad, errno, qp.Calls(), c)
		}
		for i, s := range qp.Sent() {
			w := wrs[i]
			if s.ID != w.ID || s.Op != uint32(w.Op) || s.Flags != uint32(w.Flags) || s.Addr != w.RemoteAddr {
				t.Errorf("work request %d: %+v", i, s)
			}
			switch w.Op {
			case OpAtomicWrite:
				if s.Compare != w.CompareAdd || s.AtomicRKey != w.RKey {
					t.Errorf("atomic write %d: %+v", i, s)
				}
			case OpFlush:
				if s.Compare != uint64(w.FlushLength) || s.Swap != uint64(w.Placement) || s.AtomicRKey != w.RKey {
					t.Errorf("FLUSH %d: %+v", i, s)
				}
			}
		}
	}
	// A queue pair for one of them takes the other no more than one for neither.
	for _, c := range []struct {
		atomicWrite, flush bool
		first              int
		posted             int
		bad                postRefusal
	}{
		{false, false, 0, 0, postNoAtomic},
		{false, false, 1, 2, postNoFlush},
		{false, true, 1, 3, postNoAtomic},
		{true, false, 0, 3, postNoFlush},
	} {
		qp, q := newSend(t, 100, 0, 4, 1)
		free := func() {}
		if c.atomicWrite || c.flush {
			var ex unsafe.Pointer
			ex, free = qp.Extended()
			q.Extend(ex, c.atomicWrite, c.flush)
		}
		if n, bad, errno := q.post(wrs[c.first:]); n != c.posted || bad != c.bad || errno != unix.EINVAL || len(qp.Sent()) != c.posted {
			t.Errorf("%+v: %d posted, %v, %v", c, n, bad, errno)
		}
		free()
	}
}

// A FLUSH has a range, or none and takes the whole MR; what it cannot have is
// refused before anything of it is posted.
func TestPostFlush(t *testing.T) {
	qp, q := newSend(t, 100, 0, 4, 1)
	ex, free := qp.Extended()
	defer free()
	q.Extend(ex, true, true)
	const whole = 1 << 8 // IBV_FLUSH_MR
	good := []struct {
		length    uint32
		placement FlushPlacement
		swap      uint64
	}{
		{1, FlushGlobal, 1},
		{1<<32 - 1, FlushPersistent, 2},
		{1 << 31, FlushGlobal | FlushPersistent, 3},
		{0, FlushGlobal, whole | 1},
		{0, FlushGlobal | FlushPersistent, whole | 3},
	}
	var wrs []SendWR
	for i, c := range good {
		wrs = append(wrs, SendWR{
			ID: uint64(i), Op: OpFlush, Flags: SendFence, RemoteAddr: 1<<63 + uint64(i), RKey: 0xfffffff0 + uint32(i),
			FlushLength: c.length, Placement: c.placement,
			CompareAdd: 77, Swap: 78, // of others
		})
	}
	if n, bad, errno := q.post(wrs); n != len(wrs) || bad != postOK || errno != 0 {
		t.Fatal(n, bad, errno)
	}
	for i, s := range qp.Sent() {
		w := wrs[i]
		if s.ID != w.ID || s.Op != uint32(OpFlush) || s.Flags != uint32(SendFence) || s.Addr != w.RemoteAddr || s.AtomicRKey != w.RKey ||
			s.Compare != uint64(good[i].length) || s.Swap != good[i].swap || len(s.SGE) != 0 || s.Rest {
			t.Errorf("%+v arrived as %+v", w, s)
		}
	}
	for name, c := range map[string]struct {
		wr  SendWR
		bad postRefusal
	}{
		"an SGE":                   {SendWR{SGE: make([]SGE, 1), Placement: FlushGlobal}, postNoSGE},
		"an atomic write's SGE":    {SendWR{Op: OpAtomicWrite, SGE: make([]SGE, 1)}, postNoSGE},
		"an atomic write at 4":     {SendWR{Op: OpAtomicWrite, RemoteAddr: 1<<32 + 4}, postUnaligned},
		"no placement":             {SendWR{FlushLength: 8}, postNoPlacement},
		"an unknown placement":     {SendWR{Placement: 1 << 2}, postNoPlacement},
		"a known and another one":  {SendWR{Placement: FlushGlobal | 1<<7}, postNoPlacement},
		"no placement, but an SGE": {SendWR{SGE: make([]SGE, 1)}, postNoSGE},
	} {
		if c.wr.Op == 0 {
			c.wr.Op = OpFlush
		}
		before := len(qp.Sent())
		if n, bad, errno := q.post([]SendWR{{Op: OpWrite}, c.wr}); n != 1 || bad != c.bad || errno != unix.EINVAL || len(qp.Sent()) != before+1 {
			t.Errorf("%s: %d posted, %v, %v", name, n, bad, errno)
		}
	}
}

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

// What is destroyed by an error path, and what stays usable after one.
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

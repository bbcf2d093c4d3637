// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

import (
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

// A FLUSH has a range, or none and takes the whole MR; a field that it cannot have
// is refused before anything of it is posted.
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

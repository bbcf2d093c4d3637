// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Every opcode, between host memory and a dma-buf.
func TestVMOperations(t *testing.T) {
	pd := openPD(t)
	p := connect(t, pd, ibvfd.QPAttr{SendDepth: 8, RecvDepth: 8, SendSGE: 3, RecvSGE: 2, Inline: 64})
	host, hmr := hostMR(t, pd, 8192)
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) { operations(t, pd, p, host, hmr, x.Spec) })
}

func operations(t *testing.T, pd *ibvfd.PD, p *pair, host *hostmem.Buf, hmr *ibvfd.MR, spec string) {
	buf := alloc(t, spec, 1<<16, gpualloc.Options{})
	mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, buf), Length: 1 << 16, IOVA: 1 << 32, Access: allRemote, Owner: buf})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, mr)
	h := func(off, n int) ibvfd.SGE {
		return ibvfd.SGE{Addr: hmr.IOVA() + uint64(off), Length: uint32(n), LKey: hmr.LKey()}
	}
	d := func(off, n int) ibvfd.SGE {
		return ibvfd.SGE{Addr: mr.IOVA() + uint64(off), Length: uint32(n), LKey: mr.LKey()}
	}
	read := func(off int64, n int) []byte {
		t.Helper()
		b := make([]byte, n)
		if _, err := buf.ReadAt(b, off); err != nil {
			t.Fatal(err)
		}
		return b
	}
	ok := func(c ibvfd.WC, op ibvfd.WCOpcode) {
		t.Helper()
		if c.Err() != nil || c.Opcode != op || c.QPN != p.a.Num() {
			t.Fatalf("completion %+v, want success of opcode %d on QP %d", c, op, p.a.Num())
		}
	}
	fill(host.Bytes(), 5)

	// Gather: three pieces of host memory become one range.
	ok(p.do(t, ibvfd.SendWR{ID: 1, Op: ibvfd.OpWrite, SGE: []ibvfd.SGE{h(100, 10), h(3000, 20), h(0, 5)}, RemoteAddr: mr.IOVA() + 7, RKey: mr.RKey()}), ibvfd.WCOpWrite)
	want := append(append(bytes.Clone(host.Bytes()[100:110]), host.Bytes()[3000:3020]...), host.Bytes()[:5]...)
	if got := read(7, 35); !bytes.Equal(got, want) {
		t.Error("gathered WRITE: wrong bytes")
	}
	// Inline: the memory may change as soon as it is posted, and needs no key.
	ok(p.do(t, ibvfd.SendWR{ID: 2, Op: ibvfd.OpWrite, Flags: ibvfd.SendInline, SGE: []ibvfd.SGE{{Addr: hmr.IOVA(), Length: 64}}, RemoteAddr: mr.IOVA() + 4096, RKey: mr.RKey()}), ibvfd.WCOpWrite)
	if got := read(4096, 64); !bytes.Equal(got, host.Bytes()[:64]) {
		t.Error("inline WRITE: wrong bytes")
	}
	// Inline from the dma-buf would be from this process, which has memory there too.
	if n, err := p.a.PostSend([]ibvfd.SendWR{{Op: ibvfd.OpWrite, Flags: ibvfd.SendInline, SGE: []ibvfd.SGE{{Addr: hmr.IOVA(), Length: 64, LKey: mr.LKey()}}, RemoteAddr: hmr.IOVA() + 512, RKey: hmr.RKey()}}); n != 0 || !errors.Is(err, unix.EINVAL) {
		t.Errorf("inline from a dma-buf: posted %d, %v", n, err)
	}
	// An atomic operation at no multiple of 8 is refused where it is posted.
	if n, err := p.a.PostSend([]ibvfd.SendWR{{Op: ibvfd.OpFetchAdd, SGE: []ibvfd.SGE{h(8, 8)}, RemoteAddr: mr.IOVA() + 4, RKey: mr.RKey(), CompareAdd: 2}}); n != 0 || !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "no multiple of 8") {
		t.Errorf("an atomic at no multiple of 8: posted %d, %v", n, err)
	}
	// The dma-buf as local end.
	ok(p.do(t, ibvfd.SendWR{ID: 3, Op: ibvfd.OpWrite, SGE: []ibvfd.SGE{d(4096, 64)}, RemoteAddr: hmr.IOVA() + 512, RKey: hmr.RKey()}), ibvfd.WCOpWrite)
	if !bytes.Equal(host.Bytes()[512:576], host.Bytes()[:64]) {
		t.Error("WRITE out of the dma-buf: wrong bytes")
	}
	// Atomics on the dma-buf.
	if _, err := buf.WriteAt(binary.NativeEndian.AppendUint64(nil, 40), 8192); err != nil {
		t.Fatal(err)
	}
	ok(p.do(t, ibvfd.SendWR{ID: 4, Op: ibvfd.OpFetchAdd, SGE: []ibvfd.SGE{h(8, 8)}, RemoteAddr: mr.IOVA() + 8192, RKey: mr.RKey(), CompareAdd: 2}), ibvfd.WCOpFetchAdd)
	ok(p.do(t, ibvfd.SendWR{ID: 5, Op: ibvfd.OpCompareSwap, SGE: []ibvfd.SGE{h(16, 8)}, RemoteAddr: mr.IOVA() + 8192, RKey: mr.RKey(), CompareAdd: 42, Swap: 1 << 40}), ibvfd.WCOpCompareSwap)
	if old, mid, now := binary.NativeEndian.Uint64(host.Bytes()[8:]), binary.NativeEndian.Uint64(host.Bytes()[16:]), binary.NativeEndian.Uint64(read(8192, 8)); old != 40 || mid != 42 || now != 1<<40 {
		t.Errorf("atomics: fetched %d and %d, left %d; want 40, 42, 1<<40", old, mid, now)
	}
	// SEND with immediate into the dma-buf, scattered, and WRITE with immediate.
	recv := []ibvfd.RecvWR{{ID: 100, SGE: []ibvfd.SGE{d(16384, 10), d(20000, 54)}}, {ID: 101}}
	if n, err := p.b.PostRecv(recv); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	ok(p.do(t, ibvfd.SendWR{ID: 6, Op: ibvfd.OpSendImm, Imm: 0xcafe0001, SGE: []ibvfd.SGE{h(1024, 64)}}), ibvfd.WCOpSend)
	got := append(read(16384, 10), read(20000, 54)...)
	if !bytes.Equal(got, host.Bytes()[1024:1088]) {
		t.Error("SEND: wrong bytes")
	}
	ok(p.do(t, ibvfd.SendWR{ID: 7, Op: ibvfd.OpWriteImm, Imm: 0xcafe0002, SGE: []ibvfd.SGE{h(0, 1)}, RemoteAddr: mr.IOVA(), RKey: mr.RKey()}), ibvfd.WCOpWrite)
}

// The receiving end's completions carry length and immediate data.
func TestVMReceiveCompletions(t *testing.T) {
	pd := openPD(t)
	p := connect(t, pd, ibvfd.QPAttr{RecvDepth: 2})
	_, hmr := hostMR(t, pd, 4096)
	if n, err := p.b.PostRecv([]ibvfd.RecvWR{{ID: 100, SGE: []ibvfd.SGE{{Addr: hmr.IOVA() + 2048, Length: 1000, LKey: hmr.LKey()}}}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := p.a.PostSend([]ibvfd.SendWR{{ID: 1, Op: ibvfd.OpSendImm, Imm: 0x01020304, SGE: []ibvfd.SGE{{Addr: hmr.IOVA(), Length: 77, LKey: hmr.LKey()}}}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	n, err := p.cq.PollUntil(ctx, p.wc)
	if err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if c := p.wc[0]; c.ID != 100 || c.Err() != nil || c.Opcode != ibvfd.WCOpRecv || c.ByteLen != 77 || c.Flags&ibvfd.WCWithImm == 0 || c.Imm != 0x01020304 || c.QPN != p.b.Num() {
		t.Errorf("%+v", c)
	}
}

// Wrong key, out of bounds, access denied: remote access error, nothing moved,
// and the pair can be connected again.
func TestVMAccessErrors(t *testing.T) {
	pd := openPD(t)
	host, hmr := hostMR(t, pd, 4096)
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) { accessErrors(t, pd, host, hmr, x.Spec) })
}

func accessErrors(t *testing.T, pd *ibvfd.PD, host *hostmem.Buf, hmr *ibvfd.MR, spec string) {
	buf := alloc(t, spec, 1<<16, gpualloc.Options{})
	reg := func(off, n uint64, a ibvfd.Access) *ibvfd.MR {
		t.Helper()
		mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, buf), Offset: off, Length: n, IOVA: off, Access: a, Owner: buf})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closed(t, mr) })
		return mr
	}
	middle := reg(8192, 4096, allRemote)
	readOnly := reg(8192, 4096, ibvfd.AccessRemoteRead)
	writeOnly := reg(8192, 4096, ibvfd.AccessLocalWrite|ibvfd.AccessRemoteWrite)
	stale := reg(8192, 4096, allRemote)
	closed(t, stale)
	fill(host.Bytes(), 6)
	p := connect(t, pd, ibvfd.QPAttr{})
	for _, c := range []struct {
		name string
		op   ibvfd.Opcode
		addr uint64
		rkey uint32
	}{
		{"wrong rkey", ibvfd.OpWrite, 8192, middle.RKey() ^ 0xff},
		{"stale rkey", ibvfd.OpWrite, 8192, stale.RKey()},
		{"one byte past the end", ibvfd.OpWrite, 8193, middle.RKey()},
		{"one byte before the start", ibvfd.OpRead, 8191, middle.RKey()},
		{"far away", ibvfd.OpRead, 1 << 50, middle.RKey()},
		{"write to read-only", ibvfd.OpWrite, 8192, readOnly.RKey()},
		{"read of write-only", ibvfd.OpRead, 8192, writeOnly.RKey()},
	} {
		w := p.do(t, ibvfd.SendWR{ID: 3, Op: c.op, SGE: []ibvfd.SGE{{Addr: hmr.IOVA(), Length: 4096, LKey: hmr.LKey()}}, RemoteAddr: c.addr, RKey: c.rkey})
		if w.Status != ibvfd.WCRemAccessErr {
			t.Errorf("%s: %v, want remote access error", c.name, w.Status)
		}
		if !errors.Is(w.Err(), &ibvfd.WCError{Status: ibvfd.WCRemAccessErr}) {
			t.Errorf("%s: Err() = %v", c.name, w.Err())
		}
		// rxe tells of the failure, and takes the queue pair to the error state then.
		var s ibvfd.QPState
		var err error
		eventually(t, func() bool {
			s, err = p.a.State()
			return err != nil || s == ibvfd.StateErr
		})
		if err != nil || s != ibvfd.StateErr {
			t.Errorf("%s: state %v, %v, want ERR", c.name, s, err)
		}
		if err := p.reconnect(); err != nil {
			t.Fatal(err)
		}
	}
	all := make([]byte, 1<<16)
	if _, err := buf.ReadAt(all, 0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(all, make([]byte, 1<<16)) {
		t.Error("a refused WRITE changed the buffer")
	}
	if c := p.move(t, ibvfd.OpWrite, hmr, middle, 0, 4096); c.Err() != nil {
		t.Errorf("after recovery: %v", c.Err())
	}
}

// A full queue refuses the rest of a batch, and says which.
func TestVMBatches(t *testing.T) {
	pd := openPD(t)
	p := connect(t, pd, ibvfd.QPAttr{SendDepth: 32})
	_, hmr := hostMR(t, pd, 4096)
	depth := p.a.Attr().SendDepth
	wrs := make([]ibvfd.SendWR, depth+40)
	for i := range wrs {
		wrs[i] = ibvfd.SendWR{
			ID: uint64(i), Op: ibvfd.OpWrite, Flags: ibvfd.SendSignaled, RemoteAddr: hmr.IOVA() + 64, RKey: hmr.RKey(),
			SGE: []ibvfd.SGE{{Addr: hmr.IOVA(), Length: 8, LKey: hmr.LKey()}},
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	next, done := 0, 0
	for done < len(wrs) {
		n, err := p.a.PostSend(wrs[next:])
		next += n
		if err != nil && next == len(wrs) || err == nil && next < len(wrs) {
			t.Fatalf("posted %d of %d with error %v", next, len(wrs), err)
		}
		got, err := p.cq.PollUntil(ctx, p.wc)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.wc[:got] {
			if c.Err() != nil || c.ID != uint64(done) {
				t.Fatalf("completion %d: %+v", done, c)
			}
			done++
		}
	}
	bad := []ibvfd.SendWR{wrs[0], {Op: ibvfd.OpWrite, SGE: make([]ibvfd.SGE, p.a.Attr().SendSGE+1)}}
	if n, err := p.a.PostSend(bad); n != 1 || err == nil {
		t.Errorf("too many SGEs: posted %d, %v; want 1 and an error", n, err)
	}
	if n, err := p.a.PostSend([]ibvfd.SendWR{{Op: 99}}); n != 0 || err == nil {
		t.Errorf("unknown opcode: posted %d, %v", n, err)
	}
}

// The link going down under traffic must end in an error completion, not in a
// hang, and the queue pairs connect again once it is back.
func TestVMLinkDown(t *testing.T) {
	pd := openPD(t)
	_, hmr := hostMR(t, pd, 1<<20)
	buf := alloc(t, exporter, 1<<20, gpualloc.Options{})
	mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, buf), Length: 1 << 20, Access: allRemote, Owner: buf})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, mr)
	p := connect(t, pd, ibvfd.QPAttr{SendDepth: 16})
	wrs := make([]ibvfd.SendWR, 8)
	for i := range wrs {
		wrs[i] = ibvfd.SendWR{
			ID: 1, Op: ibvfd.OpWrite, Flags: ibvfd.SendSignaled, RemoteAddr: mr.IOVA(), RKey: mr.RKey(),
			SGE: []ibvfd.SGE{{Addr: hmr.IOVA(), Length: 1 << 20, LKey: hmr.LKey()}},
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	if n, err := p.a.PostSend(wrs); err != nil {
		t.Fatal(n, err)
	}
	up := testenv.LinkDown(t)
	failed := false
	for left := len(wrs); left > 0 && !failed; {
		n, err := p.cq.PollUntil(ctx, p.wc)
		if err != nil {
			t.Fatalf("no error completion with the link down: %v", err)
		}
		for _, c := range p.wc[:n] {
			left--
			if c.Status != ibvfd.WCSuccess {
				t.Logf("%v after %d of %d", c.Status, len(wrs)-left-1, len(wrs))
				failed = true
				break
			}
		}
	}
	// If all of them were faster than the link, the next one cannot be.
	if !failed {
		if c := p.do(t, wrs[0]); c.Status == ibvfd.WCSuccess {
			t.Error("a WRITE succeeded over a link that is down")
		}
	}
	up()
	if err := p.reconnect(); err != nil {
		t.Fatal(err)
	}
	wrs[0].ID = 2
	if c := p.do(t, wrs[0]); c.Err() != nil {
		t.Errorf("with the link up again: %v", c.Err())
	}
}

// Many goroutines register, transfer and close on one context.
func TestVMConcurrent(t *testing.T) {
	pd := openPD(t)
	const workers, size = 32, 1 << 16
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		buf := alloc(t, x.Spec, workers*size, gpualloc.Options{})
		shared := segment(t, buf)
		rounds := 1
		if x.Repeated(t) {
			rounds = 4
		}
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				off := uint64(w * size)
				host, hmr := hostMR(t, pd, size)
				fill(host.Bytes(), uint64(w))
				p, err := newPair(pd)
				if err != nil {
					t.Error(err)
					return
				}
				defer closed(t, p.cq)
				defer closed(t, p.b)
				defer closed(t, p.a)
				for round := range rounds {
					mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: shared, Offset: off, Length: size, IOVA: off, Access: allRemote, Owner: buf})
					if err != nil {
						t.Error(err)
						return
					}
					if err := p.write(t.Context(), hmr, mr, size); err != nil {
						t.Errorf("worker %d: %v", w, err)
					}
					if err := pd.Close(); !errors.Is(err, failure.ErrInUse) { // must not take anything away from the others
						t.Errorf("worker %d: closing the PD in use: %v", w, err)
					}
					var race sync.WaitGroup
					race.Go(func() { _ = mr.ID() })
					race.Go(func() { closed(t, mr) })
					race.Go(func() { closed(t, mr) })
					if round == rounds-1 {
						race.Go(func() { closed(t, p.a) })
						race.Go(func() { _, _ = p.a.PostSend(make([]ibvfd.SendWR, 1)) })
						race.Go(func() { _, _ = p.a.State() })
						race.Go(func() { _, _ = p.cq.Poll(p.wc[:1]) })
					}
					race.Wait()
				}
				got := make([]byte, size)
				if _, err := buf.ReadAt(got, int64(off)); err != nil {
					t.Error(err)
				} else if !bytes.Equal(got, host.Bytes()) {
					t.Errorf("worker %d: wrong bytes", w)
				}
			})
		}
		wg.Wait()
	})
}

func newPair(pd *ibvfd.PD) (*pair, error) {
	cq, err := pd.Context().CreateCQ(16)
	if err != nil {
		return nil, err
	}
	a, b, err := ibvfd.LoopbackPair(pd, cq, ibvfd.QPAttr{Type: ibvfd.RC})
	if err != nil {
		return nil, errors.Join(err, cq.Close())
	}
	p := &pair{cq: cq, a: a, b: b, wc: make([]ibvfd.WC, 16)}
	if err := p.reconnect(); err != nil {
		return nil, errors.Join(err, a.Close(), b.Close(), cq.Close())
	}
	return p, nil
}

func (p *pair) write(ctx context.Context, host, mr *ibvfd.MR, n int) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	_, err := p.a.PostSend([]ibvfd.SendWR{{
		ID: 1, Op: ibvfd.OpWrite, Flags: ibvfd.SendSignaled, RemoteAddr: mr.IOVA(), RKey: mr.RKey(),
		SGE: []ibvfd.SGE{{Addr: host.IOVA(), Length: uint32(n), LKey: host.LKey()}},
	}})
	if err != nil {
		return err
	}
	if _, err := p.cq.PollUntil(ctx, p.wc); err != nil {
		return err
	}
	return p.wc[0].Err()
}

// Memory that an MR uses cannot be freed.
func TestVMHostMemoryIsHeld(t *testing.T) {
	pd := openPD(t)
	mem, err := hostmem.Alloc(os.Getpagesize() + 1)
	if err != nil {
		t.Fatal(err)
	}
	mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.HostMemory, Host: mem.Bytes(), Offset: 1, Length: 100, Access: allRemote, Owner: mem})
	if err != nil {
		t.Fatal(err)
	}
	if mr.IOVA() != mem.Addr()+1 {
		t.Errorf("IOVA %#x, want the address %#x", mr.IOVA(), mem.Addr()+1)
	}
	if err := mem.Close(); !errors.Is(err, failure.ErrInUse) {
		t.Errorf("Close under an MR: %v, want ErrInUse", err)
	}
	closed(t, mr)
	closed(t, mem)
	_, err = pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.HostMemory, Host: make([]byte, 1), Length: 1, Owner: mem})
	if !errors.Is(err, os.ErrClosed) {
		t.Errorf("RegMR with a closed owner: %v, want ErrClosed", err)
	}
}

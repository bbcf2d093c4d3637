// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/ibvfd/region"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

const (
	localWrite  = ibvfd.AccessLocalWrite
	remoteWrite = ibvfd.AccessLocalWrite | ibvfd.AccessRemoteWrite
)

// keepsKeys: rxe changes PD and access in place since Linux 6.5.
func keepsKeys(t testing.TB) bool { return testenv.AtLeast(t, "6.5") }

// dmabufKeepsKeys: ib_umem_check_rereg() refuses dma-bufs from Linux 7.3 on, for all
// drivers.
func dmabufKeepsKeys(t testing.TB) bool { return keepsKeys(t) && !testenv.AtLeast(t, "7.3") }

// write tries a WRITE of n bytes to the MR's start, and repairs the pair after
// a refusal.
func (p *pair) write1(t testing.TB, from, to *ibvfd.MR, n int) ibvfd.WCStatus {
	t.Helper()
	s := to.State()
	w := p.do(t, ibvfd.SendWR{
		ID: 9, Op: ibvfd.OpWrite, SGE: []ibvfd.SGE{{Addr: from.IOVA(), Length: uint32(n), LKey: from.LKey()}},
		RemoteAddr: s.IOVA, RKey: s.RKey,
	})
	if w.Err() != nil {
		if err := p.reconnect(); err != nil {
			t.Fatal(err)
		}
	}
	return w.Status
}

// rereg changes mr and holds State against what is expected of the keys.
func rereg(t testing.TB, mr *ibvfd.MR, attr ibvfd.ReregAttr, sameKeys bool) {
	t.Helper()
	before, count := mr.State(), len(netlinkMRs(t))
	if err := mr.Rereg(attr); err != nil {
		t.Fatal(err)
	}
	after := mr.State()
	if same := after.LKey == before.LKey && after.RKey == before.RKey; same != sameKeys {
		t.Errorf("%+v became %+v; keys stay: %v, want %v", before, after, same, sameKeys)
	}
	if n := len(netlinkMRs(t)); n != count {
		t.Errorf("%d MRs in the kernel, were %d", n, count)
	}
	for _, m := range netlinkMRs(t) {
		if m.LKey == after.LKey && m.Length != after.Length {
			t.Errorf("the kernel has %+v, we %+v", m, after)
		}
	}
}

// contents is all that a buffer holds.
func contents(t testing.TB, buf *gpualloc.Buffer) []byte {
	t.Helper()
	all := make([]byte, buf.Size())
	if _, err := buf.ReadAt(all, 0); err != nil {
		t.Fatal(err)
	}
	return all
}

// goesTo WRITEs to an MR's start, and READs from there what the buffer has been given
// meanwhile: both are of buf, from off on, and old, where the MR was before, has no
// part in it.
func (p *pair) goesTo(t testing.TB, mr *ibvfd.MR, buf *gpualloc.Buffer, off int, old *gpualloc.Buffer, seed uint64) {
	t.Helper()
	const n = 6000 // more than a page, and no multiple of anything
	host, hmr := hostMR(t, mr.PD(), n)
	defer closed(t, host)
	defer closed(t, hmr)
	fill(host.Bytes(), seed)
	want, wantOld := contents(t, buf), contents(t, old)
	copy(want[off:], host.Bytes())
	if w := p.move(t, ibvfd.OpWrite, hmr, mr, 0, n); w.Err() != nil {
		t.Fatalf("WRITE: %v", w.Err())
	}
	if !bytes.Equal(contents(t, buf), want) {
		t.Errorf("the buffer from %d on does not hold what was written, or more", off)
	}
	if !bytes.Equal(contents(t, old), wantOld) {
		t.Error("a WRITE has changed the old buffer")
	}
	theirs := make([]byte, n)
	for i, x := range []*gpualloc.Buffer{old, buf} { // other bytes in each
		fill(theirs, seed+1+uint64(i))
		if _, err := x.WriteAt(theirs, int64(off)); err != nil {
			t.Fatal(err)
		}
	}
	clear(host.Bytes())
	if w := p.move(t, ibvfd.OpRead, hmr, mr, 0, n); w.Err() != nil {
		t.Fatalf("READ: %v", w.Err())
	}
	if !bytes.Equal(host.Bytes(), theirs) {
		t.Error("what was read is not what the buffer holds")
	}
}

// Host memory: access, PD, and other memory.
func TestVMReregHost(t *testing.T) {
	pd := openPD(t)
	p := connect(t, pd, ibvfd.QPAttr{})
	src, smr := hostMR(t, pd, 4096)
	fill(src.Bytes(), 1)
	mem, err := hostmem.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, mem)
	mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.HostMemory, Host: mem.Bytes(), Length: 4096, Access: localWrite, Owner: mem})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, mr)
	expect := func(p *pair, want ibvfd.WCStatus, what string) {
		t.Helper()
		if got := p.write1(t, smr, mr, 4096); got != want {
			t.Fatalf("%s: %v, want %v", what, got, want)
		}
	}
	expect(p, ibvfd.WCRemAccessErr, "before")

	change := ibvfd.ReregAttr{Change: ibvfd.ReregAccess, MRAttr: ibvfd.MRAttr{Access: remoteWrite}}
	rereg(t, mr, change, keepsKeys(t))
	expect(p, ibvfd.WCSuccess, "with remote write")
	if !bytes.Equal(mem.Bytes(), src.Bytes()) {
		t.Error("the bytes did not arrive")
	}
	change.Access = localWrite
	rereg(t, mr, change, keepsKeys(t))
	expect(p, ibvfd.WCRemAccessErr, "without remote write again")
	change.Access = remoteWrite
	change.InPlace = ibvfd.InPlaceNever
	old := mr.State()
	rereg(t, mr, change, false)
	if w := p.do(t, ibvfd.SendWR{ID: 1, Op: ibvfd.OpWrite, SGE: []ibvfd.SGE{{Addr: smr.IOVA(), Length: 8, LKey: smr.LKey()}}, RemoteAddr: old.IOVA, RKey: old.RKey}); w.Status != ibvfd.WCRemAccessErr {
		t.Errorf("the old key: %v", w.Status)
	}
	if err := p.reconnect(); err != nil {
		t.Fatal(err)
	}
	expect(p, ibvfd.WCSuccess, "under the new key")

	// The PD: queue pairs of the other one reach it, those of the old do not.
	pd2, err := pd.Context().AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, pd2) })
	rereg(t, mr, ibvfd.ReregAttr{Change: ibvfd.ReregPD, PD: pd2}, keepsKeys(t))
	expect(p, ibvfd.WCRemAccessErr, "from the old PD")
	if err := pd2.Close(); !errors.Is(err, failure.ErrInUse) {
		t.Errorf("closing the new PD: %v, want ErrInUse", err)
	}
	p2 := connectOne(t, pd2, ibvfd.QPAttr{})
	_, smr2 := hostMR(t, pd2, 4096)
	if got := p2.write1(t, smr2, mr, 4096); got != ibvfd.WCSuccess {
		t.Errorf("from the new PD: %v", got)
	}
	rereg(t, mr, ibvfd.ReregAttr{Change: ibvfd.ReregPD, PD: pd}, keepsKeys(t))

	// Other memory, under new keys; the old one is let go of.
	mem2, err := hostmem.Alloc(8192)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, mem2)
	rereg(t, mr, ibvfd.ReregAttr{Change: ibvfd.ReregMemory, MRAttr: ibvfd.MRAttr{Kind: ibvfd.HostMemory, Host: mem2.Bytes(), Offset: 100, Length: 5000, Owner: mem2}}, false)
	closed(t, mem)
	expect(p, ibvfd.WCSuccess, "to the other memory")
	if !bytes.Equal(mem2.Bytes()[100:4196], src.Bytes()) || mem2.Bytes()[99] != 0 || mem2.Bytes()[4196] != 0 {
		t.Error("the other memory does not hold what was written, or more")
	}

	// Host memory becomes a dma-buf: the handle is the same.
	buf := alloc(t, exporter, 1<<16, gpualloc.Options{})
	rereg(t, mr, ibvfd.ReregAttr{Change: ibvfd.ReregMemory, MRAttr: ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, buf), Length: 1 << 16, Owner: buf}}, false)
	expect(p, ibvfd.WCSuccess, "to a dma-buf")
	got := make([]byte, 4096)
	if _, err := buf.ReadAt(got, 0); err != nil || !bytes.Equal(got, src.Bytes()) {
		t.Errorf("the dma-buf does not hold what was written: %v", err)
	}
}

// dma-bufs: descriptor, range, access and PD, together and each by itself.
func TestVMReregDMABuf(t *testing.T) {
	pd := openPD(t)
	p := connect(t, pd, ibvfd.QPAttr{})
	src, smr := hostMR(t, pd, 4096)
	fill(src.Bytes(), 2)
	page := uint64(os.Getpagesize())
	pd2, err := pd.Context().AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, pd2) })
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		one, two := alloc(t, x.Spec, 1<<18, gpualloc.Options{}), alloc(t, x.Spec, 1<<18, gpualloc.Options{})
		reg := func() ibvfd.MRAttr {
			return ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, one), Length: 1 << 16, IOVA: 1 << 40, Access: localWrite, Owner: one}
		}
		mr, err := pd.RegMR(reg())
		if err != nil {
			t.Fatal(err)
		}
		defer closed(t, mr)
		expect := func(want ibvfd.WCStatus, what string) {
			t.Helper()
			if got := p.write1(t, smr, mr, 4096); got != want {
				t.Fatalf("%s: %v, want %v", what, got, want)
			}
		}
		holds := func(buf *gpualloc.Buffer, off uint64, what string) {
			t.Helper()
			got := make([]byte, 4098)
			if _, err := buf.ReadAt(got, int64(off)-1); err != nil {
				t.Fatal(err)
			}
			if got[0] != 0 || !bytes.Equal(got[1:4097], src.Bytes()) || got[4097] != 0 {
				t.Fatalf("%s: the buffer does not hold what was written, or more", what)
			}
		}
		expect(ibvfd.WCRemAccessErr, "before")
		rereg(t, mr, ibvfd.ReregAttr{Change: ibvfd.ReregAccess, MRAttr: ibvfd.MRAttr{Access: remoteWrite}}, dmabufKeepsKeys(t))
		expect(ibvfd.WCSuccess, "with remote write")
		rereg(t, mr, ibvfd.ReregAttr{Change: ibvfd.ReregPD, PD: pd2}, dmabufKeepsKeys(t))
		expect(ibvfd.WCRemAccessErr, "from the old PD")
		rereg(t, mr, ibvfd.ReregAttr{Change: ibvfd.ReregPD | ibvfd.ReregAccess, PD: pd, MRAttr: ibvfd.MRAttr{Access: allRemote}}, dmabufKeepsKeys(t))
		expect(ibvfd.WCSuccess, "back in its PD")

		// The range, unaligned, at another address.
		next := reg()
		next.Offset, next.Length, next.IOVA = 3*page+5, 9000, 1<<41+page+5
		rereg(t, mr, ibvfd.ReregAttr{Change: ibvfd.ReregMemory, MRAttr: next}, false)
		if s := mr.State(); s.Access != allRemote || s.Length != 9000 || s.IOVA != next.IOVA || s.PD != pd {
			t.Errorf("%+v", s)
		}
		expect(ibvfd.WCSuccess, "in the other range")
		holds(one, 3*page+5, "the other range")

		// Another buffer, and the first one again, where the MR was once.
		for i, bufs := range [][2]*gpualloc.Buffer{{two, one}, {one, two}} {
			next := reg()
			next.Buf, next.Owner, next.Offset, next.IOVA = segment(t, bufs[0]), bufs[0], 2*page+9, 1<<42+9
			rereg(t, mr, ibvfd.ReregAttr{Change: ibvfd.ReregMemory, MRAttr: next}, false)
			p.goesTo(t, mr, bufs[0], int(next.Offset), bufs[1], 10*uint64(i+1))
		}

		// The descriptor, by number, of another buffer.
		err = segment(t, two).Do(func(fd int) error {
			rereg(t, mr, ibvfd.ReregAttr{Change: ibvfd.ReregMemory, MRAttr: ibvfd.MRAttr{Kind: ibvfd.DMABufFD, FD: fd, Offset: page, Length: 1 << 16, Owner: two}}, false)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		expect(ibvfd.WCSuccess, "in the other buffer")
		holds(two, page, "the other buffer")

		// It is not at hand for new keys, and the refusal changes nothing.
		before := mr.State()
		err = mr.Rereg(ibvfd.ReregAttr{Change: ibvfd.ReregAccess, InPlace: ibvfd.InPlaceNever})
		if e := asRegError(t, err); !e.Rereg || !errors.Is(err, os.ErrClosed) || mr.State() != before {
			t.Errorf("without the buffer: %v, %+v", err, mr.State())
		}
		for _, bad := range []ibvfd.ReregAttr{
			{Change: ibvfd.ReregMemory, MRAttr: ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, one), Offset: 1 << 18, Length: 1}},
			{Change: ibvfd.ReregMemory, MRAttr: ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, one), Offset: 1 << 18, Length: 1, SkipChecks: true}},
			{Change: ibvfd.ReregMemory, MRAttr: ibvfd.MRAttr{Kind: ibvfd.DMABufFD, FD: -1, Length: 1}},
			{Change: ibvfd.ReregAccess, MRAttr: ibvfd.MRAttr{Access: ibvfd.AccessRemoteWrite}},
			{Change: ibvfd.ReregAccess, MRAttr: ibvfd.MRAttr{Access: ibvfd.AccessMWBind}},
			{Change: ibvfd.ReregMemory, InPlace: ibvfd.InPlaceOnly, MRAttr: reg()},
		} {
			if err := mr.Rereg(bad); err == nil || mr.State() != before {
				t.Errorf("%+v: %v, %+v", bad, err, mr.State())
			}
		}
		expect(ibvfd.WCSuccess, "after the refusals")

		// In place or not at all.
		err = mr.Rereg(ibvfd.ReregAttr{Change: ibvfd.ReregAccess, MRAttr: ibvfd.MRAttr{Access: ibvfd.AccessRemoteRead}, InPlace: ibvfd.InPlaceOnly})
		if dmabufKeepsKeys(t) != (err == nil) || err != nil && !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("in place only: %v", err)
		}
	})
}

// A region in two PDs: all of it changes, or nothing does.
func TestVMReregRegion(t *testing.T) {
	pd := openPD(t)
	pd2, err := pd.Context().AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, pd2) })
	_, smr := hostMR(t, pd, 4096)
	p, p2 := connect(t, pd, ibvfd.QPAttr{}), connect(t, pd2, ibvfd.QPAttr{})
	one, two := alloc(t, exporter, 1<<16, gpualloc.Options{}), alloc(t, exporter, 1<<16, gpualloc.Options{})
	attr := func(buf *gpualloc.Buffer) region.Attr {
		half := uint64(1 << 15)
		return region.Attr{
			Segments: []region.Segment{{Buf: segment(t, buf), Length: half}, {Buf: segment(t, buf), Offset: half, Length: half}},
			Length:   1 << 16, Access: allRemote, Owner: buf,
		}
	}
	r, err := region.Register(attr(one), pd, pd2)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, r)
	count := len(netlinkMRs(t))
	old := r.MRs(pd)[1]
	if err := r.Rereg(attr(two)); err != nil {
		t.Fatal(err)
	}
	if n := len(netlinkMRs(t)); n != count {
		t.Errorf("%d MRs in the kernel, were %d", n, count)
	}
	now := r.MRs(pd)[1]
	if now == old || len(r.MRs(pd2)) != 2 {
		t.Errorf("%v, %v", r.MRs(pd), r.MRs(pd2))
	}
	for i, half := range []int{0, 1 << 15} {
		for j, end := range []struct {
			p  *pair
			pd *ibvfd.PD
		}{{p, pd}, {p2, pd2}} {
			end.p.goesTo(t, r.MRs(end.pd)[i], two, half, one, uint64(100+20*i+10*j))
		}
	}
	closed(t, one) // nothing holds it any more

	// One PD refuses: nothing changes.
	gone, err := pd.Context().AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	closed(t, gone)
	if err := r.Rereg(attr(two), pd, pd2, gone); !errors.Is(err, os.ErrClosed) {
		t.Errorf("with a closed PD: %v", err)
	}
	if n := len(netlinkMRs(t)); n != count || r.MRs(pd)[1] != now {
		t.Errorf("%d MRs in the kernel, were %d; %v", n, count, r.MRs(pd))
	}

	// In one PD only, with the old MRs kept for a while.
	keep := attr(two)
	keep.KeepOld = true
	if err := r.Rereg(keep, pd); err != nil {
		t.Fatal(err)
	}
	if r.MRs(pd2) != nil {
		t.Errorf("still in the other PD: %v", r.MRs(pd2))
	}
	if got := p.write1(t, smr, now, 4096); got != ibvfd.WCSuccess {
		t.Errorf("the old key: %v", got)
	}
	for range 2 {
		if err := r.DropOld(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(netlinkMRs(t)); n != count-2 {
		t.Errorf("%d MRs in the kernel, want %d", n, count-2)
	}
	closed(t, r)
	if err := r.Rereg(attr(two)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

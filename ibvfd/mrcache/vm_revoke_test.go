// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package mrcache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/mrcache"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// pair writes from host memory, over a loopback pair.
type pair struct {
	cq   *ibvfd.CQ
	a, b *ibvfd.QP
	mem  *ibvfd.HostBuf
	mr   *ibvfd.MR
}

func newPair(t *testing.T, pd *ibvfd.PD, size int) *pair {
	t.Helper()
	p := &pair{}
	var err error
	if p.cq, err = pd.Context().CreateCQ(16); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, p.cq) })
	if p.a, p.b, err = ibvfd.LoopbackPair(pd, p.cq, ibvfd.QPAttr{Type: ibvfd.RC}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, p.a); closed(t, p.b) })
	if p.mem, err = ibvfd.AllocHost(size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, p.mem) })
	p.mr, err = pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.HostMemory, Host: p.mem.Bytes(), Length: uint64(size), Access: ibvfd.AccessLocalWrite | ibvfd.AccessRemoteWrite, Owner: p.mem})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, p.mr) })
	return p
}

// do carries out one operation on a fresh connection.
func (p *pair) do(t *testing.T, wr ibvfd.SendWR) error {
	t.Helper()
	patient := ibvfd.ConnectAttr{Timeout: 20, RetryCount: 3}
	if err := errors.Join(p.a.Connect(p.b.Local(), patient), p.b.Connect(p.a.Local(), patient)); err != nil {
		t.Fatal(err)
	}
	wr.Op, wr.Flags = ibvfd.OpWrite, ibvfd.SendSignaled
	if n, err := p.a.PostSend([]ibvfd.SendWR{wr}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit(time.Minute))
	defer cancel()
	var wc [1]ibvfd.WC
	if _, err := p.cq.PollUntil(ctx, wc[:]); err != nil {
		t.Fatal(err)
	}
	return wc[0].Err()
}

// into writes to a region, as a peer that has its key.
func (p *pair) into(t *testing.T, ref mrcache.Ref, key uint32, n int) error {
	t.Helper()
	return p.do(t, ibvfd.SendWR{
		SGE:        []ibvfd.SGE{{Addr: p.mr.IOVA(), Length: uint32(n), LKey: p.mr.LKey()}},
		RemoteAddr: ref.Addr(), RKey: key,
	})
}

// from writes from it.
func (p *pair) from(t *testing.T, ref mrcache.Ref, n int) error {
	t.Helper()
	return p.do(t, ibvfd.SendWR{
		SGE:        []ibvfd.SGE{{Addr: ref.Addr(), Length: uint32(n), LKey: ref.LKey()}},
		RemoteAddr: p.mr.IOVA(), RKey: p.mr.RKey(),
	})
}

// holds compares what the CPU sees of a buffer.
func holds(t *testing.T, what string, buf *dmabuf.Buf, want []byte) {
	t.Helper()
	m, err := buf.Map(0, int64(len(want)), dmabuf.Read)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	got := make([]byte, len(want))
	if _, err := m.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: other bytes, %v", what, err)
	}
}

const vramSize = 1 << 16

// inVRAM is a buffer of a software GPU, and a PD of a NIC beside it that imports
// in that way.
func inVRAM(t *testing.T, importer string) (*ibvfd.PD, *dmabuf.Buf, testenv.SoftGPU) {
	t.Helper()
	vram := testenv.GPUPlaces(t, "amdgpu")[0]
	testenv.SetImporter(t, nic, importer)
	pd := openPD(t)
	return pd, alloc(t, vram.Spec, vramSize), vram.GPU
}

var wholeBuffer = mrcache.Range{Length: vramSize, Access: ibvfd.AccessLocalWrite | ibvfd.AccessRemoteWrite}

// A region of a NIC that can be told (irdma), of which the buffer is taken away:
// no lookup after the first error returns it, and there is none until the buffer
// is given back, when the new one is good and the old one still is not.
//
//testbed:machine fabric+EPYC
//testbed:kernel 7.2
func TestVMRevoked(t *testing.T) {
	pd, buf, gpu := inVRAM(t, "revocable")
	p := newPair(t, pd, vramSize)
	c := mrcache.New(mrcache.Config{})
	defer closed(t, c)
	inode := fmt.Sprint(buf.Inode())
	for round, use := range []func(ref mrcache.Ref) error{
		func(ref mrcache.Ref) error { return p.into(t, ref, ref.RKey(), vramSize) },
		func(ref mrcache.Ref) error { return p.from(t, ref, vramSize) },
	} {
		ref := get(t, c, pd, buf, wholeBuffer)
		if err := use(ref); ref.Failed(err) || err != nil {
			t.Fatalf("before: %v", err)
		}
		key := ref.RKey()
		gpu.Set(t, "revoke", inode)
		err := use(ref)
		if !ref.Failed(err) || !ref.Dead() {
			t.Errorf("an operation on what was revoked: %v, dead %v", err, ref.Dead())
		}
		if remote := errors.Is(err, &ibvfd.WCError{Status: ibvfd.WCRemAccessErr}); remote != (round == 0) {
			t.Errorf("an operation on what was revoked: %v", err)
		}
		if _, err := c.Get(pd, buf, wholeBuffer); !errors.Is(err, unix.ENODEV) {
			t.Errorf("a lookup while the buffer is away: %v, want ENODEV", err)
		}
		gpu.Set(t, "unrevoke", inode)
		again := get(t, c, pd, buf, wholeBuffer)
		if again.RKey() == key {
			t.Error("the dead region was returned")
		}
		for i := range p.mem.Bytes() {
			p.mem.Bytes()[i] = byte(i*7 + round)
		}
		if err := p.into(t, again, again.RKey(), vramSize); err != nil {
			t.Errorf("with the new region: %v", err)
		}
		holds(t, "with the new region", buf, p.mem.Bytes())
		clear(p.mem.Bytes())
		if err := p.into(t, ref, key, vramSize); !errors.Is(err, &ibvfd.WCError{Status: ibvfd.WCRemAccessErr}) {
			t.Errorf("with the old one: %v", err)
		}
		if err := p.from(t, again, vramSize); err != nil {
			t.Error(err)
		}
		holds(t, "after the old one was refused", buf, p.mem.Bytes())
		hit := get(t, c, pd, buf, wholeBuffer)
		if hit.RKey() != again.RKey() {
			t.Error("the new region is not kept")
		}
		for _, r := range []*mrcache.Ref{&ref, &again, &hit} {
			r.Release()
		}
	}
	if s := c.Stats(); s.Entries != 1 || s.Invalidations != 2 {
		t.Errorf("%+v", s)
	}
}

// One that follows the buffer (mlx5) stays good when it is moved.
//
//testbed:machine fabric+EPYC
//testbed:kernel 7.2
func TestVMMoved(t *testing.T) {
	pd, buf, gpu := inVRAM(t, "dynamic")
	p := newPair(t, pd, vramSize)
	c := mrcache.New(mrcache.Config{})
	defer closed(t, c)
	first := get(t, c, pd, buf, wholeBuffer)
	defer first.Release()
	for round := range testenv.Count(5) {
		for i := range p.mem.Bytes() {
			p.mem.Bytes()[i] = byte(i*5 + round)
		}
		gpu.Set(t, "evict", fmt.Sprint(buf.Inode()))
		if at := gpu.Place(t, buf.Inode()); at != "system" {
			t.Errorf("evicted to %q", at)
		}
		ref := get(t, c, pd, buf, wholeBuffer)
		if ref.RKey() != first.RKey() {
			t.Error("another region")
		}
		if err := p.into(t, ref, ref.RKey(), vramSize); ref.Failed(err) || err != nil {
			t.Error(err)
		}
		if at := gpu.Place(t, buf.Inode()); at != "vram" {
			t.Errorf("written to it in %q", at)
		}
		ref.Release()
	}
	holds(t, "after the moves", buf, p.mem.Bytes())
}

// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/rdmanl"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// nic is the testbed's software NIC.
const nic = "rxe0"

// allRemote is what a peer needs for every operation.
const allRemote = ibvfd.AccessLocalWrite | ibvfd.AccessRemoteRead | ibvfd.AccessRemoteWrite | ibvfd.AccessRemoteAtomic

func openNIC(t testing.TB) *ibvfd.Context {
	t.Helper()
	testenv.VM(t)
	noGrowth(t)
	c, err := ibvfd.Open(nic)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, c) })
	return c
}

func openPD(t testing.TB) *ibvfd.PD {
	t.Helper()
	pd, err := openNIC(t).AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, pd) })
	return pd
}

// closed closes twice: the second time must do nothing.
func closed(t testing.TB, c interface{ Close() error }) {
	t.Helper()
	for range 2 {
		if err := c.Close(); err != nil {
			t.Errorf("close %T: %v", c, err)
		}
	}
}

// usage is what a test must leave as it found it.
type usage struct {
	fds     int
	rdma    string // counts of the device's resources, and each MR, of all processes
	dmabufs int    // in the whole kernel
}

func currentUsage(t testing.TB) usage {
	t.Helper()
	c, err := rdmanl.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Summary(nic)
	if err != nil {
		t.Fatal(err)
	}
	mrs, err := c.MRs(nic)
	if err != nil {
		t.Fatal(err)
	}
	bufs, err := dmabuf.KernelBufs("")
	if err != nil {
		t.Fatal(err)
	}
	// Last: the first socket brings Go's poller, with descriptors that stay.
	return usage{testenv.Descriptors(t), fmt.Sprint(s, mrs), len(bufs)}
}

// noGrowth compares descriptors, RDMA resources and dma-bufs at the end of the
// test with those at its start.
func noGrowth(t testing.TB) {
	t.Helper()
	testenv.NoGrowth(t, currentUsage)
}

// exporter is the exporter of tests that work with any.
const exporter = "drm:vgem"

func alloc(t testing.TB, spec string, size int64, opt gpualloc.Options) *gpualloc.Buffer {
	t.Helper()
	a, err := gpualloc.Open(spec, gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	buf, err := a.Alloc(t.Context(), size, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, buf) })
	return buf
}

func hostMR(t testing.TB, pd *ibvfd.PD, size int) (*hostmem.Buf, *ibvfd.MR) {
	t.Helper()
	mem, err := hostmem.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, mem) })
	mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.HostMemory, Host: mem.Bytes(), Length: uint64(size), Access: allRemote, Owner: mem})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, mr) })
	return mem, mr
}

// pair is a loopback pair with its CQ. READs have a pair of their own: rxe of
// Linux 6.12 on a busy machine now and then answers nothing any more after it
// was asked again for what it was about to do, as in a long READ.
type pair struct {
	cq    *ibvfd.CQ
	a, b  *ibvfd.QP
	wc    []ibvfd.WC
	reads *pair
}

func connect(t testing.TB, pd *ibvfd.PD, attr ibvfd.QPAttr) *pair {
	t.Helper()
	p := connectOne(t, pd, attr)
	p.reads = connectOne(t, pd, attr)
	return p
}

func connectOne(t testing.TB, pd *ibvfd.PD, attr ibvfd.QPAttr) *pair {
	t.Helper()
	cq, err := pd.Context().CreateCQ(256)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, cq) })
	attr.Type = ibvfd.RC
	a, b, err := ibvfd.LoopbackPair(pd, cq, attr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, a); closed(t, b) })
	p := &pair{cq: cq, a: a, b: b, wc: make([]ibvfd.WC, 64)}
	if err := p.reconnect(); err != nil {
		t.Fatal(err)
	}
	return p
}

// reconnect connects the pair anew, with more patience than a NIC needs: the
// software NIC of a busy machine can be late.
func (p *pair) reconnect() error {
	patient := ibvfd.ConnectAttr{Timeout: 20, RetryCount: 3}
	return errors.Join(p.a.Connect(p.b.Local(), patient), p.b.Connect(p.a.Local(), patient))
}

// bound is far above what anything here takes; no test asserts a time.
var bound = testenv.Limit(time.Minute)

// do posts wr, signaled, and returns its completion.
func (p *pair) do(t testing.TB, wr ibvfd.SendWR) ibvfd.WC {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	wr.Flags |= ibvfd.SendSignaled
	if n, err := p.a.PostSend([]ibvfd.SendWR{wr}); n != 1 || err != nil {
		t.Fatalf("PostSend: %d, %v", n, err)
	}
	for {
		n, err := p.cq.PollUntil(ctx, p.wc)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.wc[:n] {
			if c.ID == wr.ID {
				return c
			}
		}
	}
}

// move transfers length bytes between host memory and an MR; off counts from
// the MR's start.
func (p *pair) move(t testing.TB, op ibvfd.Opcode, host *ibvfd.MR, mr *ibvfd.MR, off uint64, length int) ibvfd.WC {
	t.Helper()
	if op == ibvfd.OpRead {
		p = p.reads
	}
	return p.do(t, ibvfd.SendWR{
		ID: 7, Op: op, SGE: []ibvfd.SGE{{Addr: host.IOVA(), Length: uint32(length), LKey: host.LKey()}},
		RemoteAddr: mr.IOVA() + off, RKey: mr.RKey(),
	})
}

func asRegError(t testing.TB, err error) *ibvfd.RegError {
	t.Helper()
	var e *ibvfd.RegError
	if !errors.As(err, &e) {
		t.Fatalf("error is %T (%v), want *RegError", err, err)
	}
	return e
}

func netlinkMRs(t testing.TB) []rdmanl.MR {
	t.Helper()
	mrs, err := rdmanl.MRs(nic)
	if err != nil {
		t.Fatal(err)
	}
	return mrs
}

// eventually waits until the kernel has caught up.
func eventually(t testing.TB, done func() bool) {
	t.Helper()
	for range 250 * testenv.Slow() {
		if done() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("it does not happen")
}

// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/ibvfd/region"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

func segment(t testing.TB, buf *gpualloc.Buffer) *dmabuf.Buf {
	t.Helper()
	segs := buf.Segments()
	if len(segs) != 1 || segs[0].Offset != 0 {
		t.Fatalf("segments %+v, want one from 0 on", segs)
	}
	return segs[0].Buf
}

func fill(p []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range p {
		p[i] = byte(r.Uint32())
	}
}

var policyName = map[ibvfd.RoutePolicy]string{ibvfd.RouteAuto: "auto", ibvfd.RouteIoctlOnly: "ioctl", ibvfd.RouteProviderOnly: "provider"}

// Every exporter: WRITE and READ through an MR made by each policy, at an
// unaligned offset, compared through the buffer's own view.
func TestVMRegisterEveryExporter(t *testing.T) {
	pd := openPD(t)
	p := connect(t, pd, ibvfd.QPAttr{SendDepth: 4})
	const size, n = 1 << 20, 70001
	host, hmr := hostMR(t, pd, n)
	support, err := ibvfd.Probe(nic)
	if err != nil {
		t.Fatal(err)
	}
	if support.DMABufKernel != ibvfd.Yes {
		t.Fatalf("the patched rxe registers dma-bufs; the probe says %+v", support)
	}
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		for _, policy := range []ibvfd.RoutePolicy{ibvfd.RouteAuto, ibvfd.RouteIoctlOnly} {
			t.Run(policyName[policy], func(t *testing.T) {
				buf := alloc(t, x.Spec, size, gpualloc.Options{Name: "ibvfd"})
				off := uint64(os.Getpagesize() + 123)
				mr, err := pd.RegMR(ibvfd.MRAttr{
					Kind: ibvfd.DMABufFD, Buf: segment(t, buf), Offset: off, Length: n + 1, IOVA: 1<<40 + off,
					Access: allRemote, Owner: buf, Policy: policy,
				})
				if err != nil {
					t.Fatal(err)
				}
				defer closed(t, mr)
				want := ibvfd.RouteIoctl
				if policy == ibvfd.RouteAuto && support.DMABufProvider == ibvfd.Yes {
					want = ibvfd.RouteProvider
				}
				if mr.Route() != want {
					t.Errorf("route %q, want %q", mr.Route(), want)
				}
				fill(host.Bytes(), 1)
				sent := bytes.Clone(host.Bytes())
				if c := p.move(t, ibvfd.OpWrite, hmr, mr, 1, n); c.Err() != nil {
					t.Fatal(c.Err())
				}
				got := make([]byte, n+2)
				if _, err := buf.ReadAt(got, int64(off)); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got[1:n+1], sent) || got[0] != 0 || got[n+1] != 0 {
					t.Error("the buffer does not hold what was written, or more")
				}
				fill(sent, 2)
				if _, err := buf.WriteAt(sent, int64(off)+1); err != nil {
					t.Fatal(err)
				}
				if c := p.move(t, ibvfd.OpRead, hmr, mr, 1, n); c.Err() != nil {
					t.Fatal(c.Err())
				}
				if !bytes.Equal(host.Bytes(), sent) {
					t.Error("READ did not bring what the buffer holds")
				}
			})
		}
	})
}

// The MR holds the dma-buf: its descriptor, and every other, may be closed.
func TestVMDescriptorClosedAfterRegistration(t *testing.T) {
	pd := openPD(t)
	p := connect(t, pd, ibvfd.QPAttr{})
	host, hmr := hostMR(t, pd, 4096)
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		buf := alloc(t, x.Spec, 1<<16, gpualloc.Options{})
		mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, buf), Length: 1 << 16, Access: allRemote, Owner: buf})
		if err != nil {
			t.Fatal(err)
		}
		defer closed(t, mr)
		if err := buf.CloseFDs(); err != nil {
			t.Fatal(err)
		}
		fill(host.Bytes(), 3)
		if c := p.move(t, ibvfd.OpWrite, hmr, mr, 0, 4096); c.Err() != nil {
			t.Fatal(c.Err())
		}
		got := make([]byte, 4096)
		if _, err := buf.ReadAt(got, 0); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, host.Bytes()) {
			t.Error("the data did not arrive after the descriptor was closed")
		}
	})
}

// A raw descriptor is borrowed: it stays open and the caller's.
func TestVMRawDescriptor(t *testing.T) {
	pd := openPD(t)
	buf := alloc(t, exporter, 1<<16, gpualloc.Options{})
	err := segment(t, buf).Do(func(fd int) error {
		for _, skip := range []bool{false, true} {
			mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, FD: fd, Length: 1 << 16, Access: allRemote, SkipChecks: skip})
			if err != nil {
				return err
			}
			closed(t, mr)
		}
		b, err := dmabuf.Import(fd)
		if err != nil {
			t.Errorf("RegMR closed the borrowed descriptor: %v", err)
			return nil
		}
		return b.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestVMClosingWhatIsInUse(t *testing.T) {
	c := openNIC(t)
	pd, err := c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	buf := alloc(t, exporter, 1<<16, gpualloc.Options{})
	mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, buf), Length: 1 << 16, Access: allRemote, Owner: buf})
	if err != nil {
		t.Fatal(err)
	}
	cq, err := c.CreateCQ(4)
	if err != nil {
		t.Fatal(err)
	}
	a, b, err := ibvfd.LoopbackPair(pd, cq, ibvfd.QPAttr{Type: ibvfd.RC})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []interface{ Close() error }{c, pd, cq, buf} {
		if err := x.Close(); !errors.Is(err, failure.ErrInUse) {
			t.Errorf("close %T in use: %v, want ErrInUse", x, err)
		}
	}
	// Nothing was freed: all of it still works.
	p := &pair{cq: cq, a: a, b: b, wc: make([]ibvfd.WC, 4)}
	_, hmr := hostMR(t, pd, 4096)
	if w := p.move(t, ibvfd.OpWrite, hmr, mr, 0, 4096); w.Err() != nil {
		t.Error(w.Err())
	}
	closed(t, hmr)
	for _, x := range []interface{ Close() error }{a, b, cq, mr, buf, pd, c} {
		closed(t, x)
	}
	if _, err := c.AllocPD(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("AllocPD on a closed context: %v", err)
	}
	if _, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, FD: -1}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("RegMR on a closed PD: %v", err)
	}
	if _, err := a.PostSend(make([]ibvfd.SendWR, 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("PostSend on a closed QP: %v", err)
	}
	if _, err := cq.Poll(make([]ibvfd.WC, 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Poll on a closed CQ: %v", err)
	}
	if _, err := cq.PollUntil(context.Background(), make([]ibvfd.WC, 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("PollUntil on a closed CQ: %v", err)
	}
}

// The MR's number is that of RDMA netlink, and the kernel agrees on its range.
func TestVMIdentity(t *testing.T) {
	pd := openPD(t)
	buf := alloc(t, exporter, 1<<18, gpualloc.Options{})
	seen := map[uint32]bool{}
	for i := range 5 {
		length := uint64(i+1) * 4096
		mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, buf), Length: length, Access: allRemote})
		if err != nil {
			t.Fatal(err)
		}
		defer closed(t, mr)
		id := mr.ID()
		if !id.NumberKnown || seen[id.Number] || id.PID != os.Getpid() || id.LKey != mr.LKey() || id.Device != nic {
			t.Fatalf("ID() = %+v", id)
		}
		seen[id.Number] = true
		for _, m := range netlinkMRs(t) {
			if m.Number == id.Number && (m.Length != length || m.LKey != mr.LKey()) {
				t.Errorf("MR %+v is %+v in netlink, want length %d", id, m, length)
			}
		}
	}
}

// 10,000 registrations must leave nothing: descriptors, RDMA resources,
// dma-bufs, and memory of the kernel or of ours that grows with every cycle.
func TestVMManyCycles(t *testing.T) {
	pd := openPD(t)
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		buf := alloc(t, x.Spec, 1<<16, gpualloc.Options{})
		// What differs from exporter to exporter is seen sooner than what
		// registration itself could lose.
		cycles := testenv.Count(1000)
		if x.Repeated(t) {
			cycles = testenv.Count(10000)
		}
		cycle := func(n int) {
			for i := range n {
				mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, buf), Length: 1 << 16, Access: allRemote, Owner: buf})
				if err != nil {
					t.Fatalf("cycle %d: %v", i, err)
				}
				if err := mr.Close(); err != nil {
					t.Fatalf("cycle %d: %v", i, err)
				}
			}
		}
		cycle(cycles / 10) // caches fill
		before, kernel, heap := currentUsage(t), testenv.KernelMemory(t), testenv.GoMemory()
		cycle(cycles)
		if after := currentUsage(t); after != before {
			t.Errorf("before %+v, after %+v", before, after)
		}
		if !x.Repeated(t) || testenv.Slow() > 1 {
			return // too few to tell a leak from noise; KASAN does not give back what was freed for a while
		}
		// Less than an MR or any list of pages, leaked in every cycle.
		most := int64(cycles * 32)
		var more, own int64
		for range 100 { // the kernel frees some of it later
			more, own = testenv.KernelMemory(t)-kernel, testenv.GoMemory()-heap
			if more < most && own < most {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Errorf("after %d cycles the kernel has %d bytes more, we have %d", cycles, more, own)
	})
}

// A buffer of several dma-bufs is one region.
func TestVMRegionOfSegments(t *testing.T) {
	pd := openPD(t)
	p := connect(t, pd, ibvfd.QPAttr{})
	const size = 1 << 18
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		buf := alloc(t, x.Spec, size, gpualloc.Options{SegmentSize: 1 << 16})
		var segs []region.Segment
		for _, s := range buf.Segments() {
			segs = append(segs, region.Segment{Buf: s.Buf, Offset: uint64(s.Offset), Length: uint64(s.Size)})
		}
		if len(segs) != 4 {
			t.Fatalf("%d segments, want 4", len(segs))
		}
		off := uint64(1<<16 - 100)
		const n = 1<<16 + 200 // the end of the first, all of the second, the start of the third
		r, err := region.Register(region.Attr{Segments: segs, Offset: off, Length: n, IOVA: off, Access: allRemote, Owner: buf}, pd)
		if err != nil {
			t.Fatal(err)
		}
		defer closed(t, r)
		mrs := r.MRs(pd)
		if len(mrs) != 3 || mrs[0].Length() != 100 || mrs[1].Length() != 1<<16 || mrs[2].Length() != 100 {
			t.Fatalf("MRs %v", mrs)
		}
		host, hmr := hostMR(t, pd, n)
		fill(host.Bytes(), 9)
		done := uint64(0)
		for _, mr := range mrs {
			c := p.do(t, ibvfd.SendWR{
				ID: 1, Op: ibvfd.OpWrite, RemoteAddr: off + done, RKey: mr.RKey(),
				SGE: []ibvfd.SGE{{Addr: hmr.IOVA() + done, Length: uint32(mr.Length()), LKey: hmr.LKey()}},
			})
			if c.Err() != nil {
				t.Fatal(c.Err())
			}
			done += mr.Length()
		}
		got := make([]byte, n)
		if _, err := buf.ReadAt(got, int64(off)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, host.Bytes()) {
			t.Error("the segments do not hold what was written")
		}

		// All or nothing: the second PD is closed, and nothing stays on the first.
		other, err := pd.Context().AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		both, err := region.Register(region.Attr{Segments: segs, Length: size, Access: allRemote, Owner: buf}, pd, other)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := both.MRs(pd), both.MRs(other); len(a) != 4 || len(b) != 4 || a[0] == b[0] {
			t.Errorf("MRs in two PDs: %v, %v", a, b)
		}
		closed(t, both)
		if both.MRs(pd) != nil {
			t.Error("a closed region has MRs")
		}
		closed(t, other)
		had := len(netlinkMRs(t))
		if _, err := region.Register(region.Attr{Segments: segs, Length: size, Access: allRemote}, pd, other); !errors.Is(err, os.ErrClosed) {
			t.Errorf("region on a closed PD: %v, want ErrClosed", err)
		}
		if now := len(netlinkMRs(t)); now != had {
			t.Errorf("%d MRs, were %d before a region that failed", now, had)
		}
		// Past the end.
		if _, err := region.Register(region.Attr{Segments: segs, Offset: off, Length: size, IOVA: off, Access: allRemote}, pd); !errors.Is(err, failure.ErrRange) {
			t.Errorf("region past the end: %v, want ErrRange", err)
		}
	})
}

func TestVMDevices(t *testing.T) {
	testenv.VM(t)
	list, err := ibdev.List("")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 || list[0].Name != nic {
		t.Fatalf("Devices() = %+v, want %s first", list, nic)
	}
	d := list[0]
	if d.Uverbs != "/dev/infiniband/uverbs0" || d.Kind != "rxe" || d.Driver != "rdma_rxe" || len(d.Ports) != 1 || len(d.NetDevs) == 0 {
		t.Errorf("%+v", d)
	}
	port := d.Ports[0]
	if port.State != ibdev.PortActive || port.LinkLayer != ibdev.LinkEthernet || len(port.GIDs) == 0 {
		t.Errorf("port %+v", port)
	}
	gid, why, err := gid.Choose(port.GIDs, port.LinkLayer)
	if err != nil || gid.Type != ibdev.GIDRoCEv2 || gid.Addr().String() != "10.9.0.1" {
		t.Errorf("ChooseGID = %v (%s), %v; want the RoCE v2 one of 10.9.0.1", gid, why, err)
	}
	c := openNIC(t)
	a, err := c.QueryPort(1)
	if err != nil {
		t.Fatal(err)
	}
	if a.State != port.State || a.MTU != port.MTU || a.LinkLayer != port.LinkLayer {
		t.Errorf("libibverbs says %+v, sysfs %+v", a, port)
	}
	dev, err := c.QueryDevice()
	if err != nil {
		t.Fatal(err)
	}
	if dev.MaxQP < 1 || dev.MaxSGE < 1 || dev.Ports != 1 || dev.MaxMRSize == 0 {
		t.Errorf("%+v", dev)
	}
	if _, err := c.QueryPort(2); err == nil {
		t.Error("port 2 answered")
	}
	if g, err := c.QueryGID(1, gid.Index); err != nil || g != gid {
		t.Errorf("QueryGID = %v, %v; want %v", g, err, gid)
	}
}

// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// testNIC is the testbed's software NIC.
const testNIC = "rxe0"

func openNIC(t *testing.T, name string) *ibvfd.Context {
	t.Helper()
	c, err := ibvfd.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close %s: %v", name, err)
		}
	})
	return c
}

func allocate(t *testing.T, spec string, size int64, opt gpualloc.Options) *gpualloc.Buffer {
	t.Helper()
	a, err := gpualloc.Open(spec, gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	buf, err := a.Alloc(t.Context(), size, opt)
	if err := errors.Join(err, a.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := buf.Close(); err != nil {
			t.Errorf("close %v: %v", buf, err)
		}
	})
	return buf
}

// exporter is the one that tests use to which any will do.
const exporter = "drm:vgem"

func TestVMEveryExporterIsVerified(t *testing.T) {
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		c := openNIC(t, testNIC)
		p := page()
		for _, size := range []int64{1, 2*p + 1, 1 << 20, 5<<20 + 3*p} {
			t.Run(fmt.Sprint(size), func(t *testing.T) {
				buf := allocate(t, x.Spec, size, gpualloc.Options{})
				rep, err := Verify(t.Context(), c, buf, Options{Chunk: 256 << 10})
				if err != nil || !rep.OK {
					t.Fatalf("OK %v, %v", rep.OK, err)
				}
				if rep.Size < size || rep.VerifiedBytes < 4*rep.Size || rep.Inode == 0 || rep.RKey == 0 || rep.RegTime <= 0 || rep.WriteRate <= 0 || rep.ReadRate <= 0 {
					t.Errorf("implausible report: %+v", rep)
				}
				if rep.Inode != buf.Segments()[0].Buf.Inode() {
					t.Errorf("inode %d, the buffer's is %d", rep.Inode, buf.Segments()[0].Buf.Inode())
				}
			})
		}
	})
}

// A buffer of several dma-bufs: MRs and transfers are cut where they meet.
func TestVMSegments(t *testing.T) {
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		c := openNIC(t, testNIC)
		buf := allocate(t, x.Spec, 1<<20, gpualloc.Options{SegmentSize: 5 * page()})
		rep, err := Verify(t.Context(), c, buf, Options{Chunk: 96 << 10})
		if err != nil || !rep.OK {
			t.Fatalf("OK %v, %v", rep.OK, err)
		}
		if rep.MRs < 2 || rep.MRs != len(buf.Segments()) {
			t.Errorf("%d MRs for %d segments", rep.MRs, len(buf.Segments()))
		}
	})
}

func TestVMSeedRepeatsARun(t *testing.T) {
	testenv.VM(t)
	c := openNIC(t, testNIC)
	buf := allocate(t, exporter, 1<<20, gpualloc.Options{})
	var cases [2][]Case
	for i := range cases {
		rep, err := Verify(t.Context(), c, buf, Options{Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		if rep.Seed != 7 {
			t.Errorf("seed %d", rep.Seed)
		}
		cases[i] = rep.Cases
	}
	if fmt.Sprint(cases[0]) != fmt.Sprint(cases[1]) {
		t.Errorf("two runs of one seed differ:\n%+v\n%+v", cases[0], cases[1])
	}
}

// meddler is a buffer that a second mapping writes to, just before the test's view
// reads it.
type meddler struct {
	*gpualloc.Buffer
	other *dmabuf.Mapping
	at    int64
	once  sync.Once
	t     *testing.T
}

func (m *meddler) ReadAt(p []byte, off int64) (int, error) {
	m.once.Do(func() {
		var b [1]byte
		_, err1 := m.other.ReadAt(b[:], m.at)
		b[0] ^= 0x10
		_, err2 := m.other.WriteAt(b[:], m.at)
		if err := errors.Join(err1, err2); err != nil {
			m.t.Error(err)
		}
	})
	return m.Buffer.ReadAt(p, off)
}

// realRun runs plans on the real device with wire and view given a chance to
// lie, as run does in Verify.
func realRun(t *testing.T, buf *gpualloc.Buffer, opt Options, lie func(*rdma) (wire, View)) (*Report, error) {
	t.Helper()
	opt.setDefaults()
	w, err := openRDMA(openNIC(t, testNIC), buf, opt)
	if err != nil {
		t.Fatal(err)
	}
	rep := &Report{}
	liar, view := lie(w)
	err = run(t.Context(), liar, view, opt, rep)
	if err := w.close(); err != nil {
		t.Errorf("close: %v", err)
	}
	return rep, err
}

func TestVMCorruptionIsDetected(t *testing.T) {
	testenv.VM(t)
	buf := allocate(t, exporter, 1<<20, gpualloc.Options{})
	other, err := buf.Segments()[0].Buf.Map(0, buf.Size(), dmabuf.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	const at = 0x54321
	rep, err := realRun(t, buf, Options{}, func(w *rdma) (wire, View) {
		return w, &meddler{Buffer: buf, other: other, at: at, t: t}
	})
	var m *Mismatch
	if !errors.As(err, &m) {
		t.Fatalf("one flipped bit was not found: OK %v, %v", rep.OK, err)
	}
	if m.Offset != at || m.Count != 1 || m.Expected[0]^m.Got[0] != 0x10 {
		t.Errorf("reported as %v, want one byte at %#x", m, at)
	}
}

// misplaced registers another range than it was asked for.
type misplaced struct {
	*rdma
	shift int64 // how far off the registered range is
	grow  int64 // how much longer it is
}

func (w misplaced) register(s span, iova uint64, access ibvfd.Access) (registered, error) {
	r, err := w.rdma.register(span{s.off + w.shift, s.len + w.grow}, iova, access)
	if err != nil {
		return nil, err
	}
	for i := range r.(*rdmaRegion).parts {
		r.(*rdmaRegion).parts[i].off -= w.shift
	}
	return r, nil
}

func TestVMWrongOffsetIsDetected(t *testing.T) {
	testenv.VM(t)
	p := page()
	buf := allocate(t, exporter, 1<<20, gpualloc.Options{})
	rep, err := realRun(t, buf, Options{Cases: []string{CaseUnalignedMR}}, func(w *rdma) (wire, View) {
		return misplaced{rdma: w, shift: p}, buf
	})
	var m *Mismatch
	if !errors.As(err, &m) {
		t.Fatalf("an MR one page off was not found: OK %v, %v", rep.OK, err)
	}
	if m.Origin != OriginStale || m.LandedAt != m.Offset+p {
		t.Errorf("reported as %v, want stale bytes, and the right ones %#x further on", m, p)
	}
}

func TestVMTooLongAnMRIsDetected(t *testing.T) {
	testenv.VM(t)
	buf := allocate(t, exporter, 1<<20, gpualloc.Options{})
	rep, err := realRun(t, buf, Options{Cases: []string{CaseWritePastEnd, CaseReadPastEnd}}, func(w *rdma) (wire, View) {
		return misplaced{rdma: w, grow: page()}, buf
	})
	var accepted *AcceptedError
	if !errors.As(err, &accepted) || len(rep.Failed()) != 2 {
		t.Fatalf("an MR that is too long was not found: failed %+v, %v", rep.Failed(), err)
	}
}

// Cancelling in the middle of a transfer comes back soon and leaves nothing.
func TestVMCancelMidTransfer(t *testing.T) {
	testenv.VM(t)
	c := openNIC(t, testNIC)
	buf := allocate(t, exporter, 16<<20, gpualloc.Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	reason := errors.New("enough")
	timer := time.AfterFunc(100*time.Millisecond, func() { cancel(reason) })
	defer timer.Stop()
	rep, err := Verify(ctx, c, buf, Options{Chunk: 8 << 20})
	if !errors.Is(err, reason) || rep.OK {
		t.Fatalf("OK %v, %v", rep.OK, err)
	}
	// The buffer and the context close without ErrInUse: see the cleanups.
}

// A NIC that goes down in the middle ends the run with the completion's status
// and a remedy, and nothing is left behind.
func TestVMNetDeviceDownMidTransfer(t *testing.T) {
	testenv.VM(t)
	c := openNIC(t, ownNIC(t, "down0"))
	buf := allocate(t, exporter, 16<<20, gpualloc.Options{})
	var once sync.Once
	rep, err := Verify(t.Context(), c, buf, Options{Progress: func(int64, int64) {
		once.Do(func() { command(t, "ip", "link", "set", "down0", "down") })
	}})
	var transfer *TransferError
	var wc *ibvfd.WCError
	if !errors.As(err, &transfer) || !errors.As(err, &wc) {
		t.Fatalf("OK %v, %v; want an error completion", rep.OK, err)
	}
	if wc.Status == ibvfd.WCRemAccessErr || transfer.Remedy == "" {
		t.Errorf("%v", err)
	}
	t.Log(err)
	if n := len(rep.Cases); n != len(CaseNames()) || rep.Cases[n-1].OK {
		t.Errorf("%d cases reported, the last one %+v", n, rep.Cases[n-1])
	}
}

// ownNIC makes a software NIC on a net device of its own, for tests that break
// it, and returns its name.
func ownNIC(t *testing.T, netdev string) string {
	t.Helper()
	name := "rxe_" + netdev
	command(t, "ip", "link", "add", netdev, "type", "dummy")
	t.Cleanup(func() { command(t, "ip", "link", "delete", netdev) })
	command(t, "ip", "addr", "add", "10.99.0.1/24", "dev", netdev)
	command(t, "ip", "link", "set", netdev, "up", "mtu", "4200")
	command(t, "rdma", "link", "add", name, "type", "rxe", "netdev", netdev)
	t.Cleanup(func() { command(t, "rdma", "link", "delete", name) })
	return name
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// Nothing that a run makes stays behind, pass or fail.
func TestVMNothingIsLeftBehind(t *testing.T) {
	testenv.VM(t)
	c := openNIC(t, testNIC)
	spec := exporter
	once := func() {
		buf := allocate(t, spec, 256<<10, gpualloc.Options{})
		if _, err := Verify(t.Context(), c, buf, Options{}); err != nil {
			t.Error(err)
		}
		if err := buf.Close(); err != nil {
			t.Error(err)
		}
	}
	once() // a first run fills caches for good, which are no leak
	fds, bufs := testenv.Descriptors(t), kernelBufs(t)
	for range 5 {
		once()
	}
	if now := testenv.Descriptors(t); now != fds {
		t.Errorf("%d descriptors before, %d after", fds, now)
	}
	if now := kernelBufs(t); !slices.Equal(now, bufs) {
		t.Errorf("dma-bufs before: %v, after: %v", bufs, now)
	}
}

func kernelBufs(t *testing.T) (inodes []uint64) {
	t.Helper()
	list, err := dmabuf.KernelBufs("")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range list {
		inodes = append(inodes, b.Inode)
	}
	slices.Sort(inodes)
	return inodes
}

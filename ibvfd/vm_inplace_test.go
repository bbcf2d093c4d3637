// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// needsInPlace skips where the RDMA core is not the one of kernel/patches/rdma-rereg.
func needsInPlace(t testing.TB) {
	t.Helper()
	testenv.VM(t)
	if os.Getenv("GPURDMA_REREG") != "1" {
		t.Skip("the RDMA core of this machine cannot re-register a dma-buf")
	}
}

// importers are the kinds of devices that rxe can play.
var importers = []string{"pinned", "revocable", "dynamic"}

// on is what an MR is to be on: a range of a buffer.
func on(t testing.TB, buf *gpualloc.Buffer, off, length, iova uint64) ibvfd.MRAttr {
	return ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, buf), Offset: off, Length: length, IOVA: iova, Access: allRemote, Owner: buf}
}

// inPlace makes a change under the same keys and the same handle.
func inPlace(t testing.TB, mr *ibvfd.MR, attr ibvfd.ReregAttr) {
	t.Helper()
	attr.InPlace = ibvfd.InPlaceOnly
	id := mr.ID()
	rereg(t, mr, attr, true)
	if now := mr.ID(); now != id || !id.NumberKnown {
		t.Errorf("the MR was %+v, and is %+v", id, now)
	}
}

// attachments returns how many devices are attached to a buffer.
func attachments(t testing.TB, buf *gpualloc.Buffer) int {
	t.Helper()
	list, err := dmabuf.KernelBufs("")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range list {
		if b.Inode == segment(t, buf).Inode() {
			return len(b.Attached)
		}
	}
	t.Fatal("the kernel does not list the buffer")
	return 0
}

// An MR goes from one dma-buf to another, to another range, to other rights and to another PD, with
// all kinds of importers and exporters. The keys stay, and the old buffer has no attachment any more.
//
//testbed:kernel 7.3 7.2
func TestVMInPlaceDMABuf(t *testing.T) {
	needsInPlace(t)
	for _, kind := range importers {
		t.Run(kind, func(t *testing.T) {
			testenv.SetImporter(t, nic, kind)
			pd := openPD(t)
			p := connect(t, pd, ibvfd.QPAttr{})
			src, smr := hostMR(t, pd, 4096)
			fill(src.Bytes(), 2)
			pd2, err := pd.Context().AllocPD()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { closed(t, pd2) })
			page := uint64(os.Getpagesize())
			testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
				one, two := alloc(t, x.Spec, 1<<18, gpualloc.Options{}), alloc(t, x.Spec, 1<<18, gpualloc.Options{})
				mr, err := pd.RegMR(on(t, one, 0, 1<<16, 1<<40))
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
				next := on(t, one, 3*page+5, 9000, 1<<41+page+5)
				inPlace(t, mr, ibvfd.ReregAttr{Change: ibvfd.ReregMemory, MRAttr: next})
				expect(ibvfd.WCSuccess, "in another range")
				for i, bufs := range [][2]*gpualloc.Buffer{{two, one}, {one, two}, {two, one}} {
					next := on(t, bufs[0], 2*page+9, 1<<16, 1<<42+9)
					inPlace(t, mr, ibvfd.ReregAttr{Change: ibvfd.ReregMemory, MRAttr: next})
					p.goesTo(t, mr, bufs[0], int(next.Offset), bufs[1], 10*uint64(i+1))
					if n := attachments(t, bufs[1]); n != 0 {
						t.Errorf("the old buffer has %d attachments", n)
					}
				}
				inPlace(t, mr, ibvfd.ReregAttr{Change: ibvfd.ReregAccess, MRAttr: ibvfd.MRAttr{Access: localWrite}})
				expect(ibvfd.WCRemAccessErr, "without remote write")
				inPlace(t, mr, ibvfd.ReregAttr{Change: ibvfd.ReregPD | ibvfd.ReregAccess, PD: pd2, MRAttr: ibvfd.MRAttr{Access: allRemote}})
				expect(ibvfd.WCRemAccessErr, "from the old PD")
				all := on(t, one, 0, 1<<16, 1<<40)
				inPlace(t, mr, ibvfd.ReregAttr{Change: ibvfd.ReregMemory | ibvfd.ReregPD | ibvfd.ReregAccess, PD: pd, MRAttr: all})
				expect(ibvfd.WCSuccess, "with all of it changed")

				// A buffer that was imported for reading only cannot get the right to write in place.
				readOnly := all
				readOnly.Access = ibvfd.AccessRemoteRead
				inPlace(t, mr, ibvfd.ReregAttr{Change: ibvfd.ReregMemory | ibvfd.ReregAccess, MRAttr: readOnly})
				before := mr.State()
				err = mr.Rereg(ibvfd.ReregAttr{Change: ibvfd.ReregAccess, InPlace: ibvfd.InPlaceOnly, MRAttr: ibvfd.MRAttr{Access: remoteWrite}})
				if !errors.Is(err, unix.EACCES) || mr.State() != before {
					t.Errorf("rights to write: %v", err)
				}
				inPlace(t, mr, ibvfd.ReregAttr{Change: ibvfd.ReregMemory | ibvfd.ReregAccess, MRAttr: all})

				// A refusal changes nothing.
				before = mr.State()
				for _, bad := range []ibvfd.MRAttr{
					on(t, two, 1<<18, 1, 0),
					on(t, two, 0, 1<<18+1, 0),
					on(t, two, 0, 0, 0),
					on(t, two, 1, 1<<12, 0),
					{Kind: ibvfd.DMABufFD, FD: 0, Length: 1 << 12, Access: allRemote},
				} {
					bad.SkipChecks = true
					if err := mr.Rereg(ibvfd.ReregAttr{Change: ibvfd.ReregMemory, InPlace: ibvfd.InPlaceOnly, MRAttr: bad}); err == nil || mr.State() != before {
						t.Errorf("%+v: %v, %+v", bad, err, mr.State())
					}
				}
				if n := attachments(t, two); n != 0 {
					t.Errorf("%d attachments after refusals", n)
				}
				expect(ibvfd.WCSuccess, "after the refusals")
			})
		})
	}
}

// A peer reads without a pause while the MR goes from buffer to buffer. No READ fails, each packet is
// of one buffer, and none has bytes of a buffer that the MR has left: those are overwritten at once.
//
//testbed:machine fabric+EPYC
//testbed:kernel 7.3 7.2
func TestVMInPlaceUnderReads(t *testing.T) {
	needsInPlace(t)
	gpus := testenv.SoftGPUs(t, "personality=xe,amdgpu")
	if len(gpus) < 2 {
		t.Fatalf("%d software GPUs", len(gpus))
	}
	specs := []string{exporter, "drm:" + gpus[0].PCI + "/vram", exporter, "drm:" + gpus[1].PCI + "/vram", "drm:" + gpus[0].PCI + "/system"}
	for _, kind := range importers {
		t.Run(kind, func(t *testing.T) {
			testenv.SetImporter(t, nic, kind)
			underReads(t, specs, testenv.Soak(100, 10_000))
		})
	}
}

// underReads re-registers an MR a number of times, and until there have been some READs, over buffers of
// several allocators in turns.
func underReads(t *testing.T, specs []string, rounds int) {
	const size, poison = 1 << 15, 0xdb
	pd := openPD(t)
	p := connectOne(t, pd, ibvfd.QPAttr{SendDepth: 8})
	var bufs []*gpualloc.Buffer
	for _, spec := range specs {
		bufs = append(bufs, alloc(t, spec, size, gpualloc.Options{}))
	}
	set := func(i int, with byte) {
		if _, err := bufs[i].WriteAt(bytes.Repeat([]byte{with}, size), 0); err != nil {
			t.Fatal(err)
		}
	}
	for i := range bufs {
		set(i, poison)
	}
	set(0, 1)
	mr, err := pd.RegMR(on(t, bufs[0], 0, size, 1<<40))
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, mr)
	host, hmr := hostMR(t, pd, size)
	const packet = 1024 // or a multiple
	stop, ended := make(chan struct{}), make(chan struct{})
	var reads atomic.Int64
	go func() { // the peer
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := p.read(t.Context(), hmr, size, 1<<40, mr.RKey()); err != nil {
				t.Errorf("READ %d: %v", reads.Load(), err)
				return
			}
			for at := 0; at < size; at += packet {
				got := host.Bytes()[at : at+packet]
				if got[0] == poison || !bytes.Equal(got, bytes.Repeat(got[:1], packet)) {
					t.Errorf("READ %d: the packet at %d begins with %#x, and ends with %#x", reads.Load(), at, got[0], got[packet-1])
					return
				}
			}
			reads.Add(1)
		}
	}()
	const fewReads = 5 // one takes longer than many changes on a kernel that checks itself
	done := 0
	for end := time.Now().Add(testenv.Limit(time.Minute)); !t.Failed() && (done < rounds || reads.Load() < fewReads && time.Now().Before(end)); done++ {
		from, to := done%len(bufs), (done+1)%len(bufs)
		set(to, byte(1+done%100))
		if err := mr.Rereg(ibvfd.ReregAttr{Change: ibvfd.ReregMemory, InPlace: ibvfd.InPlaceOnly, MRAttr: on(t, bufs[to], 0, size, 1<<40)}); err != nil {
			t.Errorf("re-registration %d: %v", done, err)
			break
		}
		set(from, poison)
	}
	close(stop)
	<-ended
	t.Logf("%d re-registrations under %d READs of %d bytes", done, reads.Load(), size)
	if reads.Load() < fewReads {
		t.Errorf("%d READs", reads.Load())
	}
	for i := range bufs {
		if n := attachments(t, bufs[i]); n != 0 && i != done%len(bufs) || n == 0 && i == done%len(bufs) {
			t.Errorf("buffer %d has %d attachments", i, n)
		}
	}
}

// read reads size bytes into an MR's start.
func (p *pair) read(ctx context.Context, into *ibvfd.MR, size int, addr uint64, key uint32) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	wr := ibvfd.SendWR{ID: 7, Op: ibvfd.OpRead, Flags: ibvfd.SendSignaled, SGE: sge(into, 0, size), RemoteAddr: addr, RKey: key}
	if _, err := p.a.PostSend([]ibvfd.SendWR{wr}); err != nil {
		return err
	}
	n, err := p.cq.PollUntil(ctx, p.wc)
	if err != nil {
		return err
	}
	if n != 1 {
		return fmt.Errorf("%d completions", n)
	}
	return p.wc[0].Err()
}

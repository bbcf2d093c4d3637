// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/loader"
)

// An MR moves from system memory to a GPU's memory and back, and keeps its keys. Each time the record
// of the old buffer ends, and a record of the new buffer begins, with that buffer's placement.
//
//testbed:machine fabric+EPYC
//testbed:kernel 7.3 7.2
func TestVMInPlaceTraced(t *testing.T) {
	if os.Getenv("GPURDMA_REREG") != "1" {
		t.Skip("the RDMA core of this machine cannot re-register a dma-buf")
	}
	gpu := testenv.SoftGPUs(t, "personality=amdgpu")[0]
	tr := open(t, mine()) // it holds the GPU's driver
	for _, h := range tr.Hooks() {
		if h.Function == loader.ReregDMABuf && !h.Attached() {
			t.Fatal(h.Absent)
		}
	}
	for _, kind := range []string{"pinned", "revocable", "dynamic"} {
		t.Run(kind, func(t *testing.T) {
			testenv.SetImporter(t, "rxe0", kind)
			const size = 1 << 16
			d := openDevice(t)
			system, vram := alloc(t, "udmabuf", size), alloc(t, "drm:"+gpu.PCI+"/vram", size)
			all(t, tr)
			mr := d.register(t, system)
			last := await(t, tr, "registered", onBuffer(inode(system), Registered)).Record
			rereg := func(b *gpualloc.Buffer, off uint64, access *uint32) error {
				return b.Segments()[0].Buf.Do(func(fd int) error {
					return d.ReregDMABufMR(mr.Handle, uverbs.DMABufRereg{Access: access, Memory: &uverbs.DMABufRange{FD: int32(fd), Offset: off, Length: size - off, IOVA: 1<<40 + off}})
				})
			}
			rights := uint32(accessAll)
			for i, x := range []struct {
				to   *gpualloc.Buffer
				want placement.Memory
			}{{vram, placement.PeerToPeer}, {system, placement.SystemMemory}, {vram, placement.PeerToPeer}} {
				off := uint64(i) * 4096
				if err := rereg(x.to, off, &rights); err != nil {
					t.Fatal(err)
				}
				end := await(t, tr, "the end of the old", onBuffer(last.Buffer.Inode, Released)).Record
				if end.ID != last.ID || end.Ended != "re-registered" {
					t.Errorf("it was %+v, and ended as %+v", last, end)
				}
				r := await(t, tr, "re-registered", onBuffer(inode(x.to), Registered)).Record
				t.Log(&r)
				if r.Call != ReregDMABufMR || r.Errno != 0 || r.RDMADevice != "rxe0" || r.Offset != off || r.Length != size-off {
					t.Errorf("record %+v", r)
				}
				if r.MR == nil || r.MR.LKey != mr.LKey || r.MR.RKey != mr.RKey || r.MR.Length != size-off || r.MR.IOVA != 1<<40+off {
					t.Errorf("MR %+v, registered %+v", r.MR, mr)
				}
				if got := r.Placement.Memory; got != x.want {
					t.Errorf("placement %v, want %v", r.Placement, x.want)
				}
				p, err := tr.Prove(within(t), placement.Key{LKey: mr.LKey, Device: "rxe0"})
				if err != nil || p.Memory != x.want {
					t.Errorf("Prove: %v, %v", p, err)
				}
				if live := tr.Records(); len(live) != 1 || live[0].ID != r.ID {
					t.Errorf("live: %v", live)
				}
				last = r
			}

			// A refusal ends nothing.
			if err := rereg(system, size, &rights); !errors.Is(err, unix.EINVAL) {
				t.Fatal(err)
			}
			r := await(t, tr, "refused", func(e Event) bool { return e.Kind == Refused }).Record
			if r.Call != ReregDMABufMR || r.Errno != unix.EINVAL {
				t.Errorf("record %+v", r)
			}
			// Nor do other rights, which are no placement.
			if err := d.ReregDMABufMR(mr.Handle, uverbs.DMABufRereg{Access: &rights}); err != nil {
				t.Fatal(err)
			}
			if live := tr.Records(); len(live) != 1 || live[0].ID != last.ID {
				t.Errorf("live: %v", live)
			}
			// A tracer that has only found the attachment knows that the MR lives on.
			if kind == "pinned" {
				later := open(t, Config{PIDs: []int{os.Getpid()}})
				found := await(t, later, "what was there", onBuffer(last.Buffer.Inode, Existing)).Record
				if err := rereg(system, 0, &rights); err != nil {
					t.Fatal(err)
				}
				if end := await(t, later, "the end of what was there", onBuffer(found.Buffer.Inode, Released)).Record; end.ID != found.ID || end.Ended != "re-registered" {
					t.Errorf("it was %+v, and ended as %+v", found, end)
				}
				last = await(t, tr, "re-registered", onBuffer(inode(system), Registered)).Record
			}
			if err := d.DestroyMR(mr.Handle); err != nil {
				t.Fatal(err)
			}
			end := await(t, tr, "released", onBuffer(last.Buffer.Inode, Released)).Record
			if end.ID != last.ID || end.Ended != "deregistered" {
				t.Errorf("end %+v", end)
			}
			if l := tr.Loss(); l.Any() || l.Orphaned != 0 {
				t.Errorf("%v, %d orphaned", l, l.Orphaned)
			}
		})
	}
}

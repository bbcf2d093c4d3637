// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"testing"

	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// Linux 6.1 verifies a bpf_loop callback with what the stack holds at first,
// and drops branches that it then takes for dead: the bound, the merging and
// the truncation flag of the walk. This looks at each of them.
func TestVMWalk(t *testing.T) {
	const size = 16 << 20
	tr := shared(t)
	d, b := openDevice(t), alloc(t, "drm:virtio_gpu", size)
	mr := d.register(t, b)
	defer d.DestroyMR(mr.Handle)
	r := await(t, tr, "registered", onBuffer(inode(b), Registered)).Record
	in := r.Placement.Evidence
	t.Logf("%d entries, %d ranges: %v", r.Entries, r.Ranges, in.DMA)
	if r.Ranges > r.Entries || r.Ranges == 0 {
		t.Errorf("%d entries made %d ranges", r.Entries, r.Ranges)
	}
	if in.DMA.Dropped != (r.Ranges > abi.MaxRanges) || len(in.DMA.Ranges) != min(r.Ranges, abi.MaxRanges) {
		t.Errorf("%d of %d ranges kept, dropped: %v", len(in.DMA.Ranges), r.Ranges, in.DMA.Dropped)
	}
	if in.DMA.Bytes != size || in.Pages.Bytes != size || in.DMA.Unread {
		t.Errorf("%d bytes by DMA address, %d by page, of %d", in.DMA.Bytes, in.Pages.Bytes, size)
	}
	var kept uint64
	for i, a := range in.DMA.Ranges {
		kept += a.Size
		if i > 0 && in.DMA.Ranges[i-1].End() == a.Start {
			t.Errorf("neighbours %v and %v are not merged", in.DMA.Ranges[i-1], a)
		}
	}
	if !in.DMA.Dropped && kept != size {
		t.Errorf("the ranges have %d bytes of %d", kept, size)
	}
	if r.Placement.Memory != placement.SystemMemory {
		t.Errorf("%v", r.Placement)
	}

	// A walk that ends early must say so, and prove nothing.
	limit := max(1, r.Entries/2)
	setWalk(t, tr, uint32(limit))
	defer setWalk(t, tr, uint32(tr.cfg.WalkLimit))
	mr = d.register(t, b)
	defer d.DestroyMR(mr.Handle)
	r = await(t, tr, "registered", onBuffer(inode(b), Registered)).Record
	in = r.Placement.Evidence
	t.Logf("at most %d entries: %v", limit, r.Placement)
	if r.Entries < 2 {
		t.Skipf("the buffer has %d entries: nothing to cut", r.Entries)
	}
	if !in.DMA.Unread || r.Placement.Memory != placement.Unknown || r.Placement.Likely != placement.SystemMemory {
		t.Errorf("a cut walk gives %v, unread: %v", r.Placement, in.DMA.Unread)
	}
	if in.DMA.Bytes == 0 || in.DMA.Bytes >= size {
		t.Errorf("a cut walk saw %d bytes of %d", in.DMA.Bytes, size)
	}
}

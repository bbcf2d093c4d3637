// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
	"github.com/gpurdma/gpurdma/trace/internal/inventory"
)

// A buffer with more MRs than the kernel's buffer for one object has room for, as of
// `dmabuf-reg register --count 20`, is listed whole, and keeps nothing from being
// listed; of one with more than are listed it is said.
func TestVMInventoryOfMany(t *testing.T) {
	testenv.VM(t)
	d := openDevice(t)
	popular, plain, crowded := alloc(t, "drm:vgem", 1<<20), alloc(t, "drm:virtio_gpu", 1<<20), alloc(t, "drm:vgem", 4096)
	var handles []uint32
	for range 20 {
		handles = append(handles, d.register(t, popular).Handle)
	}
	handles = append(handles, d.register(t, plain).Handle)
	const listed, more = inventory.MaxAttachments, 2
	for range listed + more {
		handles = append(handles, d.register(t, crowded).Handle)
	}
	want := map[uint64]int{inode(popular): 20, inode(plain): 1, inode(crowded): listed}

	tr := open(t, Config{PIDs: []int{os.Getpid()}})
	got := map[uint64]int{}
	for _, e := range all(t, tr) {
		r := e.Record
		if e.Kind != Existing || !r.Existed || want[r.Buffer.Inode] == 0 {
			t.Errorf("%s: %v", e.Kind, &r)
			continue
		}
		got[r.Buffer.Inode]++
		if text := fmt.Sprint(r.Incomplete); strings.Contains(text, "debugfs") {
			t.Errorf("%v: %s", &r, text)
		}
		if m := r.Placement.Memory; m != placement.SystemMemory && (m != placement.Unknown || !testenv.AtLeast(t, "7.0")) {
			t.Errorf("%v", &r)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("attachments by inode: %v, want %v", got, want)
	}
	if text := fmt.Sprint(tr.Unreadable()); len(tr.Unreadable()) != 1 ||
		!strings.Contains(text, fmt.Sprintf("dma-buf %d has %d attachments, of which %d are listed", inode(crowded), listed+more, listed)) {
		t.Errorf("not readable: %s", text)
	}
	for _, h := range handles {
		if err := d.DestroyMR(h); err != nil {
			t.Fatal(err)
		}
	}
	ended := map[uint64]int{}
	for _, e := range all(t, tr) {
		if e.Kind != Released || e.Record.Ended != "deregistered" {
			t.Errorf("%s: %+v", e.Kind, e.Record)
		}
		ended[e.Record.Buffer.Inode]++
	}
	if fmt.Sprint(ended) != fmt.Sprint(want) {
		t.Errorf("ends by inode: %v, want %v", ended, want)
	}
	if live := tr.Records(); len(live) != 0 {
		t.Errorf("%d records live", len(live))
	}
}

// The umem of a registration that asks for a part of a buffer changes the list that
// the attachment keeps: the entry that the part is in begins where the part does, and
// ends there. Nothing has bounced.
//
//testbed:kernel 6.12 6.1
func TestVMInventoryOfAPart(t *testing.T) {
	const size, page = 1 << 20, 4096
	tr := shared(t)
	d := openDevice(t)
	var b *gpualloc.Buffer
	offset, entry := uint64(0), uint64(0)
	for tries := 0; entry == 0; tries++ { // until two pages of a buffer are neighbours
		if tries == 64 {
			t.Fatalf("no entry of two pages in %d buffers", tries)
		}
		b, offset = alloc(t, "drm:virtio_gpu", size), 0
		mr := d.register(t, b)
		ranges := await(t, tr, "registered", onBuffer(inode(b), Registered)).Record.Placement.Evidence.DMA.Ranges
		if err := d.DestroyMR(mr.Handle); err != nil {
			t.Fatal(err)
		}
		for _, r := range ranges {
			if r.Size >= 2*page {
				entry = r.Size
				break
			}
			offset += r.Size
		}
	}
	mr, err := d.try(b, offset+page, page)
	if err != nil {
		t.Fatal(err)
	}
	defer d.DestroyMR(mr.Handle)

	tr = open(t, Config{Inodes: []uint64{inode(b)}})
	r := await(t, tr, "existing", onBuffer(inode(b), Existing)).Record
	t.Log(&r)
	in := r.Placement.Evidence
	if in.DMA.Bytes != size-entry+page || in.Pages.Bytes != size {
		t.Errorf("%d bytes by DMA address, %d by page, of %d: the entry of %d bytes at %#x is not shortened to a page", in.DMA.Bytes, in.Pages.Bytes, size, entry, offset)
	}
	if r.Placement.Memory != placement.SystemMemory || r.Placement.Proof != placement.StructPage || in.Displaced != 0 {
		t.Errorf("%v, %d bytes displaced", r.Placement, in.Displaced)
	}
}

// The inventory does not report an attachment that ends after it was listed and before it is
// followed, since its end would never be reported. It reports an attachment whose buffer only
// lost its descriptors in that time.
func TestVMInventoryMeanwhile(t *testing.T) {
	testenv.VM(t)
	d := openDevice(t)
	gone, freed, left, kept := alloc(t, "drm:vgem", 1<<20), alloc(t, "drm:vgem", 1<<20), alloc(t, "drm:vgem", 1<<20), alloc(t, "drm:vgem", 1<<20)
	inodes := []uint64{inode(gone), inode(freed), inode(left), inode(kept)}
	a, b, c, e := d.register(t, gone), d.register(t, freed), d.register(t, left), d.register(t, kept)
	var after uverbs.MR
	destroy := func(mr uverbs.MR) {
		t.Helper()
		if err := d.DestroyMR(mr.Handle); err != nil {
			t.Fatal(err)
		}
	}
	cfg := Config{Inodes: inodes}
	cfg.listed = func() {
		destroy(a)
		destroy(b)
		for _, b := range []*gpualloc.Buffer{freed, left} {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		after = d.register(t, gone) // may be where the other one was
	}
	tr := open(t, cfg)
	existing, registered := map[uint64]int{}, 0
	for _, e := range all(t, tr) {
		switch {
		case e.Kind == Existing:
			existing[e.Record.Buffer.Inode]++
		case e.Kind == Registered && e.Record.Buffer.Inode == inodes[0]:
			registered++
		default:
			t.Errorf("%s: %+v", e.Kind, e.Record)
		}
	}
	if want := map[uint64]int{inodes[2]: 1, inodes[3]: 1}; fmt.Sprint(existing) != fmt.Sprint(want) || registered != 1 {
		t.Errorf("existing: %v, want %v; %d registered", existing, want, registered)
	}
	for _, mr := range []uverbs.MR{after, c, e} {
		destroy(mr)
	}
	ended := map[uint64]int{}
	for _, e := range all(t, tr) {
		if e.Kind != Released || e.Record.Ended != "deregistered" {
			t.Errorf("%s: %+v", e.Kind, e.Record)
		}
		ended[e.Record.Buffer.Inode]++
	}
	if want := map[uint64]int{inodes[0]: 1, inodes[2]: 1, inodes[3]: 1}; fmt.Sprint(ended) != fmt.Sprint(want) {
		t.Errorf("ends: %v, want %v", ended, want)
	}
	if live := tr.Records(); len(live) != 0 {
		t.Errorf("%d records live", len(live))
	}
	followsNothing(t, tr)
}

// An attachment ends after it was listed. When it is to be followed, there is another one at
// its address and on the same buffer, which lives or has ended too. The inventory does not
// take it for the one that was listed.
func TestVMInventoryAddressAgain(t *testing.T) {
	testenv.VM(t)
	const n = 24
	d := openDevice(t)
	b := alloc(t, "drm:vgem", 1<<20)
	var mrs []uverbs.MR
	register := func() {
		for range n {
			mrs = append(mrs, d.register(t, b))
		}
	}
	destroy := func() {
		t.Helper()
		for _, mr := range mrs {
			if err := d.DestroyMR(mr.Handle); err != nil {
				t.Fatal(err)
			}
		}
		mrs = nil
	}
	for _, lives := range []bool{true, false} {
		register()
		cfg := Config{Inodes: []uint64{inode(b)}}
		cfg.listed = destroy
		cfg.followed = func() {
			register()
			if !lives {
				destroy()
			}
		}
		tr := open(t, cfg)
		kinds := map[EventKind]int{}
		for _, e := range all(t, tr) {
			kinds[e.Kind]++
		}
		destroy()
		for _, e := range all(t, tr) {
			kinds[e.Kind]++
		}
		if want := map[EventKind]int{Registered: n, Released: n}; fmt.Sprint(kinds) != fmt.Sprint(want) {
			t.Errorf("those that come live: %v: %v, want %v", lives, kinds, want)
		}
		t.Log(lives, tr.Loss())
		if live := tr.Records(); len(live) != 0 {
			t.Errorf("those that come live: %v: %d records live: %v", lives, len(live), live[0].String())
		}
		followsNothing(t, tr)
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func followsNothing(t *testing.T, tr *Tracer) {
	t.Helper()
	var key uint64
	var state abi.AttachState
	for it := tr.loader.Map("attaches").Iterate(); it.Next(&key, &state); {
		t.Errorf("still followed: %+v", state)
	}
}

// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
)

// The verdict on every behaviour of the software GPU and every kind of importer
// is what looking into the BAR shows.
//
//testbed:machine fabric+EPYC fabric+EPYC+iommu
//testbed:machine-arm64 fabric fabric+iommu
//testbed:kernel 7.2
func TestVMTruth(t *testing.T) { truthTable(t) }

// Where the kernel has no peer-to-peer, the GPU's driver stages silently.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 6.12
func TestVMTruthWithoutP2PDMA(t *testing.T) { truthTable(t) }

var behaviours = []string{"amdgpu", "xe", "i915", "nvidia", "nvidia-coherent", "vfio"}

func truthTable(t *testing.T) {
	testenv.VM(t)
	gpu := testenv.SoftGPUs(t, "personality=amdgpu")[0]
	imp := testenv.TestImporter(t)
	view := openBAR(t, gpu.PCI)
	c := mine()
	tr := open(t, c)
	seen := map[placement.Memory]int{}
	for _, behaviour := range behaviours {
		t.Run(behaviour, func(t *testing.T) {
			for _, kind := range []testenv.ImporterKind{testenv.StaticImporter, testenv.PinnedImporter, testenv.RevocableImporter, testenv.DynamicImporter} {
				for _, dev := range []string{"edu0", "edu1", "edu3", testenv.SoftDevice} {
					for _, p2p := range []bool{true, false} {
						if p2p && kind == testenv.StaticImporter {
							continue
						}
						name := fmt.Sprintf("%v %s p2p=%v", kind, dev, p2p)
						t.Run(name, func(t *testing.T) {
							r := importedTruth(t, tr, imp, view, onGPU(t, gpu, behaviour), kind, dev, p2p)
							seen[r]++
						})
					}
				}
			}
			for _, nic := range []string{"rxe0", "rxe1"} {
				for _, kind := range rxeKinds(t) {
					t.Run(nic+" "+kind, func(t *testing.T) {
						r := registeredTruth(t, tr, view, onGPU(t, gpu, behaviour), nic, kind)
						seen[r]++
					})
				}
			}
		})
	}
	t.Logf("rows by verdict: %v", seen)
	if l := tr.Loss(); l.Any() {
		t.Error(l)
	}
	if live := tr.Records(); len(live) != 0 {
		t.Errorf("%d records live", len(live))
	}
	if seen[placement.SystemMemory] == 0 || seen[placement.PeerToPeer] == 0 || seen[placement.NotMapped] == 0 {
		t.Errorf("not every verdict occurred: %v", seen)
	}
}

// rxeKinds are the ways in which this kernel's rxe can import.
func rxeKinds(t *testing.T) []string {
	if _, err := os.Stat("/sys/class/infiniband/rxe0/importer"); err != nil {
		if testenv.AtLeast(t, "7.0") {
			t.Fatal(err)
		}
		return []string{""}
	}
	return []string{"pinned", "revocable", "dynamic"}
}

// importedTruth is a row with the test importer.
func importedTruth(t *testing.T, tr *Tracer, imp *testenv.Importer, view bar, b gpuBuffer, kind testenv.ImporterKind, dev string, p2p bool) placement.Memory {
	where := dev
	if dev != testenv.SoftDevice {
		where = pciOf(t, dev)
	}
	all(t, tr)
	var a *testenv.Attachment
	var attachErr, mapErr error
	err := b.Segments()[0].Buf.Do(func(fd int) error {
		a, attachErr = imp.Attach(where, fd, kind, p2p)
		if attachErr == nil {
			_, mapErr = a.Map()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if attachErr != nil {
		e := lastEvent(t, tr, inode(b.Buffer), Refused)
		f := e.Record.Explain()
		if e.Record.Errno != attachErr.(unix.Errno) || f.Stage == StageNone || f.Stage == StageDriver || f.Stage == StageUverbs {
			t.Errorf("attach answered %v, the record says %v", attachErr, f)
		}
		return e.Record.Placement.Memory
	}
	defer func() {
		if err := a.Detach(); err != nil {
			t.Error(err)
		}
		if r := only(t, tr, inode(b.Buffer)); r != nil {
			t.Errorf("detached, and lives: %v", r)
		}
	}()
	r := only(t, tr, inode(b.Buffer))
	if r == nil {
		t.Fatal("no record of the attachment")
	}
	// One that may be revoked shows it when it pins, which is when it maps.
	if mode := string(r.Importer.Mode); mode != wantMode(t, kind.String()) && (mapErr == nil || kind != testenv.RevocableImporter) {
		t.Errorf("mode %q, is %q: %+v", mode, kind, r.Importer)
	}
	if got := r.Importer.PeerAllowed == placement.Yes; got != a.Peer2Peer {
		t.Errorf("peer2peer %v, the importer has %v", r.Importer.PeerAllowed, a.Peer2Peer)
	}
	if mapErr != nil {
		if r.Placement.Memory != placement.NotMapped {
			t.Errorf("map answered %v, the verdict is %v", mapErr, r.Placement)
		}
		return r.Placement.Memory
	}
	view.check(t, "mapped", b, r.Placement)
	verdict := r.Placement.Memory
	again := func() error { _, err := a.Map(); return err }
	if kind == testenv.PinnedImporter {
		again = nil // it keeps the mapping that it has, whatever it is told
	}
	afterMove(t, tr, view, b, again)
	return verdict
}

// wantMode is the mode that can be seen of a kind of importer: before 7.1 every
// one that pins has a callback.
func wantMode(t *testing.T, kind string) string {
	if kind == "revocable" && !testenv.AtLeast(t, "7.1") {
		return string(ModePinned)
	}
	return kind
}

// afterMove evicts or revokes the buffer, and lets the importer map it again:
// the placement is stale in between.
func afterMove(t *testing.T, tr *Tracer, view bar, b gpuBuffer, again func() error) {
	t.Helper()
	actions := []string{"revoke", "evict"}
	if again != nil { // an evicted buffer can be mapped again, and then revoked
		actions = []string{"evict", "revoke"}
	}
	for _, file := range actions {
		if moved := takeAway(t, tr, view, b, file); moved && !mapAgain(t, tr, view, b, again) {
			return
		}
	}
}

// takeAway evicts or revokes the buffer, and reports whether it is mapped no more.
func takeAway(t *testing.T, tr *Tracer, view bar, b gpuBuffer, file string) bool {
	t.Helper()
	ino := inode(b.Buffer)
	before := only(t, tr, ino)
	all(t, tr)
	if err := b.gpu.TrySet(file, fmt.Sprint(ino)); err != nil {
		after := only(t, tr, ino)
		if after.Moves > before.Moves && !testenv.AtLeast(t, "7.1") {
			// On these kernels an importer that pins has a callback, too. The exporter calls
			// it before it finds that the mapping has to stay.
			if after.Placement.Memory != placement.Stale {
				t.Errorf("told that it is invalid, and %v", after.Placement)
			}
			return true
		}
		// Held in place: the verdict stands.
		if after.Placement.Memory != before.Placement.Memory {
			t.Errorf("%s answered %v, the verdict went from %v to %v", file, err, before.Placement, after.Placement)
		}
		view.check(t, "still", b, before.Placement)
		return false
	}
	var kinds []EventKind
	for _, e := range all(t, tr) {
		if e.Record.Buffer == nil || e.Record.Buffer.Inode != ino {
			continue
		}
		kinds = append(kinds, e.Kind)
		if m := e.Record.Placement.Memory; e.Kind == Moved && m != placement.Stale || e.Kind == Unmapped && m != placement.NotMapped {
			t.Errorf("%s: %s: %v", file, e.Kind, e.Record.Placement)
		}
	}
	r := only(t, tr, ino)
	switch {
	case file == "revoke" && !slices.Contains(kinds, Moved):
		t.Errorf("revoked, and all that was seen is %v", kinds)
	case r.Moves == before.Moves:
		// The exporter had nothing to move, or keeps it from this importer.
		view.check(t, "not moved", b, r.Placement)
		return false
	case r.Placement.Memory != placement.Stale && r.Placement.Memory != placement.NotMapped:
		t.Errorf("after %s: %v", file, r.Placement)
	}
	return true
}

// mapAgain compares the next mapping with the truth. It reports whether there is one.
func mapAgain(t *testing.T, tr *Tracer, view bar, b gpuBuffer, again func() error) bool {
	t.Helper()
	if again == nil {
		return false
	}
	ino := inode(b.Buffer)
	if err := again(); err != nil {
		if after := only(t, tr, ino).Placement; after.Memory == placement.PeerToPeer || after.Memory == placement.SystemMemory {
			t.Errorf("mapping again answered %v, the verdict is %v", err, after)
		}
		return false
	}
	view.check(t, "mapped again", b, only(t, tr, ino).Placement)
	return true
}

// registeredTruth is a row with rxe.
func registeredTruth(t *testing.T, tr *Tracer, view bar, b gpuBuffer, nic, kind string) placement.Memory {
	if kind != "" {
		testenv.SetImporter(t, nic, kind)
	}
	d := openNIC(t, nic)
	all(t, tr)
	mr, err := d.try(b.Buffer, 0, truthSize)
	ino := inode(b.Buffer)
	if err != nil {
		e := lastEvent(t, tr, ino, Refused)
		f := e.Record.Explain()
		if e.Record.Errno != err.(unix.Errno) || f.Stage == StageNone || f.Stage == StageUverbs {
			t.Errorf("registration answered %v, the record says %v", err, f)
		}
		t.Log(f)
		return e.Record.Placement.Memory
	}
	defer func(mr uverbs.MR) {
		if err := d.DestroyMR(mr.Handle); err != nil {
			t.Error(err)
		}
		if r := only(t, tr, ino); r != nil {
			t.Errorf("deregistered, and lives: %v", r)
		}
	}(mr)
	r := only(t, tr, ino)
	if r == nil {
		t.Fatal("no record of the registration")
	}
	if kind != "" && string(r.Importer.Mode) != wantMode(t, kind) {
		t.Errorf("mode %q, is %q: %+v", r.Importer.Mode, kind, r.Importer)
	}
	view.check(t, "registered", b, r.Placement)
	verdict := r.Placement.Memory
	afterMove(t, tr, view, b, nil)
	return verdict
}

// lastEvent is the newest event of a kind on a buffer, up to now.
func lastEvent(t *testing.T, tr *Tracer, ino uint64, kind EventKind) Event {
	t.Helper()
	events := all(t, tr)
	for i := len(events) - 1; i >= 0; i-- {
		if onBuffer(ino, kind)(events[i]) {
			return events[i]
		}
	}
	t.Fatalf("no event %q on dma-buf %d among %v", kind, ino, events)
	return Event{}
}

// lastFailure explains the newest refusal of a kind on a buffer.
func lastFailure(t *testing.T, tr *Tracer, ino uint64, kind EventKind) Failure {
	t.Helper()
	r := lastEvent(t, tr, ino, kind).Record
	f := r.Explain()
	t.Log(f)
	return f
}

// An importer that may not use peer-to-peer takes it away from all others, and
// is named.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMDemotion(t *testing.T) {
	testenv.VM(t)
	gpu := testenv.SoftGPUs(t, "personality=amdgpu")[0]
	imp := testenv.TestImporter(t)
	view := openBAR(t, gpu.PCI)
	c := mine()
	c.RDMAOnly = true // all importers of a followed buffer are seen all the same
	tr := open(t, c)
	b := onGPU(t, gpu, "amdgpu")
	testenv.SetImporter(t, "rxe0", "dynamic")
	d := openNIC(t, "rxe0")
	mr, err := d.try(b.Buffer, 0, truthSize)
	if err != nil {
		t.Fatal(err)
	}
	defer d.DestroyMR(mr.Handle)
	p := await(t, tr, "registered", onBuffer(inode(b.Buffer), Registered)).Record.Placement
	view.check(t, "alone", b, p)
	if p.Memory != placement.PeerToPeer {
		t.Errorf("alone: %v", p)
	}
	var other *testenv.Attachment
	err = b.Segments()[0].Buf.Do(func(fd int) error {
		other, err = imp.Attach(testenv.SoftDevice, fd, testenv.DynamicImporter, false)
		if err == nil {
			_, err = other.Map()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Detach()
	e := await(t, tr, "the registration's move", func(e Event) bool { return e.Kind == Moved && e.Record.Registration() })
	if e.Record.Placement.Memory != placement.Stale {
		t.Errorf("%v", e.Record.Placement)
	}
	u := await(t, tr, "the registration's unmapping", func(u Event) bool { return u.Kind == Unmapped && u.Record.ID == e.Record.ID })
	if u.Record.Placement.Memory != placement.NotMapped || u.Record.Moves != 1 {
		t.Errorf("%v after %d moves", u.Record.Placement, u.Record.Moves)
	}
	soft := await(t, tr, "mapping of the other importer", func(e Event) bool { return e.Kind == Mapped && !e.Record.Registration() }).Record
	view.check(t, "the other importer", b, soft.Placement)

	// A second registration beside it, which pins: in VRAM only if every
	// importer may use peer-to-peer.
	testenv.SetImporter(t, "rxe0", "pinned")
	again, err := d.try(b.Buffer, 0, truthSize)
	if err != nil {
		t.Fatal(err)
	}
	defer d.DestroyMR(again.Handle)
	r := await(t, tr, "registered", onBuffer(inode(b.Buffer), Registered)).Record
	view.check(t, "beside", b, r.Placement)
	if r.Placement.Memory != placement.SystemMemory || !strings.Contains(r.DemotedBy, soft.Importer.Device) {
		t.Errorf("%v, demoted by %q, the other importer is %q", r.Placement, r.DemotedBy, soft.Importer.Device)
	}
	mustHave(t, r.String(), "demoted by "+soft.Importer.Device)
}

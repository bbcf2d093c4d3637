// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

func TestJoinLife(t *testing.T) {
	var c clock
	j := testJoiner(100)
	w := made(&c, 1, translated, physical)
	j.handle(w)
	e := wantKinds(t, j, Registered)[0]
	if p := e.Record.Placement; p.Memory != placement.PeerToPeer || p.Proof != placement.PhysicalAddress {
		t.Errorf("mlx5 on amdgpu under an IOMMU: %v", p)
	}
	if e.Record.Importer.Mode != ModeDynamic || e.Record.RDMADevice != "mlx5_0" || !e.Record.Importer.IsPCI {
		t.Errorf("importer %+v", e.Record.Importer)
	}
	// Evicted: told, unmapped, mapped again in system memory by a page fault.
	j.handle(happens(&c, abi.EventMove, w))
	if m := verdictOf(t, j, 1); m != placement.Stale {
		t.Errorf("after a move: %v", m)
	}
	j.handle(happens(&c, abi.EventUnmap, w))
	if m := verdictOf(t, j, 1); m != placement.NotMapped {
		t.Errorf("after unmapping: %v", m)
	}
	j.handle(remapped(&c, w, inRAM, func(w *abi.Record) { w.Have &^= abi.HaveIOMMU; w.NResources = 0; w.Res = abi.Tally{} }))
	if m := verdictOf(t, j, 1); m != placement.SystemMemory {
		t.Errorf("after the second mapping: %v", m)
	}
	in := happens(&c, abi.EventUnmap, w)
	in.Flags = abi.EventInDereg
	j.handle(in)
	j.handle(happens(&c, abi.EventDetach, w))
	j.handle(happens(&c, abi.EventDereg, w))
	events := wantKinds(t, j, Moved, Unmapped, Mapped, Released)
	if r := events[3].Record; r.Ended != "deregistered" || r.Moves != 1 || r.Placement.Memory != placement.SystemMemory {
		t.Errorf("the end: %+v", r)
	}
	if len(j.live) != 0 || j.order.Len() != 0 {
		t.Error("it still lives")
	}
	// A copy that was handed out does not change.
	if events[0].Record.Placement.Memory != placement.Stale {
		t.Errorf("the move's record became %v", events[0].Record.Placement)
	}
}

// The address of an attachment, an MR and a dma-buf are used again at once.
func TestJoinAddressReuse(t *testing.T) {
	var c clock
	j := testJoiner(100)
	same := func(w *abi.Record) { w.Attach, w.MR, w.DMABuf, w.SGT = 0xa, 0xd, 0xb, 0xc }
	first := made(&c, 1, same)
	j.handle(first)
	second := made(&c, 2, same, inRAM)
	j.handle(second) // the first one's end is late
	j.handle(happens(&c, abi.EventDereg, first))
	if j.live[1] != nil || j.live[2] == nil {
		t.Fatal("the end of the first ended the second")
	}
	// A move of the first one's buffer says nothing about the second's.
	move := happens(&c, abi.EventMove, first)
	j.handle(move)
	if m := verdictOf(t, j, 2); m != placement.SystemMemory {
		t.Errorf("%v: a move of another buffer at the same address", m)
	}
}

// Another thread may act on an attachment before the call that made it is
// back: its events come first.
func TestJoinReorder(t *testing.T) {
	var c clock
	j := testJoiner(100)
	w := made(&c, 5)
	j.handle(happens(&c, abi.EventMove, w))
	j.handle(happens(&c, abi.EventRevoke, w))
	j.handle(w)
	wantKinds(t, j, Registered, Revoked)
	if m := verdictOf(t, j, 5); m != placement.Stale {
		t.Errorf("a revocation that came early is forgotten: %v", m)
	}
	// A move between the mapping and the end of the call.
	w = made(&c, 6)
	m := happens(&c, abi.EventMove, w)
	m.Head.Time = w.MappedAt + 1
	j.handle(m)
	j.handle(w)
	if got := verdictOf(t, j, 6); got != placement.Stale {
		t.Errorf("a move during the call is forgotten: %v", got)
	}
	// And one before the mapping does not matter.
	w = made(&c, 7)
	m = happens(&c, abi.EventMove, w)
	m.Head.Time = w.MappedAt - 1
	j.handle(m)
	j.handle(w)
	if got := verdictOf(t, j, 7); got != placement.PeerToPeer {
		t.Errorf("a move before the mapping: %v", got)
	}
	if j.nEarly != 0 || len(j.early) != 0 {
		t.Errorf("%d events wait", j.nEarly)
	}
}

// Early events that were given up are missing from a record that comes later.
func TestJoinEarlyGivenUp(t *testing.T) {
	j, c := testJoiner(10), clock(0)
	slow := made(&c, 3)
	j.handle(made(&c, 4+maxEarly))
	if m := verdictOf(t, j, 4+maxEarly); m != placement.PeerToPeer {
		t.Errorf("%v before anything was given up", m)
	}
	j.handle(happens(&c, abi.EventDereg, slow))
	j.handle(slow)
	if m := verdictOf(t, j, 3); m != placement.Unknown {
		t.Errorf("deregistered before its call came back, which was forgotten: %v", m)
	}
	j.handle(made(&c, 5+maxEarly))
	if m := verdictOf(t, j, 5+maxEarly); m != placement.PeerToPeer {
		t.Errorf("a later one: %v", m)
	}
}

// Events of an attachment that existed before the tracer and is no longer followed are not kept
// for a later record, and do not change the verdicts of later records.
func TestJoinEarlyExisting(t *testing.T) {
	var c clock
	j := testJoiner(10)
	old := made(&c, existedBit|1)
	for range maxEarly + 10 {
		j.handle(happens(&c, abi.EventUnmap, old))
	}
	if j.nEarly != 0 || len(j.early) != 0 || j.orphan != maxEarly+10 {
		t.Errorf("%d events wait, %d are orphans", j.nEarly, j.orphan)
	}
	slow := made(&c, 2)
	j.handle(happens(&c, abi.EventMove, slow))
	j.handle(happens(&c, abi.EventRevoke, slow))
	j.handle(made(&c, 3))
	j.handle(slow)
	if m := verdictOf(t, j, 3); m != placement.PeerToPeer {
		t.Errorf("a registration that came after them: %v", m)
	}
	if m := verdictOf(t, j, 2); m != placement.Stale {
		t.Errorf("one that was revoked before its call came back: %v", m)
	}
}

func TestJoinLoss(t *testing.T) {
	var c clock
	j := testJoiner(100)
	old := made(&c, 1)
	j.handle(old)
	j.take()
	j.handle(made(&c, 2))
	gone := made(&c, 3)
	j.handle(gone)
	j.handle(happens(&c, abi.EventDereg, gone))
	var before, after [abi.EventTypes]uint64
	after[abi.EventMove] = 2
	j.lose(lossWords(before, after), uint64(c))
	for _, e := range j.take() {
		if p := e.Record.Placement; p.Memory != placement.Unknown {
			t.Errorf("%s of record %d, in the batch of the loss: %v", e.Kind, e.Record.ID, p)
		}
	}
	if m := verdictOf(t, j, 1); m != placement.Unknown {
		t.Errorf("a record older than the loss: %v", m)
	}
	// A record after the loss has a verdict again.
	j.handle(made(&c, 4))
	if m := verdictOf(t, j, 4); m != placement.PeerToPeer {
		t.Errorf("a record younger than the loss: %v", m)
	}
	after[abi.EventExport], before[abi.EventMove] = 5, 2
	if w := lossWords(before, after); w != "" {
		t.Errorf("lost exports matter to nobody: %q", w)
	}
}

func TestJoinRefused(t *testing.T) {
	var c clock
	j := testJoiner(100)
	w := made(&c, 1, func(w *abi.Record) { w.Ret = -int32(unix.EBUSY) })
	j.handle(w)
	e := wantKinds(t, j, Refused)[0]
	if e.Record.Placement.Memory != placement.NotMapped || e.Record.Placement.Errno != int(unix.EBUSY) {
		t.Errorf("%v", e.Record.Placement)
	}
	if len(j.live) != 0 {
		t.Error("a refused registration lives")
	}
	// A dereg that fails ends nothing.
	w = made(&c, 2)
	j.handle(w)
	d := happens(&c, abi.EventDereg, w)
	d.Ret = -int32(unix.EBUSY)
	j.handle(d)
	if j.live[2] == nil {
		t.Error("a refused deregistration ended the record")
	}
}

// A call without a descriptor is a question, and no refusal.
func TestJoinProbe(t *testing.T) {
	j := testJoiner(100)
	j.handle(refused(unix.EBADF, func(w *abi.Record) { nothing(w); w.FD = -1 }, ret{abi.FuncGet, unix.EBADF, 0}))
	j.handle(refused(unix.EBADF, nothing, ret{abi.FuncGet, unix.EBADF, 0}))
	// Whose driver has no such op says so.
	j.handle(refused(unix.EOPNOTSUPP, func(w *abi.Record) { nothing(w); w.FD = -1 }))
	wantKinds(t, j, Probed, Refused, Refused)
}

// A call that is under way when a loss is noticed may have missed it, and so may an
// attachment that was lost itself.
func TestJoinLossUnderWay(t *testing.T) {
	var c clock
	j := testJoiner(100)
	slow, unseen := made(&c, 1, translated, physical), made(&c, 3, translated, physical)
	fault := remapped(&c, unseen)
	j.lose("1 moves", c.tick())
	j.handle(slow)
	j.handle(fault)
	j.handle(made(&c, 2, translated, physical))
	events := wantKinds(t, j, Registered, Mapped, Registered)
	for i, want := range []placement.Memory{placement.Unknown, placement.Unknown, placement.PeerToPeer} {
		if p := events[i].Record.Placement; p.Memory != want {
			t.Errorf("event %d: %v, want %v", i, p, want)
		}
	}
}

// Where moves cannot be watched, only what is pinned is where it was.
func TestJoinMovesUnseen(t *testing.T) {
	var c clock
	j := testJoiner(100)
	j.conv.unmoved = true
	j.handle(made(&c, 1, translated, physical))
	j.handle(made(&c, 2, translated, physical, func(w *abi.Record) { w.Have |= abi.HavePin }))
	if m := verdictOf(t, j, 1); m != placement.Unknown {
		t.Errorf("one that may be moved: %v", m)
	}
	if m := verdictOf(t, j, 2); m != placement.PeerToPeer {
		t.Errorf("one that is pinned: %v", m)
	}
}

// irdma's: the exporter tells, the umem is revoked, and is unmapped.
func TestJoinRevoked(t *testing.T) {
	var c clock
	j := testJoiner(100)
	w := made(&c, 1)
	j.handle(w)
	j.handle(happens(&c, abi.EventMove, w))
	j.handle(happens(&c, abi.EventRevoke, w))
	j.handle(happens(&c, abi.EventUnmap, w))
	events := wantKinds(t, j, Registered, Moved, Revoked, Unmapped)
	if events[2].Record.Placement.Memory != placement.Stale || events[3].Record.Placement.Memory != placement.NotMapped {
		t.Errorf("%v, then %v", events[2].Record.Placement, events[3].Record.Placement)
	}
}

// The revocation of a buffer that is not mapped is none: an importer that was refused cleans up.
func TestJoinRevokedUnmapped(t *testing.T) {
	var c clock
	j := testJoiner(100)
	w := made(&c, 1, func(w *abi.Record) {
		w.Kind, w.Have = abi.KindAttach, w.Have&^(abi.HaveMR|abi.HaveMap)
		w.DMA = abi.Tally{}
	})
	j.handle(w)
	j.handle(happens(&c, abi.EventRevoke, w))
	if m := verdictOf(t, j, 1); m != placement.NotMapped {
		t.Errorf("%v", m)
	}
	d := happens(&c, abi.EventDetach, w)
	d.Flags = abi.EventInDereg
	j.handle(d)
	if r := wantKinds(t, j, Attached, Released)[1].Record; r.Ended != "deregistered" {
		t.Errorf("ended: %q", r.Ended)
	}
}

// Another importer of the buffer that may not use peer-to-peer is named where
// the bytes are in system memory, and only there.
func TestJoinDemotion(t *testing.T) {
	var c clock
	j := testJoiner(100)
	barred := func(w *abi.Record) {
		w.NOthers, w.NBarred, w.OpPin = 3, 2, 1
		w.Have |= abi.HaveP2P
		set(w.Barred[:], "0000:06:00.0")
	}
	w := made(&c, 1, barred)
	j.handle(w)
	if r := wantKinds(t, j, Registered)[0].Record; r.DemotedBy != "" || r.Placement.Memory != placement.PeerToPeer {
		t.Errorf("behind a BAR: %+v", r)
	}
	j.handle(remapped(&c, w, inRAM, barred))
	if r := wantKinds(t, j, Mapped)[0].Record; r.DemotedBy != "0000:06:00.0 and 1 more" || r.Placement.Memory != placement.SystemMemory {
		t.Errorf("demoted by %q: %v", r.DemotedBy, r.Placement)
	}
	j.handle(remapped(&c, w, inRAM, barred, func(w *abi.Record) { w.Have &^= abi.HaveP2P }))
	if r := wantKinds(t, j, Mapped)[0].Record; r.DemotedBy != "" {
		t.Errorf("an importer that may not use peer-to-peer itself was demoted by %q", r.DemotedBy)
	}
}

// An importer that pins after it attached, and has a callback, can be revoked
// where one that pins needs none.
func TestJoinPinLater(t *testing.T) {
	for optional, want := range map[bool]Mode{true: ModeRevocable, false: ModePinned} {
		var c clock
		j := testJoiner(100)
		j.conv.optional = optional
		w := made(&c, 1, func(w *abi.Record) { w.Kind = abi.KindAttach; w.Have &^= abi.HaveMR })
		j.handle(w)
		if r := wantKinds(t, j, Attached)[0].Record; r.Importer.Mode != ModeDynamic || r.Pinned {
			t.Errorf("%+v", r.Importer)
		}
		refused := happens(&c, abi.EventPin, w)
		refused.Ret = -int32(unix.EBUSY)
		j.handle(refused)
		if r := j.records()[0]; r.Importer.Mode != ModeDynamic || r.Pinned {
			t.Errorf("a refused pin: %+v", r.Importer)
		}
		j.handle(happens(&c, abi.EventPin, w))
		if r := j.records()[0]; r.Importer.Mode != want || !r.Pinned {
			t.Errorf("optional %v: %+v", optional, r.Importer)
		}
	}
}

// The mapping made inside attach (up to 6.12) lives as long as the attachment,
// and its evidence was seen there.
func TestJoinCachedMapping(t *testing.T) {
	var c clock
	j := testJoiner(100)
	w := made(&c, 1, translated, physical, func(w *abi.Record) {
		w.Kind = abi.KindAttach
		w.Have |= abi.HaveCached
		w.Have &^= abi.HaveMR
	})
	j.handle(w)
	j.handle(remapped(&c, w, func(w *abi.Record) { w.NResources, w.Res = 0, abi.Tally{} }))
	if m := verdictOf(t, j, 1); m != placement.PeerToPeer {
		t.Errorf("the cached table, mapped: %v", m)
	}
	j.handle(happens(&c, abi.EventUnmap, w))
	if m := verdictOf(t, j, 1); m != placement.PeerToPeer {
		t.Errorf("the cached table, unmapped, which does nothing: %v", m)
	}
	// Another table is another mapping, without evidence.
	j.handle(remapped(&c, w, func(w *abi.Record) { w.NResources, w.Res, w.SGT = 0, abi.Tally{}, 0xeeee }))
	if m := verdictOf(t, j, 1); m != placement.Unknown {
		t.Errorf("a new table: %v", m)
	}
	j.handle(happens(&c, abi.EventDetach, w))
	wantKinds(t, j, Attached, Mapped, Mapped, Released)
}

func TestJoinRelease(t *testing.T) {
	var c clock
	j := testJoiner(100)
	w := made(&c, 1)
	j.handle(w)
	j.handle(happens(&c, abi.EventRelease, w)) // its dereg was lost
	events := wantKinds(t, j, Registered, Released)
	if r := events[1].Record; len(r.Incomplete) == 0 || r.Ended != "buffer released" {
		t.Errorf("%+v", r)
	}
}

func TestJoinProcessExit(t *testing.T) {
	var c clock
	j := testJoiner(100)
	w := made(&c, 1)
	j.handle(w)
	d := happens(&c, abi.EventDereg, w)
	d.Flags = abi.EventExiting
	j.handle(d)
	if r := j.take()[1].Record; r.Ended != "process exit" {
		t.Errorf("ended by %q", r.Ended)
	}
}

func TestJoinMapRefused(t *testing.T) {
	var c clock
	j := testJoiner(100)
	w := made(&c, 1, func(w *abi.Record) { w.Kind = abi.KindAttach; w.Have &^= abi.HaveMR | abi.HaveMap })
	j.handle(w)
	j.handle(remapped(&c, w, func(w *abi.Record) {
		w.Ret, w.NSteps = -int32(unix.EINVAL), 1
		w.Steps[0] = abi.Step{Func: abi.FuncMap, Ret: -int32(unix.EINVAL)}
	}))
	e := wantKinds(t, j, Attached, MapRefused)[1]
	if p := e.Record.Placement; p.Memory != placement.NotMapped || p.Errno != int(unix.EINVAL) {
		t.Errorf("%v", p)
	}
	if f := e.Record.Explain(); f.Stage != StageMap || f.Errno != unix.EINVAL || len(f.Chain) != 1 {
		t.Errorf("%+v", f)
	}
	// The record itself has not failed: its next mapping may succeed.
	j.handle(remapped(&c, w, func(w *abi.Record) { w.Have |= abi.HaveMap }))
	if r := wantKinds(t, j, Mapped)[0].Record; r.Failed() || r.Placement.Memory != placement.PeerToPeer {
		t.Errorf("mapped after a refusal: %+v", r)
	}
}

func TestJoinFind(t *testing.T) {
	var c clock
	j := testJoiner(10)
	j.handle(made(&c, 1))
	j.handle(made(&c, 2))
	other := made(&c, 3, func(w *abi.Record) { w.Kind, w.Have, w.Inode = abi.KindAttach, w.Have&^abi.HaveMR, 1001 })
	j.handle(other) // a display's, on the first one's buffer
	for _, row := range []struct {
		key  placement.Key
		want uint64
	}{
		{placement.Key{LKey: 1 << 8}, 1},
		{placement.Key{RKey: 2<<8 | 1, Device: "mlx5_0", PID: 100}, 2},
		{placement.Key{Inode: 1001}, 1},
		{placement.Key{LKey: 1 << 8, Device: "mlx5_1"}, 0},
		{placement.Key{LKey: 9 << 8}, 0},
	} {
		e := j.find(row.key)
		if got := uint64(0); e != nil && e.rec.ID != row.want || e == nil && row.want != got {
			t.Errorf("find %+v: %v, want record %d", row.key, e, row.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	var c clock
	w := made(&c, 1)
	f.Add(recordBytes(w))
	f.Add([]byte{})
	f.Add([]byte{abi.EventMove, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		ev, err := abi.Decode(data)
		if err != nil {
			return
		}
		j := testJoiner(4)
		j.handle(ev)
		for _, e := range j.take() {
			_ = e.Record.String()
			_ = e.Record.Explain()
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"container/list"
	"slices"

	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
	"github.com/gpurdma/gpurdma/trace/internal/inventory"
)

// entry is a record that lives, with the evidence for its verdict.
type entry struct {
	rec      Record
	in       placement.Inputs
	attach   uint64
	dmabuf   uint64
	cached   bool // mapped inside attach: unmapping it is a no-op
	sgt      uint64
	mappedAt uint64
	tracksMR bool
	age      *list.Element
	beside   *list.Element // among those on its buffer, nil if that is not known
}

// bufferID is a dma-buf's address, which is used again, and its inode, which is not.
type bufferID struct{ dmabuf, inode uint64 }

func (e *entry) buffer() (id bufferID, known bool) {
	if e.rec.Buffer == nil {
		return id, false
	}
	return bufferID{e.dmabuf, e.rec.Buffer.Inode}, true
}

// maxEarly bounds events that came before the record they belong to.
const maxEarly = 1 << 12

// joiner is the state that events change. It does no input or output, so that
// tests can feed it whatever sequence they like.
//
// Events join by the identity that the programs gave the registration, never
// by an address: addresses are used again.
type joiner struct {
	conv *converter
	max  int

	live   map[uint64]*entry
	order  *list.List              // of identities, oldest first
	onBuf  map[bufferID]*list.List // the same, by buffer: a process's end releases many
	looked uint64                  // at how many records moves and releases have looked
	early  map[uint64][]*abi.Event
	nEarly int
	newest uint64               // identity of the newest record
	blind  uint64               // newest identity that early events were given up for
	lostAt uint64               // when a loss was last noticed
	lost   string               // the events that were lost then
	moved  map[uint64]moveState // by dma-buf, until it is released
	called map[uint64][]string  // the calling functions, by the identity of a record that comes next
	out    []*update
	evict  uint64 // records given up for lack of room
	orphan uint64 // early events given up
}

type moveState struct {
	inode uint64
	time  uint64
}

// update is an event to hand out, once the loss counters have been looked at.
type update struct {
	kind EventKind
	time uint64
	rec  Record
	in   placement.Inputs
}

func newJoiner(c *converter, max int) *joiner {
	return &joiner{
		conv: c, max: max, live: map[uint64]*entry{}, order: list.New(), onBuf: map[bufferID]*list.List{},
		early: map[uint64][]*abi.Event{}, moved: map[uint64]moveState{}, called: map[uint64][]string{},
	}
}

// handle takes one decoded event.
func (j *joiner) handle(ev any) {
	switch ev := ev.(type) {
	case *abi.Record:
		j.record(ev)
	case *abi.Event:
		j.event(ev)
	case *abi.Callers:
		j.callers(ev)
	case *abi.Export:
		if ev.Event.Head.Type == abi.EventExport {
			j.exported(ev)
		}
	}
}

// judge brings a record's verdict up to date.
func (j *joiner) judge(e *entry) {
	e.rec.Placement = j.decide(e.in)
	e.rec.DemotedBy = ""
	if e.rec.Placement.Memory == placement.SystemMemory {
		e.rec.DemotedBy = e.rec.demoter
	}
}

func (j *joiner) emit(kind EventKind, when uint64, e *entry) {
	j.judge(e)
	u := &update{kind: kind, time: when, rec: e.rec, in: e.in}
	u.rec.Steps, u.rec.Incomplete = slices.Clone(e.rec.Steps), slices.Clone(e.rec.Incomplete)
	j.out = append(j.out, u)
}

// decide makes the verdict. If the memory map lacks one of the addresses, or a BAR is no longer
// where the map has it, decide reads the map again: a device may have been added, or another
// device may have the addresses now.
func (j *joiner) decide(in placement.Inputs) placement.Placement {
	p := placement.Decide(in, j.conv.machine.Get())
	for _, q := range p.Places {
		if !j.conv.machine.Holds(q) && j.conv.machine.Again() {
			return placement.Decide(in, j.conv.machine.Get())
		}
	}
	return p
}

func (j *joiner) record(w *abi.Record) {
	if w.Kind == abi.KindMap {
		j.remap(w)
		return
	}
	if w.Kind != abi.KindInventory && w.Head.ID > j.newest {
		j.newest = w.Head.ID
		if j.newest%maxEarly == 0 {
			j.settle()
		}
	}
	e := &entry{
		rec: j.conv.record(w), in: j.conv.inputs(w), attach: w.Attach, dmabuf: w.DMABuf,
		cached: w.Have&abi.HaveCached != 0, sgt: w.SGT, mappedAt: w.MappedAt, tracksMR: w.Have&abi.HaveMR != 0,
	}
	callers := j.called[w.Head.ID]
	delete(j.called, w.Head.ID)
	e.rec.Use = j.conv.use(w, e.rec.Importer, callers)
	if w.Ret < 0 {
		kind := Refused
		if e.rec.Probe() {
			kind = Probed
		} else {
			e.rec.finding = j.conv.findings.of(&e.rec, j.besides(e))
		}
		j.emit(kind, w.Head.Time, e)
		j.nEarly -= len(j.early[w.Head.ID])
		delete(j.early, w.Head.ID)
		return
	}
	switch {
	case w.Have&abi.HaveUntracked != 0:
		e.in.Lost = "there was no room to follow it"
	case w.Kind != abi.KindInventory && w.Head.ID <= j.blind:
		e.in.Lost = "what happened before its call came back"
	case j.missedBy(w):
		e.in.Lost = j.lost
	}
	if m, ok := j.moved[w.DMABuf]; ok && m.inode == w.Inode && m.time > w.MappedAt && w.MappedAt != 0 {
		e.in.Moved = true
		e.rec.Moves++
	}
	if !registration(w.Kind) || w.Have&abi.HaveAttach != 0 {
		j.keep(w.Head.ID, e, w.Head.Time)
	}
	switch {
	case w.Kind == abi.KindInventory:
		j.emit(Existing, w.Head.Time, e)
	case registration(w.Kind):
		j.emit(Registered, w.Head.Time, e)
	default:
		j.emit(Attached, w.Head.Time, e)
	}
	// Events of other threads, which came before this call returned.
	events := j.early[w.Head.ID]
	delete(j.early, w.Head.ID)
	j.nEarly -= len(events)
	for _, ev := range events {
		j.event(ev)
	}
}

// note adds to a record that has just come which MRs it may belong to.
func (j *joiner) note(id uint64, mrs inventory.MRs) {
	e := j.live[id]
	if e == nil {
		return
	}
	s := mrOf(&e.rec, mrs)
	if s == "" {
		return
	}
	e.rec.Incomplete = append(e.rec.Incomplete, s)
	for _, u := range j.out {
		if u.rec.ID == id {
			u.rec.Incomplete = slices.Clone(e.rec.Incomplete)
		}
	}
}

// keep follows a record from now on. The oldest one makes room for it.
func (j *joiner) keep(id uint64, e *entry, now uint64) {
	if old := j.live[id]; old != nil {
		j.drop(id, old)
	}
	e.age = j.order.PushBack(id)
	j.live[id] = e
	if b, ok := e.buffer(); ok {
		if j.onBuf[b] == nil {
			j.onBuf[b] = list.New()
		}
		e.beside = j.onBuf[b].PushBack(id)
	}
	for len(j.live) > j.max {
		oldest := j.order.Front().Value.(uint64)
		given := j.live[oldest]
		j.drop(oldest, given)
		j.evict++
		j.emit(GivenUp, now, given)
	}
}

func (j *joiner) drop(id uint64, e *entry) {
	j.order.Remove(e.age)
	delete(j.live, id)
	if b, ok := e.buffer(); ok && e.beside != nil {
		l := j.onBuf[b]
		l.Remove(e.beside)
		if l.Len() == 0 {
			delete(j.onBuf, b)
		}
	}
}

// eachOn calls fn for the records on a buffer, oldest first. fn may end these records.
func (j *joiner) eachOn(b bufferID, fn func(id uint64, e *entry)) {
	l := j.onBuf[b]
	if l == nil {
		return
	}
	for el := l.Front(); el != nil; {
		id := el.Value.(uint64)
		el = el.Next()
		j.looked++
		fn(id, j.live[id])
	}
}

// remap takes in a new mapping of an attachment that was made before: by a page
// fault, after a move, or by an importer that attaches and maps in two steps.
func (j *joiner) remap(w *abi.Record) {
	e := j.live[w.Head.ID]
	if e == nil {
		e = &entry{rec: j.conv.record(w), attach: w.Attach, dmabuf: w.DMABuf}
		e.rec.Use = j.conv.use(w, e.rec.Importer, nil)
		e.rec.Incomplete = append(e.rec.Incomplete, "its attachment was not seen")
		if j.missedBy(w) {
			e.in.Lost = j.lost
		}
		j.keep(w.Head.ID, e, w.Head.Time)
	}
	in := j.conv.inputs(w)
	if w.Have&abi.HaveCached != 0 && w.SGT == e.sgt && in.Resources.Empty() {
		// The scatter table is the same: the evidence was seen when it was made.
		in.Resources, in.MapType = e.in.Resources, e.in.MapType
	}
	if in.Reach == placement.MapTypeUnseen {
		in.Reach = e.in.Reach // the exporter asks when it is attached
	}
	in.Preexisting, in.Lost = e.in.Preexisting, e.in.Lost
	e.in, e.sgt, e.mappedAt, e.cached = in, w.SGT, w.MappedAt, w.Have&abi.HaveCached != 0
	e.rec.Entries, e.rec.Ranges, e.rec.demoter = int(w.Nents), int(w.NRanges), demoter(w)
	if w.Ret < 0 {
		j.emit(MapRefused, w.Head.Time, e)
		r := &j.out[len(j.out)-1].rec
		j.conv.refusedMap(r, w)
		r.finding = j.conv.findings.of(r, j.besides(e))
		return
	}
	j.emit(Mapped, w.Head.Time, e)
}

// callers keeps the functions that led to a record, which the same thread sends a moment
// later. Callers whose record is filtered out stay until there are too many.
func (j *joiner) callers(c *abi.Callers) {
	if len(j.called) >= maxEarly {
		clear(j.called)
	}
	j.called[c.Event.Head.ID] = c.Names()
}

func (j *joiner) exported(x *abi.Export) {
	exporter := abi.Text(x.Exporter[:])
	j.out = append(j.out, &update{kind: Exported, time: x.Event.Head.Time, rec: Record{
		Call: "export", PID: int(x.Event.TGID), TID: int(x.Event.TID), Comm: abi.Text(x.Comm[:]), FD: -1, Start: j.conv.time(x.Event.Head.Time), Steps: []Step{},
		Buffer:    &Buffer{Inode: x.Event.Inode, Size: x.Size, Exporter: exporter, Driver: abi.Text(x.Owner[:]), NIC: exporter == nicExporter},
		Placement: placement.Placement{Memory: placement.NotMapped, Reason: "exported just now"},
	}})
}

// missedBy reports whether a call was under way when a loss was noticed.
func (j *joiner) missedBy(w *abi.Record) bool {
	return w.Kind != abi.KindInventory && j.lost != "" && w.Start <= j.lostAt
}

// lose takes in that events were lost since the last call. what names them, now is the time by
// the programs' clock. Each of them may have concerned any record that lived or ended since
// then. The verdicts of those records become Unknown, also where they are about to be handed
// out, and so do the verdicts of calls that have begun and have not returned.
func (j *joiner) lose(what string, now uint64) {
	j.lost, j.lostAt = what, now
	for _, e := range j.live {
		e.in.Lost = what
	}
	for _, u := range j.out {
		if u.kind == Exported {
			continue
		}
		u.in.Lost = what
		u.rec.Placement = j.decide(u.in)
	}
}

// take returns the events that are ready and forgets them.
func (j *joiner) take() []Event {
	if len(j.out) == 0 {
		return nil
	}
	events := make([]Event, len(j.out))
	for i, u := range j.out {
		events[i] = Event{Time: j.conv.time(u.time), Kind: u.kind, Record: u.rec}
	}
	j.out = j.out[:0]
	return events
}

// find returns the newest live registration that a key names; where there is none,
// the newest that was there before tracing began. Another importer of the same
// buffer is not meant.
func (j *joiner) find(k placement.Key) *entry {
	var before *entry
	for el := j.order.Back(); el != nil; el = el.Prev() {
		e := j.live[el.Value.(uint64)]
		r := &e.rec
		switch {
		case k.Device != "" && r.RDMADevice != k.Device,
			k.PID != 0 && r.PID != k.PID,
			k.LKey != 0 && (r.MR == nil || r.MR.LKey != k.LKey),
			k.RKey != 0 && (r.MR == nil || r.MR.RKey != k.RKey),
			k.Inode != 0 && (r.Buffer == nil || r.Buffer.Inode != k.Inode):
			continue
		}
		if r.Registration() {
			return e
		}
		if before == nil && r.Existed && r.Use == UseUnknown {
			before = e
		}
	}
	return before
}

// records are copies of what lives, oldest first.
func (j *joiner) records() []Record {
	out := make([]Record, 0, len(j.live))
	for el := j.order.Front(); el != nil; el = el.Next() {
		e := j.live[el.Value.(uint64)]
		j.judge(e)
		r := e.rec
		r.Steps, r.Incomplete = slices.Clone(r.Steps), slices.Clone(r.Incomplete)
		out = append(out, r)
	}
	return out
}

// besides are the other importers that live on a record's buffer.
func (j *joiner) besides(e *entry) []string {
	b, ok := e.buffer()
	if !ok || j.onBuf[b] == nil {
		return nil
	}
	var list []string
	for el := j.onBuf[b].Front(); el != nil; el = el.Next() {
		r := &j.live[el.Value.(uint64)].rec
		name := r.RDMADevice
		if name == "" && r.Importer != nil {
			name = r.Importer.Device
		}
		if name == "" || r.RDMADevice == e.rec.RDMADevice && r.RDMADevice != "" || slices.Contains(list, name) {
			continue
		}
		list = append(list, name)
	}
	return list
}

// mrOf says which MRs a record's attachment may belong to, "" if it seems to be no MR's.
func mrOf(r *Record, mrs inventory.MRs) string {
	if r.Importer == nil || r.Buffer == nil {
		return ""
	}
	return mrs.Of(r.Importer.PCI, r.Buffer.Size)
}

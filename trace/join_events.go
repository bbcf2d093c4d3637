// SPDX-License-Identifier: Apache-2.0

package trace

import "github.com/gpurdma/gpurdma/trace/internal/abi"

func (j *joiner) event(ev *abi.Event) {
	switch ev.Head.Type {
	case abi.EventMove:
		j.move(ev)
		return
	case abi.EventRelease:
		j.release(ev)
		return
	}
	id := ev.Head.ID
	e := j.live[id]
	if e == nil {
		j.wait(id, ev)
		return
	}
	switch ev.Head.Type {
	case abi.EventUnmap:
		// Up to 6.12 the scatter table lives as long as the attachment. In a
		// deregistration the record's end follows, with the last placement.
		if e.cached || ev.Flags&abi.EventInDereg != 0 {
			return
		}
		e.in.Mapped, e.in.Moved, e.in.Preexisting = false, false, false
		j.emit(Unmapped, ev.Head.Time, e)
	case abi.EventPin:
		if ev.Ret == 0 {
			e.rec.Pinned = true
			if e.rec.Importer != nil {
				i := *e.rec.Importer // events that were handed out have the old one
				j.conv.pinned(&i)
				e.rec.Importer = &i
			}
		}
	case abi.EventUnpin:
		e.rec.Pinned = false
	case abi.EventRevoke:
		// The exporter announces a revocation by a move. Without one, an importer cleans up
		// after a refusal or at its end.
		if !e.in.Moved {
			return
		}
		j.emit(Revoked, ev.Head.Time, e)
	case abi.EventDetach:
		how := "detached"
		if ev.Flags&abi.EventInDereg != 0 {
			how = "deregistered" // the MR was not seen
		}
		if !e.tracksMR {
			j.end(id, e, ev, how)
		}
	case abi.EventDereg:
		if ev.Ret == 0 {
			j.end(id, e, ev, "deregistered")
		}
	}
}

func (j *joiner) end(id uint64, e *entry, ev *abi.Event, how string) {
	switch {
	case ev.Flags&abi.EventExiting != 0:
		how = endedByExit
	case ev.Flags&abi.EventInRereg != 0:
		how = "re-registered"
	}
	e.rec.Ended, e.rec.EndedAt = how, j.conv.time(ev.Head.Time)
	j.drop(id, e)
	j.emit(Released, ev.Head.Time, e)
}

// wait keeps an event whose record has not come yet, because its call is still running
// in another thread. Identities are counted up, so one far behind the newest
// belongs to a record that is lost, filtered out or given up. An attachment that existed
// before the tracer has its record from the beginning: without one it has ended, or was
// given up.
func (j *joiner) wait(id uint64, ev *abi.Event) {
	if id&existedBit != 0 {
		j.orphan++
		return
	}
	if id+maxEarly < j.newest || j.nEarly >= maxEarly {
		j.giveUp(id, 1)
		return
	}
	j.early[id] = append(j.early[id], ev)
	j.nEarly++
}

// settle forgets early events whose record will not come.
func (j *joiner) settle() {
	for id, list := range j.early {
		if id+maxEarly < j.newest {
			j.nEarly -= len(list)
			j.giveUp(id, len(list))
			delete(j.early, id)
		}
	}
}

// giveUp forgets early events. If their record comes later, it has missed them, and so may
// have the records before it.
func (j *joiner) giveUp(id uint64, n int) {
	j.orphan += uint64(n)
	j.blind = max(j.blind, id)
}

// move marks all mappings of a buffer as stale.
func (j *joiner) move(ev *abi.Event) {
	if len(j.moved) >= j.max {
		clear(j.moved) // their releases were lost
	}
	j.moved[ev.DMABuf] = moveState{ev.Inode, ev.Head.Time}
	j.eachOn(bufferID{ev.DMABuf, ev.Inode}, func(_ uint64, e *entry) {
		if !e.in.Mapped || e.mappedAt > ev.Head.Time {
			return
		}
		e.in.Moved = true
		e.rec.Moves++
		j.emit(Moved, ev.Head.Time, e)
	})
}

// release ends all records of a buffer that the kernel frees: their own ends were not seen.
func (j *joiner) release(ev *abi.Event) {
	delete(j.moved, ev.DMABuf)
	j.eachOn(bufferID{ev.DMABuf, ev.Inode}, func(id uint64, e *entry) {
		e.rec.Incomplete = append(e.rec.Incomplete, "its end was not seen; the buffer is gone")
		j.end(id, e, ev, "buffer released")
	})
}

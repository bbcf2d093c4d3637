// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// pushed is the bytes of writes over a rail that have completed, and may not be in the memory: those
// of one memory, and perhaps others between them.
type pushed struct {
	r    *Rail
	of   *Memory // of the last write
	at   memory.Bytes
	mark uint64 // of the last write
	old  bool   // all of them went over links that are lost
	link uint32 // number of the last of these
	gone bool   // the peer's NIC was removed with them: they may never be in the memory
}

// push adds the bytes of a write that has completed.
func (s *scheduler) push(j *job) {
	for _, b := range j.bytes {
		i := slices.IndexFunc(s.pushed, func(p pushed) bool { return p.r == j.only && p.at.Memory == b.Memory && p.gone == j.gone })
		if i < 0 {
			s.pushed = append(s.pushed, pushed{r: j.only, of: &j.Memory, at: b, mark: j.mark, gone: j.gone})
			continue
		}
		p := &s.pushed[i]
		if p.at != b {
			p.at = memory.Bytes{Memory: b.Memory, Lo: min(p.at.Lo, b.Lo), Hi: max(p.at.Hi, b.Hi)}
		}
		p.of, p.mark, p.old = &j.Memory, max(p.mark, j.mark), false
	}
}

// lost says that a rail's link is lost: another one will say nothing of the writes that have completed
// over it.
func (s *scheduler) lost(r *Rail, link uint32) {
	for i := range s.pushed {
		if p := &s.pushed[i]; p.r == r && !p.old && !p.gone {
			p.old, p.link = true, link
		}
	}
}

// relinked forgets the writes over the links of a rail before one that was made: the queue pairs of
// both sides are destroyed, and the bytes are in the memory.
func (s *scheduler) relinked(r *Rail, link uint32) {
	s.pushed = slices.DeleteFunc(s.pushed, func(p pushed) bool { return p.r == r && p.old && p.link < link && !p.gone })
}

// flushed forgets writes over a rail up to a number, to one memory or, if that is 0, to all. Those of
// jobs that are under way are in the memory, too, when the jobs complete.
func (s *scheduler) flushed(r *Rail, mem, mark uint64) {
	other := func(b memory.Bytes) bool { return mem != 0 && b.Memory != mem }
	for _, j := range s.active {
		if j.only == r && j.mark <= mark && !slices.ContainsFunc(j.bytes, other) {
			j.mark = 0
		}
	}
	s.pushed = slices.DeleteFunc(s.pushed, func(p pushed) bool { return p.r == r && p.mark <= mark && !other(p.at) && !p.gone })
}

// vanished says that the peer's NIC of a rail was removed, perhaps with bytes of the writes over it.
func (s *scheduler) vanished(r *Rail) {
	for i := range s.pushed {
		if p := &s.pushed[i]; p.r == r {
			p.gone = true
		}
	}
	for _, j := range s.active {
		j.gone = j.gone || j.only == r && j.mark > 0
	}
}

// missing returns the error of a job that must follow writes whose bytes may not be in the memory. Only
// one job has it: its program knows then.
func (s *scheduler) missing(j *job, list []pushed) error {
	for _, p := range list {
		if p.gone {
			s.pushed = slices.DeleteFunc(s.pushed, func(x pushed) bool { return x.gone && slices.Contains(list, x) })
			return &failure.Error{
				Op: j.Kind.String(), Device: p.r.NIC.Name(), Detail: "the peer's NIC of the rail was removed after it had acknowledged writes that this operation follows: their bytes may not be in the memory",
				Err: operation.ErrOutcomeUnknown, Remedy: "write them again",
			}
		}
	}
	return nil
}

// forget forgets writes to memory that the peer has withdrawn: it has ended the registration.
func (s *scheduler) forget() {
	s.pushed = slices.DeleteFunc(s.pushed, func(p pushed) bool { return p.of.withdrawn(p.r) })
}

// readable reports whether a byte can be read back after writes, for a job that must follow them.
func (p *pushed) readable(j *job) bool {
	return j.touches(p.at.Memory, p.r) || p.of.touches(p.at.Memory, p.r)
}

// only returns the rail of all writes of a list that cannot be read back; nil if there are none, or
// several rails.
func only(list []pushed, j *job) (r *Rail) {
	for _, p := range list {
		if !p.readable(j) {
			if r != nil && r != p.r {
				return nil
			}
			r = p.r
		}
	}
	return r
}

// flush reads a byte back over the rail of the first of some writes, for a job that must follow them:
// a byte of the same memory, of the job's own if it has one there.
func (s *scheduler) flush(j *job, list []pushed) error {
	p := list[0]
	if s.flushing || !p.r.up() {
		return nil
	}
	m := &j.Memory
	if !m.touches(p.at.Memory, p.r) {
		m = p.of
	}
	if !p.readable(j) {
		return &failure.Error{
			Op: j.Kind.String(), Detail: "it follows writes over " + p.r.NIC.Name() + " whose bytes cannot be read back", Err: unix.EOPNOTSUPP,
			Remedy: "export the memory with ReadWrite, or use one NIC (Config.NIC)",
		}
	}
	x := &slice{r: p.r, flush: s.writes, memory: p.at.Memory, waits: j}
	w, err := p.r.Conn.NewWork(operation.Read, 0, x, s)
	if err != nil {
		return err
	}
	if err = m.fillFlush(w, p.r, p.at.Memory); err == nil {
		err = w.Prepare()
	}
	if err != nil {
		p.r.Conn.Drop(w)
		return err
	}
	w.AfterWrites()
	p.r.load.begin(0)
	s.flushing = true
	if _, err = p.r.Conn.Works.Post(w); err != nil {
		s.flushing = false
		p.r.load.end(0, false)
	}
	if errors.Is(err, operation.ErrQueueFull) {
		return nil
	}
	return err
}

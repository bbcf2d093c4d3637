// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"context"
	"slices"
	"time"

	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// Posting is an operation to post.
type Posting struct {
	Memory
	Kind    operation.Kind
	Flags   operation.Flags
	Note    bool            // it is a message, or ends with a notification
	Limit   context.Context // it is not begun after the deadline
	Context any
	Sink    operation.Sink
}

// job is an operation from its posting to its completion. The scheduler's mutex guards it.
type job struct {
	Posting
	bytes []memory.Bytes
	since time.Time // when it was posted
	stuck time.Time // since when no rail can carry it; zero if one can
	begun bool
	cut   bool     // into slices
	only  *Rail    // over which all of it goes, if it is not cut
	next  int64    // bytes that were given to rails
	noted bool     // a notification of its own was posted, or there is none
	again []*slice // that a rail has lost, to be posted again
	tried bool     // a NIC had a part of it that was lost
	live  []*slice
	ended bool
	err   error
	value uint64
	held  int             // slices that have ended with Held, whose memory was not released; endsMu guards it
	told  bool            // the completion has Held; endsMu guards it
	hold  *workqueue.Work // keeps the memory; may be nil
	mark  uint64          // of a write that may not be in the memory when it completes: its number
	gone  bool            // the peer's NIC was removed, perhaps with bytes of the write
}

// done reports whether all parts of a job that has begun have ended.
func (j *job) done() bool {
	return len(j.live) == 0 && (j.err != nil || j.begun && len(j.again) == 0 && j.next == j.Size && j.noted)
}

// fenced reports whether the operation starts when all before it have completed.
func (j *job) fenced() bool { return j.Flags&operation.FlagFence != 0 }

// changes reports whether the operation changes the peer's memory.
func (j *job) changes() bool { return j.Kind != operation.Read }

// atomic reports whether the operation is one.
func (j *job) atomic() bool {
	return j.Kind == operation.FetchAdd || j.Kind == operation.CompareSwap
}

// can reports whether a rail can carry the operation when it has a link. The peer takes atomics over
// one of its NICs.
func (j *job) can(r *Rail) bool {
	if !j.atomic() {
		return j.reaches(r)
	}
	return j.Remotes[0].atomics(r.Number) != nil && !slices.ContainsFunc(j.Locals, func(l Local) bool { return !l.Reached(r.NIC) })
}

// slice is a part of a job on a rail, or a flush.
type slice struct {
	j      *job // nil for a flush
	r      *Rail
	off, n int64
	flush  uint64 // writes over the rail up to this number are flushed; 0 for a part of a job
	pushes bool   // a write that may not be in the memory when it completes
	memory uint64 // that is flushed
	waits  *job   // for the flush
	ticket workqueue.Ticket
	done   operation.Completion
}

// Ticket names a posted operation until it has ended. The zero Ticket names none.
type Ticket struct {
	Work workqueue.Ticket // over the only rail
	s    *scheduler
	j    *job
}

// Cancel withdraws the work requests of an operation that no NIC has: why becomes its error. It
// returns true if no NIC had any of them.
func (t Ticket) Cancel(why error) bool {
	if t.j == nil {
		return t.Work.Cancel(why)
	}
	t.s.lock()
	defer t.s.unlock()
	return t.s.cancel(t.j, why)
}

// CancelAll is Cancel of several operations of one connection: none of them is posted meanwhile.
func CancelAll(list []Ticket, why error) {
	var works []workqueue.Ticket
	var s *scheduler
	for _, t := range list {
		switch {
		case t.j == nil:
			works = append(works, t.Work)
			continue
		case s == nil:
			s = t.s
			s.lock()
			defer s.unlock()
		}
		s.cancel(t.j, why)
	}
	workqueue.CancelAll(works, why)
}

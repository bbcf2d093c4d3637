// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"context"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/cqueue"
	"github.com/gpurdma/gpurdma/internal/fifo"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// sender is the sending side of a Queue, whose mutex guards it.
type sender struct {
	q                   *Queue
	pending             fifo.Queue[*Work] // operations whose work requests are not all made
	posted              int               // operations that have not completed
	active              int               // operations that have begun and not completed
	turn                uint64            // calls of kick
	looked              time.Time         // when the deadline of a work was last compared with the clock
	posts               uint64            // operations that were taken
	messages, confirmed uint64            // messages that were sent, and those that the peer has received for certain
	holding             bool              // operations wait for the next Poll, which posts them
	unknown             bool              // the peer may have received operations that were under way when the connection ended
	queues              [rc.Queues]sendQueue

	wrs   []ibvfd.SendWR // a batch
	sges  []ibvfd.SGE
	batch struct{ queue, wrs, sges int }
	quiet int64 // bytes of the batch since the last work request that makes a completion
}

// mostQuiet is the most bytes of a batch that the NIC may carry out without a completion. The program
// learns of their operations when the next one completes, which must not take long.
const mostQuiet = 16 << 10

// sendQueue is the sending side of one queue pair.
type sendQueue struct {
	free    int // work requests that may be posted
	groups  fifo.Queue[group]
	first   uint64 // number of the oldest group
	next    uint64
	seen    uint64 // groups before this number have completed, by their own completion or a later one's
	failed  bool
	refused bool // the peer's NIC has refused a request: it carried out none after it
}

// group is a number of work requests of one op. The last of them makes a completion, unless
// other work requests follow in the batch and the op is silent, or short and of an endpoint that
// is not selective.
type group struct {
	op    *Work
	wrs   int
	final bool // the last group of the op
}

// number returns the number of a group; a work request's ID has its lower bits.
func (q *sendQueue) number(id uint64) uint64 { return cqueue.Number(id, q.first) }

// batchWRs is the number of work requests that are posted at a time.
const batchWRs = 64

// adopt makes room for the work requests of the queue's link.
func (s *sender) adopt() {
	a := &s.q.Link.attr
	for i := range s.queues {
		s.queues[i].free = a.SendDepth
	}
	s.wrs = make([]ibvfd.SendWR, batchWRs)
	s.sges = make([]ibvfd.SGE, max(2*batchWRs, a.SGE))
}

// take adds an operation, and posts it unless others are to follow at once: then the last of these, or
// the next Poll, posts all of them.
func (s *sender) take(o *Work) {
	q := s.q
	s.posted++
	s.posts++
	o.turn, o.number = s.turn, s.posts
	s.pending.Push(o)
	if len(o.Ready()) > 0 {
		q.slow.await(o)
	} else if o.Staged() {
		q.slow.later(o, (*Work).Stage)
	}
	if o.Flags&operation.FlagMore == 0 {
		s.kick()
		return
	}
	if !s.holding {
		s.holding = true
		q.cfg.Progress.Hold(q)
	}
}

// full returns the error of an operation for which there is no room.
func (s *sender) full(kind operation.Kind) error {
	if kind != operation.Recv && s.behind() {
		return operation.ErrPeerBehind
	}
	return operation.ErrQueueFull
}

// behind reports whether the oldest operation waits for the peer's program to take messages.
func (s *sender) behind() bool {
	if s.pending.Len() == 0 {
		return false
	}
	first := *s.pending.Front()
	return !first.started && !s.q.mail.MayStart(&first.letter)
}

// PeerBehind reports whether the operations wait for the peer's program to take messages.
func (q *Queue) PeerBehind() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.send.behind()
}

// MessagesWait reports whether a message waits for the peer's program, or will wait when the works before it
// have begun. Works that are posted after it wait, too.
func (q *Queue) MessagesWait() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	room, n := q.mail.Room(), q.send.pending.Len()
	if n <= room {
		return false
	}
	for i := range n {
		if (*q.send.pending.At(i)).letter.Unstamped() {
			room--
		}
	}
	return room < 0
}

// from returns a work that is pending, and all that were posted after it. It returns false if a NIC has
// had some of them.
func (s *sender) from(o *Work) (list []*Work, unbegun bool) {
	for i := range s.queues {
		g := &s.queues[i].groups
		for k := g.Len() - 1; k >= 0 && g.At(k).op.number > o.number; k-- {
			if x := g.At(k).op; !x.probe && !x.letter.IsCredit() {
				return nil, false
			}
		}
	}
	for i := range s.pending.Len() {
		x := *s.pending.At(i)
		switch {
		case x.number < o.number || x.probe || x.letter.IsCredit():
		case x.begun || x.again:
			return nil, false
		default:
			list = append(list, x)
		}
	}
	return list, len(list) > 0
}

// kick makes and posts work requests of pending ops, in order, as far as fences, slow work and
// the queues' room allow.
func (s *sender) kick() {
	q := s.q
	s.turn++
	s.payCredits()
	for q.state == up && s.pending.Len() > 0 {
		o := *s.pending.Front()
		if !o.started {
			s.expire(o)
		}
		if o.busy || !o.started && o.err == nil && (o.Flags&operation.FlagFence != 0 && s.active > 0 || !q.mail.MayStart(&o.letter)) {
			break
		}
		if !o.started {
			o.started = true
			s.active++
			if o.again || o.repeats {
				q.counters[o.Kind].repeats.Add(1)
			}
			if o.err == nil {
				o.err = q.begin(o)
			}
			if o.busy {
				break
			}
		}
		if o.err == nil && o.letter.Unstamped() {
			if o.sums != nil && o.sums.trailer != nil {
				o.letter.AddSums(o.sums.trailer)
				o.sums.trailer = nil
			}
			q.mail.Stamp(&o.letter)
		}
		if o.err != nil {
			s.pending.Pop()
			q.finish(o, o.err)
			continue
		}
		if !s.feed(o) {
			break
		}
		s.pending.Pop()
	}
	s.flush()
}

// expire ends a work whose deadline has passed. A work that was just posted has not waited: the clock is not
// read for it, unless its deadline had passed when the clock was read for one before it.
func (s *sender) expire(o *Work) {
	if o.err != nil || o.limit.IsZero() || o.turn+1 >= s.turn && !s.looked.After(o.limit) {
		return
	}
	s.looked = time.Now()
	if s.looked.After(o.limit) {
		o.err = context.DeadlineExceeded
	}
}

// payCredits returns credits to the peer, once they are half of all.
func (s *sender) payCredits() {
	q := s.q
	if !q.mail.Owes() || q.state != up || s.queues[rc.WriteQueue].free == 0 {
		return
	}
	o := q.cfg.Pool.work(operation.Send, 0)
	o.letter = q.mail.Pay()
	q.mail.Stamp(&o.letter)
	s.feed(o)
}

// feed makes work requests of o; it returns false if there is no room for all of them.
func (s *sender) feed(o *Work) bool {
	q := &s.queues[o.queue]
	for !o.made {
		b := &s.batch
		if b.wrs > 0 && (b.queue != o.queue || b.wrs == len(s.wrs) || len(s.sges)-b.sges < s.q.Link.attr.SGE) {
			s.flush()
			if !s.mayPost() {
				return false
			}
		}
		if q.free == 0 {
			return false
		}
		b.queue = o.queue
		n, used := s.next(o, s.wrs[b.wrs:min(len(s.wrs), b.wrs+q.free)], s.sges[b.sges:])
		id := s.q.Link.member.ID(o.queue, q.next)
		for i := range s.wrs[b.wrs : b.wrs+n] {
			s.wrs[b.wrs+i].ID = id
		}
		shares := !s.q.cfg.Pool.selective
		switch {
		case o.silent:
		case shares && o.Length <= mostQuiet-s.quiet:
			s.quiet += o.Length
		default:
			if shares && b.wrs > 0 && o.Length > mostQuiet { // those before do not wait for it
				s.wrs[b.wrs-1].Flags |= ibvfd.SendSignaled
			}
			s.wrs[b.wrs+n-1].Flags |= ibvfd.SendSignaled
			s.quiet = 0
		}
		o.begun = true
		b.wrs += n
		b.sges += used
		q.free -= n
		q.groups.Push(group{o, n, o.made})
		q.next++
	}
	return true
}

// next fills wrs with the next work requests of o. The message that follows a write's bytes is
// its last one.
func (s *sender) next(o *Work, wrs []ibvfd.SendWR, sges []ibvfd.SGE) (n, used int) {
	if !o.letter.None() && (o.Kind == operation.Send || o.Made() || o.Length == 0) {
		s.q.mail.Request(&o.letter, s.q.Link.attr.Inline, &wrs[0], sges)
		if !o.letter.IsCredit() {
			s.messages++
			o.message = s.messages
		}
		o.made = true
		return 1, 1
	}
	n, used = o.Next(&s.q.Link.attr, wrs, sges)
	o.made = o.Made() && o.letter.None()
	return n, used
}

// mayPost reports whether work requests may be posted: the operations have started, or the link is
// tried.
func (s *sender) mayPost() bool {
	return s.q.state == up || s.q.state == connecting && s.q.Link.probes > 0 && s.q.Link.broken == nil
}

// flush posts the batch. Its last work request always makes a completion: it also completes
// the silent ones before it.
func (s *sender) flush() {
	b := &s.batch
	if b.wrs == 0 || !s.mayPost() {
		return
	}
	n := b.wrs
	b.wrs, b.sges, s.quiet = 0, 0, 0
	s.wrs[n-1].Flags |= ibvfd.SendSignaled
	if posted, err := s.q.Link.pairs.Post(b.queue, s.wrs[:n]); err != nil {
		if posted < n { // the others will not complete
			q := &s.queues[b.queue]
			q.next = q.number(s.wrs[posted].ID)
			if i := q.next - q.first; i < uint64(q.groups.Len()) {
				if o := q.groups.At(int(i)).op; o.err == nil && s.q.Link.outlived {
					o.err, o.refused = err, true
				}
			}
		}
		s.q.Link.fail(err)
	}
}

// completed takes one completion. After an error the queue pair cannot be used any more.
func (s *sender) completed(wc *ibvfd.WC, failed error) error {
	q := &s.queues[cqueue.Kind(wc.ID)]
	seq := q.number(wc.ID)
	q.seen = max(q.seen, seq+1)
	if failed != nil {
		if !q.failed && seq > q.first { // earlier ones without a completion have succeeded
			s.pass(q, seq-1)
		}
		if !q.failed {
			q.refused = refusedByPeer(wc.Status)
		}
		q.failed = true
		if i := seq - q.first; i < uint64(q.groups.Len()) {
			if o := q.groups.At(int(i)).op; o.err == nil {
				o.err = failed
			}
		}
		return failed
	}
	if !q.failed {
		s.pass(q, seq)
	}
	return nil
}

// refusedByPeer reports whether a status is the peer's answer to a request.
func refusedByPeer(s ibvfd.WCStatus) bool {
	return s == ibvfd.WCRemAccessErr || s == ibvfd.WCRemInvReqErr || s == ibvfd.WCRemOpErr
}

// pass ends the groups up to a number; they have succeeded.
func (s *sender) pass(q *sendQueue, seq uint64) {
	for q.groups.Len() > 0 && q.first <= seq {
		g := q.groups.Pop()
		q.first++
		q.free += g.wrs
		g.op.blamed = 0
		if g.final {
			s.confirmed = max(s.confirmed, g.op.message)
			s.q.finish(g.op, nil)
		}
	}
}

// forget removes a work from those whose work requests are not all made.
func (s *sender) forget(o *Work) bool {
	for i := range s.pending.Len() {
		if *s.pending.At(i) == o {
			s.pending.RemoveAt(i)
			return true
		}
	}
	return false
}

// ended takes an operation that has ended out of the numbers of those under way.
func (s *sender) ended(o *Work) {
	s.posted--
	if o.started {
		s.active--
	}
	now := s.q.now
	if now == 0 {
		now = clock()
	}
	s.q.counters.ended(o, now)
	s.q.vacate()
}

// drained reports whether the last work request of each queue has completed.
func (s *sender) drained() bool {
	for i := range s.queues {
		if q := &s.queues[i]; q.groups.Len() > 0 && q.seen < q.next {
			return false
		}
	}
	return true
}

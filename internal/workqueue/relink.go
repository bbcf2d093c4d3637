// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/wire"
)

// A connection that outlives its link loses the link, gets another one, and carries out again what
// the peer may not have received. Both sides do this:
//
//	Lose        nothing is posted any more, and Config.Lost is called
//	Unlink      closes the queue pairs: from then on nothing of the old link can land
//	Received    the number of messages that have arrived, for the peer
//	Reconcile   takes the peer's numbers, and ends what it has received
//	Adopt       takes the new link
//	Probe       returns when packets have passed, in both directions
//	Resume      posts the rest
//
// The write queue is in order. So the peer has received all that was posted to it before a message
// that it has received. The works after the last of these messages were not reported to the peer's
// program: they are posted again, in the same order. Reads are posted again. An atomic
// that the NIC had has an unknown outcome.

// Outlive makes the connection outlive its links. It is called before Up.
func (l *Link) Outlive() {
	l.q.mu.Lock()
	defer l.q.mu.Unlock()
	l.outlived = true
}

// Lose gives up the link. It returns false if the connection does not
// outlive it: the caller then aborts the connection.
func (l *Link) Lose(why error) bool {
	l.q.mu.Lock()
	defer l.q.mu.Unlock()
	return l.lose(why)
}

func (l *Link) lose(why error) bool {
	q := l.q
	switch {
	case !l.outlived || q.state == dead || q.unaccepted || q.End.shut != nil || q.End.farewell != nil:
		return false
	case q.state == up:
		q.state, q.ready = lost, make(chan struct{})
		l.loss.Store(&loss{why, time.Now()})
		q.cfg.Lost(why)
	case q.state == connecting && l.broken == nil:
		l.broken = why
	}
	return true
}

// Fail is Lose; a connection that does not outlive its link is aborted.
func (l *Link) Fail(why error) {
	l.q.mu.Lock()
	defer l.q.mu.Unlock()
	l.fail(why)
}

// fail is Fail for callers that hold the mutex.
func (l *Link) fail(why error) {
	if !l.lose(why) {
		l.q.abort(why)
	}
}

// Unlink closes the link that was lost, or that was adopted and is not up. If it returns an error,
// the NIC may still use the link's memory, and the connection cannot go on.
func (l *Link) Unlink() error {
	q := l.q
	q.mu.Lock()
	pairs := l.pairs
	q.mu.Unlock()
	if pairs != nil {
		l.End()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.stuck {
		return &failure.Error{Op: "close the queue pairs", Detail: "the NIC may still use their memory", Err: rc.ErrNotConnected}
	}
	l.pairs, l.cq = nil, nil
	if q.state == dead { // Finish ends the works
		return q.End.gone()
	}
	q.state, l.broken, l.probes = connecting, nil, 0
	if pairs != nil {
		q.send.takeBack()
		q.recv.takeBack()
	}
	return nil
}

// takeBack makes works that have not completed wait again, in the order of their posting.
func (s *sender) takeBack() {
	var list []*Work
	add := func(o *Work) {
		if !o.listed {
			o.listed = true
			list = append(list, o)
		}
	}
	for i := range s.queues {
		q := &s.queues[i]
		for q.groups.Len() > 0 {
			add(q.groups.Pop().op)
		}
		*q = sendQueue{first: q.next, next: q.next, seen: q.next}
	}
	for s.pending.Len() > 0 {
		add(s.pending.Pop())
	}
	s.batch.queue, s.batch.wrs, s.batch.sges, s.quiet = 0, 0, 0, 0
	slices.SortFunc(list, func(a, b *Work) int { return cmp.Compare(a.number, b.number) })
	now := clock()
	for _, o := range list {
		o.listed = false
		if o.probe {
			s.q.cfg.Pool.Put(o)
			continue
		}
		if o.letter.IsCredit() { // Renew counts anew
			s.q.mail.Unstamp(&o.letter)
			s.q.cfg.Pool.Put(o)
			continue
		}
		// A NIC that is being removed takes keys away before queue pairs: the peer says whether it is.
		if s.q.mail.Several() && byPeer(o.err) {
			o.refusal, o.err = o.err, nil
		}
		blamed := o.refused || endsLink(o.err)
		if blamed && o.blamed == 0 {
			o.blamed = now
		}
		tried := blamed && now-o.blamed >= int64(s.q.cfg.Patience) // one link after the other has ended with it
		if tried || !o.refused && !ofLink(o.err) {
			s.q.finish(o, o.err)
			continue
		}
		o.refused = false
		if o.started {
			s.active--
		}
		s.q.mail.TakeBack(&o.letter)
		o.Rewind()
		o.again = o.again || o.begun
		o.started, o.made, o.err = false, false, nil
		s.pending.Push(o)
	}
}

// endsLink reports whether the NIC has given up a link because of an operation: others behind it
// are flushed.
func endsLink(err error) bool {
	var status *ibvfd.WCError
	return errors.As(err, &status) && status.Status != ibvfd.WCWRFlushErr
}

// byPeer reports whether the peer's NIC has refused an operation.
func byPeer(err error) bool {
	var status *ibvfd.WCError
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status {
	case ibvfd.WCRemAccessErr, ibvfd.WCRemInvReqErr, ibvfd.WCRemOpErr:
		return true
	}
	return false
}

// ofLink reports whether an operation has no error of its own: the NIC has not judged it, or has
// given it up together with the link.
func ofLink(err error) bool {
	if err == nil || errors.Is(err, rc.ErrNotConnected) {
		return true
	}
	var status *ibvfd.WCError
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status {
	case ibvfd.WCLocProtErr, ibvfd.WCLocLenErr, ibvfd.WCMWBindErr, ibvfd.WCLocAccessErr, ibvfd.WCRemAccessErr, ibvfd.WCRemInvReqErr, ibvfd.WCRemOpErr:
		return false
	}
	return true
}

// takeBack makes receives wait again.
func (r *receiver) takeBack() {
	for r.waiting.Len() > 0 {
		r.posted.Push(r.waiting.Pop())
	}
	for r.posted.Len() > 0 {
		o := r.posted.Pop()
		o.started, o.err = false, nil
		r.waiting.Push(o)
	}
	r.first, r.seen = r.next, r.next
}

// Received returns the number of messages that have arrived from the peer since the connection was
// made, and how many of them the program has not taken. The peer gets both: credits that were
// owed before are not sent.
func (l *Link) Received() (messages uint64, untaken int) {
	l.q.mu.Lock()
	defer l.q.mu.Unlock()
	return l.q.mail.Restart()
}

// Reconcile takes what the peer's Received has returned, and ends the works that the peer has
// received. It is called before Adopt: credits of the peer may arrive from then on.
func (l *Link) Reconcile(received uint64, untaken int) error {
	q := l.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.End.refusal(); err != nil {
		return err
	}
	if err := q.send.settle(received, Removed{}); err != nil {
		return err
	}
	return q.mail.Renew(untaken)
}

// ErrEvicted is the error of works that another rail is to carry out.
var ErrEvicted = errors.New("the link is lost: another rail carries the operation out")

// Removed says which NICs of a link that was lost are gone. Bytes that they had may be in the memory
// now, or later, or never.
type Removed struct{ Own, Peers bool }

// Evict ends all works of a connection that has lost its link, with ErrEvicted, but for those that
// the peer has received, or whose outcome is not known: atomics, writes that a peer's NIC had which is
// gone, and reads of a NIC of this side which is. The peer has closed its queue pairs, and has received
// that number of messages. It returns false if the connection has its link.
func (l *Link) Evict(received uint64, gone Removed) (bool, error) {
	q := l.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != connecting || !q.begun.Load() {
		return false, nil
	}
	if err := q.send.settle(received, gone); err != nil {
		return false, err
	}
	q.send.clear(ErrEvicted)
	return true, nil
}

// GiveUp ends the works that wait for a link, with an error, unless the peer may have received some:
// another rail gets those when both sides have destroyed their queue pairs.
func (l *Link) GiveUp(why error) {
	q := l.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != connecting {
		return
	}
	for i := range q.send.pending.Len() {
		if (*q.send.pending.At(i)).again {
			return
		}
	}
	q.send.clear(why)
}

// clear ends all works that wait, with an error.
func (s *sender) clear(why error) {
	for s.pending.Len() > 0 {
		o := s.pending.Pop()
		if o.err == nil {
			o.err = cmp.Or(o.refusal, why)
		}
		if o.cancel != nil {
			o.cancel()
		}
		s.close(o)
	}
}

// Probe carries out a write and a read of no bytes on the link that was adopted. It returns when
// the peer's NIC has answered both, or with the reason why it has not.
func (l *Link) Probe(ctx context.Context) error {
	q := l.q
	q.mu.Lock()
	l.probes = 0
	for _, kind := range []operation.Kind{operation.Write, operation.Read} {
		if kind == operation.Read && l.attr.ReadsOut == 0 {
			continue
		}
		o := q.cfg.Pool.work(kind, 0)
		o.probe, o.silent = true, false
		if _, err := o.Begin(&l.attr); err != nil {
			q.cfg.Pool.Put(o)
			q.mu.Unlock()
			return err
		}
		l.probes++
		q.send.feed(o)
	}
	q.send.flush()
	q.mu.Unlock()
	for {
		l.Poll()
		q.mu.Lock()
		left, err := l.probes, l.broken
		if q.state == dead {
			err = q.End.gone()
		}
		q.mu.Unlock()
		switch {
		case err != nil:
			return fmt.Errorf("try the link: %w", err)
		case left == 0:
			return nil
		}
		select {
		case <-time.After(probeLook):
		case <-ctx.Done():
			return fmt.Errorf("try the link: no packet has passed: %w", errs.Ended(ctx))
		}
	}
}

// probeLook is the time between two looks for the answers of a probe.
const probeLook = 200 * time.Microsecond

// LostFor returns why the link was lost, nil if there is one. It takes no lock.
func (l *Link) LostFor() error {
	_, why := l.Loss()
	return why
}

// Loss returns the time of the loss, and why it was lost as LostFor does.
func (l *Link) Loss() (at time.Time, why error) {
	if x := l.loss.Load(); x != nil {
		return x.at, x.why
	}
	return time.Time{}, nil
}

// Resume starts the operations on the link that was adopted.
func (l *Link) Resume() error {
	q := l.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.start(); err != nil {
		return err
	}
	for i := 0; i < q.send.pending.Len(); { // those that Cancel has withdrawn since Reconcile
		if o := *q.send.pending.At(i); o.again && o.withdrawn != nil && !o.busy {
			q.send.pending.RemoveAt(i)
			q.send.close(o)
		} else {
			i++
		}
	}
	q.recv.kick()
	q.send.kick()
	return nil
}

// close ends a work that is not posted again.
func (s *sender) close(o *Work) {
	o.started = true
	s.active++
	s.q.finish(o, o.err)
}

// of reports whether the outcome of a work that a NIC had is unknown, if the peer has received no message
// after it.
func (g Removed) of(o *Work) bool {
	switch o.Kind {
	case operation.FetchAdd, operation.CompareSwap:
		return true
	case operation.Read:
		return g.Own
	case operation.Write:
		return g.Peers && o.Length > 0
	}
	return false
}

// settle ends the works that the peer has received, and those whose outcome is not known.
func (s *sender) settle(received uint64, gone Removed) error {
	if received > s.messages || received < s.confirmed {
		return &failure.Error{Op: "connect again", Detail: fmt.Sprintf("the peer's program has got %d messages; its NIC has acknowledged %d, and %d were sent", received, s.confirmed, s.messages), Err: wire.ErrMalformed}
	}
	known := 0 // the peer has received all works of the write queue before this one
	for i := range s.pending.Len() {
		if o := *s.pending.At(i); o.message > 0 && o.message <= received {
			known = i + 1
		}
	}
	s.q.mail.Unsent(s.messages - received)
	var rest []*Work
	for i := range s.pending.Len() {
		o := *s.pending.At(i)
		received := i < known && o.queue == rc.WriteQueue
		unknown := gone.of(o) && !received
		switch {
		case o.refusal != nil:
			if o.err = o.refusal; gone.Peers {
				o.err = operation.ErrOutcomeUnknown
			}
			s.close(o)
		case !o.again:
			rest = append(rest, o)
		case o.withdrawn != nil, unknown, received:
			if unknown && o.withdrawn == nil {
				o.err = operation.ErrOutcomeUnknown
			}
			s.close(o)
		default:
			rest = append(rest, o)
		}
	}
	for s.pending.Len() > 0 {
		s.pending.Pop()
	}
	for _, o := range rest {
		o.message = 0
		s.pending.Push(o)
	}
	s.messages, s.confirmed = received, received
	return nil
}

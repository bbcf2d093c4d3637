// SPDX-License-Identifier: Apache-2.0

package offers

import (
	"context"
	"maps"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/fifo"
	"github.com/gpurdma/gpurdma/internal/memory"
)

// own is the memory that this side has offered by name. The Table's mutex guards it.
type own struct {
	names map[string]*memory.RemoteBuffer // a nil value: the name is being offered or withdrawn

	withdrawn fifo.Queue[chan struct{}] // a channel for each withdrawal that the peer has not confirmed; the confirmation closes it
}

// Export gives the peer access to local memory, and offers it under a name, for the peer's
// Import. The access ends with the connection, or with Unexport. If the name is exported already,
// Export returns EEXIST. as returns the descriptor as the peer is to get it.
func (t *Table) Export(ctx context.Context, name string, s memory.Span, access ibvfd.Access, as func(rb *memory.RemoteBuffer) *memory.RemoteBuffer) error {
	if err := exchange.CheckName("export", name); err != nil {
		return err
	}
	return t.export(ctx, name, s, access, as)
}

// ExportAtomics offers other keys for memory that has a name, with which the peer carries out its
// atomics.
func (t *Table) ExportAtomics(ctx context.Context, name string, id uint64, s memory.Span) error {
	as := func(rb *memory.RemoteBuffer) *memory.RemoteBuffer { return rb.WithID(id) }
	return t.export(ctx, exchange.ForAtomics(name), s, ibvfd.AccessRemoteAtomic, as)
}

// GivesAtomics reports whether ExportAtomics has given keys for memory with an ID.
func (t *Table) GivesAtomics(name string, id uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	rb := t.own.names[exchange.ForAtomics(name)]
	return rb != nil && rb.ID() == id
}

func (t *Table) export(ctx context.Context, name string, s memory.Span, access ibvfd.Access, as func(rb *memory.RemoteBuffer) *memory.RemoteBuffer) error {
	if err := t.reserve(name); err != nil {
		return err
	}
	rb, err := t.cfg.Share(s, access)
	if err == nil {
		rb = as(rb)
		if err = t.offer(ctx, name, rb); err != nil {
			err = errs.Join(err, t.cfg.Unshare(rb))
		}
	}
	if err != nil {
		t.release(name)
	}
	return err
}

// reserve takes a name that is not exported.
func (t *Table) reserve(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.cfg.Refusal(); err != nil {
		return err
	}
	if _, taken := t.own.names[name]; taken {
		return &failure.Error{Op: "export", Device: name, Detail: "the name is taken", Remedy: "use another name, or Unexport it first", Err: unix.EEXIST}
	}
	if t.own.names == nil {
		t.own.names = map[string]*memory.RemoteBuffer{}
	}
	t.own.names[name] = nil
	return nil
}

// release gives a name back.
func (t *Table) release(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.own.names, name)
}

// offer offers memory under a name that was reserved, and gives the name the memory.
func (t *Table) offer(ctx context.Context, name string, rb *memory.RemoteBuffer) error {
	body, err := exchange.EncodeOffer(name, rb)
	if err != nil {
		return err
	}
	for {
		t.mu.Lock()
		link := t.link
		t.mu.Unlock()
		if err := t.cfg.Send(ctx, exchange.MsgOffer, body, nil); err != nil {
			return err
		}
		t.mu.Lock()
		same := t.link == link // another link offers only what has its name
		if same {
			t.own.names[name] = rb
		}
		t.mu.Unlock()
		if same {
			return nil
		}
	}
}

// Unexport withdraws the access that Export gave. The peer's next access fails, and ends the
// connection: the two programs agree before. Unexport waits until the peer's host has confirmed
// that it does not import the memory any more, because a message over RDMA may overtake the
// withdrawal.
func (t *Table) Unexport(ctx context.Context, name string) error {
	rb, err := t.exported(name)
	if err != nil {
		return err
	}
	forgot, err := t.withdraw(ctx, name)
	t.release(name)
	if err = errs.Join(err, t.cfg.Unshare(rb)); err != nil {
		return &failure.Error{Op: "unexport", Device: name, Detail: "the peer may not know it", Err: err}
	}
	if err := t.confirmed(ctx, forgot); err != nil {
		return &failure.Error{Op: "unexport", Device: name, Detail: "the keys are withdrawn, and the peer's host has not confirmed it", Err: err}
	}
	return nil
}

// withdraw tells the peer that a name is withdrawn. It returns a channel that is closed when the peer
// has confirmed it; nil if the link is lost, and with it the names that the peer knows.
func (t *Table) withdraw(ctx context.Context, name string) (forgot chan struct{}, err error) {
	err = t.cfg.Send(ctx, exchange.MsgOffer, exchange.EncodeWithdrawal(name), func(uint32) bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		forgot = make(chan struct{})
		t.own.withdrawn.Push(forgot)
		return true
	})
	return forgot, err
}

// confirmed waits until the peer has confirmed a withdrawal.
func (t *Table) confirmed(ctx context.Context, forgot chan struct{}) error {
	if forgot == nil {
		return nil
	}
	select {
	case <-forgot:
	case <-t.cfg.Ended: // the name ends with the connection
	case <-ctx.Done():
		return errs.Ended(ctx)
	}
	return nil
}

// Recall withdraws the keys that ExportAtomics gave for an ID, when no atomic of the peer is under way
// with them. If the peer does not confirm that, slow is called, and then the keys are withdrawn. If
// there are none, Recall does nothing. After an error the peer may use the keys.
func (t *Table) Recall(ctx context.Context, name string, id uint64, slow func()) error {
	name = exchange.ForAtomics(name)
	t.mu.Lock()
	rb, loss := t.own.names[name], t.loss
	if rb == nil || rb.ID() != id {
		t.mu.Unlock()
		return nil
	}
	t.own.names[name] = nil
	t.mu.Unlock()
	if t.cfg.Refusal() == nil && t.recall(ctx, name, loss) != nil { // otherwise the connection is ending
		slow()
	}
	t.release(name)
	return t.cfg.Unshare(rb)
}

// recall waits until the peer has confirmed a withdrawal, or the link is lost, and with it all that the
// peer knows. loss is closed then.
func (t *Table) recall(ctx context.Context, name string, loss <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lost := func() bool {
		select {
		case <-loss:
			return true
		default:
			return false
		}
	}
	if lost() {
		return nil
	}
	go func() {
		select {
		case <-loss:
			cancel()
		case <-ctx.Done():
		}
	}()
	forgot, err := t.withdraw(ctx, name)
	if err == nil {
		err = t.confirmed(ctx, forgot)
	}
	if lost() {
		return nil
	}
	return err
}

// Drop withdraws the access that Export gave, without a word to the peer, which has forgotten the name
// with the link.
func (t *Table) Drop(name string) error {
	rb, err := t.exported(name)
	if err != nil {
		return err
	}
	t.release(name)
	return t.cfg.Unshare(rb)
}

// exported returns the memory that has a name, which is reserved until the withdrawal is sent.
func (t *Table) exported(name string) (*memory.RemoteBuffer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.cfg.Refusal(); err != nil { // the keys are withdrawn
		return nil, err
	}
	rb := t.own.names[name]
	if rb == nil {
		return nil, &failure.Error{Op: "unexport", Device: name, Detail: "nothing is exported under the name", Err: unix.ENOENT}
	}
	t.own.names[name] = nil
	return rb, nil
}

// Confirmed takes the peer's confirmation of the oldest withdrawal.
func (t *Table) Confirmed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.own.withdrawn.Len() == 0 {
		return &failure.Error{Op: "read an exchange", Detail: "a confirmation of nothing", Err: exchange.ErrMalformed}
	}
	close(t.own.withdrawn.Pop())
	return nil
}

// Relinked says that the connection has its link with a number, after an earlier one was lost: the
// peer has forgotten all names of this side, which are offered again.
func (t *Table) Relinked(link uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.link, t.peers.owed, t.loss = link, fifo.Queue[uint64]{}, make(chan struct{})
	for t.own.withdrawn.Len() > 0 {
		close(t.own.withdrawn.Pop())
	}
	if names := maps.Clone(t.own.names); len(names) > 0 {
		t.cfg.Go(func() { t.offerAgain(link, names) })
	}
}

// offerAgain offers names over a link, as long as they have the same memory.
func (t *Table) offerAgain(link uint32, names map[string]*memory.RemoteBuffer) {
	for name, rb := range names {
		if rb == nil { // Export or Unexport is under way
			continue
		}
		body, err := exchange.EncodeOffer(name, rb)
		if err == nil {
			err = t.cfg.Send(t.cfg.Life, exchange.MsgOffer, body, func(over uint32) bool {
				t.mu.Lock()
				defer t.mu.Unlock()
				return over == link && t.own.names[name] == rb
			})
		}
		if err != nil {
			return // the connection has ended
		}
	}
}

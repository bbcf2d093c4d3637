// SPDX-License-Identifier: Apache-2.0

package offers

import (
	"context"
	"fmt"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/fifo"
	"github.com/gpurdma/gpurdma/internal/memory"
)

// peers is the memory that the peer has offered. The Table's mutex guards it.
type peers struct {
	ended   bool                             // no more offers are taken
	bytes   int                              // of all descriptors
	list    fifo.Queue[*memory.RemoteBuffer] // those without a name
	arrived chan struct{}                    // signals that there is one
	names   map[string]*memory.RemoteBuffer
	changed chan struct{} // closed at the next change of names; nil unless a goroutine waits

	owed      fifo.Queue[uint64] // withdrawals that this side has not confirmed: the ID of keys for atomics, or 0
	answering bool               // a goroutine confirms them
}

// mostOwed bounds the withdrawals that wait for their confirmation.
const mostOwed = 1 << 16

// most bounds the memory of a peer's offers that wait for Next, or have names.
const most = 16 << 20

// Import waits until the peer has exported memory under a name, and returns its descriptor.
func (t *Table) Import(ctx context.Context, name string) (*memory.RemoteBuffer, error) {
	if err := exchange.CheckName("import", name); err != nil {
		return nil, err
	}
	for {
		t.mu.Lock()
		rb, changed := t.peers.find(name)
		t.mu.Unlock()
		if err := t.cfg.Refusal(); err != nil {
			return nil, err
		}
		if rb != nil {
			if err := errs.Ended(ctx); err != nil {
				return nil, &failure.Error{Op: "import", Device: name, Err: err}
			}
			return rb, nil
		}
		select {
		case <-changed:
		case <-t.cfg.Ended:
		case <-ctx.Done():
			return nil, &failure.Error{Op: "import", Device: name, Detail: "the peer has not exported it", Err: errs.Ended(ctx)}
		}
	}
}

// FindAtomics returns the keys for atomics on memory with an ID that the peer has exported under a name;
// nil if there are none.
func (t *Table) FindAtomics(name string, id uint64) *memory.RemoteBuffer {
	return t.Find(exchange.ForAtomics(name), id)
}

// Find returns the descriptor with an ID that the peer has exported under a name; nil if there is
// none.
func (t *Table) Find(name string, id uint64) *memory.RemoteBuffer {
	t.mu.Lock()
	defer t.mu.Unlock()
	if rb := t.peers.names[name]; rb != nil && rb.ID() == id {
		return rb
	}
	return nil
}

// Next returns the oldest offer without a name, nil if there is none, and a channel that gets a
// value when there may be one.
func (t *Table) Next() (*memory.RemoteBuffer, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peers.pop(), t.peers.arrived
}

// Take takes an offer of the peer.
func (t *Table) Take(body []byte) error {
	name, rb, err := exchange.DecodeOffer(body)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.peers.ended {
		return nil // the connection has begun to end: the offer is dropped
	}
	if rb != nil {
		if err := t.cfg.Permits(rb); err != nil {
			return err
		}
	} else {
		if err := t.confirm(name); err != nil {
			return err
		}
	}
	return t.peers.take(name, rb)
}

// confirm confirms the withdrawal of a name to the peer. The caller holds the mutex, and must not wait:
// a goroutine sends the confirmations. That of keys for atomics is sent when no atomic uses them.
func (t *Table) confirm(name string) error {
	id := uint64(0)
	if keys := t.peers.names[name]; keys != nil && exchange.IsForAtomics(name) {
		id = keys.ID()
	}
	if t.peers.owed.Len() >= mostOwed {
		return &failure.Error{Op: "take an offer", Detail: fmt.Sprintf("the peer has withdrawn %d names, and takes no confirmation", mostOwed), Err: failure.ErrLimit}
	}
	t.peers.owed.Push(id)
	if t.peers.answering {
		return nil
	}
	t.peers.answering = true
	t.cfg.Go(func() {
		for {
			id, link, some := t.owes()
			if !some {
				return
			}
			if id != 0 {
				t.cfg.Drain(id)
			}
			ctx, cancel := context.WithTimeout(context.Background(), t.cfg.Timeout)
			if err := t.cfg.Send(ctx, exchange.MsgForgot, nil, func(over uint32) bool { return over == link }); err != nil {
				t.cfg.Fail(err) // otherwise the peer would wait for the confirmation
			}
			cancel()
		}
	})
	return nil
}

// owes takes a withdrawal that is to be confirmed over a link; false if there is none.
func (t *Table) owes() (id uint64, link uint32, some bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.peers.owed.Len() == 0 || t.cfg.Refusal() != nil {
		t.peers.answering = false
		return 0, 0, false
	}
	return t.peers.owed.Pop(), t.link, true
}

// take takes an offer. An offer without a descriptor withdraws the name.
func (p *peers) take(name string, rb *memory.RemoteBuffer) error {
	if rb != nil {
		p.bytes += rb.Weight()
	}
	if name == "" {
		p.list.Push(rb)
		p.tell()
	} else {
		if old := p.names[name]; old != nil && rb == nil {
			old.Withdraw()
		}
		p.named(name, rb)
	}
	if p.bytes > most {
		return &failure.Error{Op: "take an offer", Detail: fmt.Sprintf("the peer has exported more than fits into %d bytes of descriptors", most), Err: failure.ErrLimit}
	}
	return nil
}

// named sets the memory that the peer offers under a name; nil withdraws it.
func (p *peers) named(name string, rb *memory.RemoteBuffer) {
	if old := p.names[name]; old != nil {
		p.bytes -= old.Weight()
	}
	switch {
	case rb == nil:
		delete(p.names, name)
		return
	case p.names == nil:
		p.names = map[string]*memory.RemoteBuffer{}
	}
	p.names[name] = rb.Named(name)
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// forgetNames drops all offers with a name.
func (p *peers) forgetNames() {
	for name := range p.names {
		p.named(name, nil)
	}
}

// pop returns the oldest offer without a name; nil if there is none.
func (p *peers) pop() *memory.RemoteBuffer {
	if p.list.Len() == 0 {
		return nil
	}
	rb := p.list.Pop()
	p.bytes -= rb.Weight()
	if p.list.Len() > 0 {
		p.tell() // for another goroutine that waits
	}
	return rb
}

// find returns the memory that the peer offers under a name, or nil, and a channel that is closed
// at the next change.
func (p *peers) find(name string) (*memory.RemoteBuffer, <-chan struct{}) {
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.names[name], p.changed
}

// drop drops all offers, and makes Take drop later ones.
func (p *peers) drop() {
	p.ended, p.bytes, p.list, p.names = true, 0, fifo.Queue[*memory.RemoteBuffer]{}, nil
}

// tell wakes one goroutine that waits for offers.
func (p *peers) tell() {
	select {
	case p.arrived <- struct{}{}:
	default:
	}
}

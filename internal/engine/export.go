// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/fifo"
	"github.com/gpurdma/gpurdma/internal/memory"
)

// names are the memory that the two sides of a connection have offered by name.
type names struct {
	exported map[string]*memory.RemoteBuffer // by this side; nil while it is being offered
	imports  map[string]*memory.RemoteBuffer // by the peer
	changed  chan struct{}                   // closed at the next change of imports; nil unless a goroutine waits

	withdrawn fifo.Queue[chan struct{}] // a channel for each withdrawal that the peer has not confirmed, which is closed then
	owed      int                       // withdrawals of the peer's that are to be confirmed
	answering bool                      // a goroutine confirms them
}

// Export gives the peer access to local memory, as [Endpoint.Share] does, and offers it under a
// name, for the peer's Import. It ends with the connection, or with Unexport. A name that is
// taken is EEXIST.
func (c *Conn) Export(ctx context.Context, name string, s memory.Span, access ibvfd.Access) error {
	if err := exchange.CheckName("export", name); err != nil {
		return err
	}
	c.mu.Lock()
	if err := c.Works.Refusal(); err != nil {
		c.mu.Unlock()
		return err
	}
	_, taken := c.names.exported[name]
	if !taken {
		if c.names.exported == nil {
			c.names.exported = map[string]*memory.RemoteBuffer{}
		}
		c.names.exported[name] = nil
	}
	c.mu.Unlock()
	if taken {
		return &dmabuf.Error{Op: "export", Device: name, Detail: "the name is taken", Remedy: "use another name, or Unexport it first", Err: unix.EEXIST}
	}
	rb, err := c.Share(s, access)
	if err == nil {
		if err = c.offer(ctx, name, rb); err != nil {
			err = errs.Join(err, c.e.Unshare(rb))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		delete(c.names.exported, name)
		return err
	}
	c.names.exported[name] = rb
	return nil
}

// Unexport withdraws what Export gave. The peer's next access fails, and ends the connection:
// the two programs agree before. It waits until the peer's host does not import the memory any
// more: a message over RDMA may overtake the withdrawal.
func (c *Conn) Unexport(ctx context.Context, name string) error {
	c.mu.Lock()
	if err := c.Works.Refusal(); err != nil { // the keys are withdrawn
		c.mu.Unlock()
		return err
	}
	rb := c.names.exported[name]
	if rb != nil {
		delete(c.names.exported, name)
	}
	c.mu.Unlock()
	if rb == nil {
		return &dmabuf.Error{Op: "unexport", Device: name, Detail: "nothing is exported under the name", Err: unix.ENOENT}
	}
	forgot := make(chan struct{})
	err := c.sendMessage(ctx, exchange.MsgOffer, exchange.EncodeWithdrawal(name), func() { c.names.withdrawn.Push(forgot) })
	if err = errs.Join(err, c.e.Unshare(rb)); err != nil {
		return err
	}
	select {
	case <-forgot:
	case <-c.ended: // and with it the name
	case <-ctx.Done():
		return &dmabuf.Error{Op: "unexport", Device: name, Detail: "the keys are withdrawn, and the peer's host has not confirmed it", Err: errs.Ended(ctx)}
	}
	return nil
}

// confirm tells the peer that a withdrawal was taken. The caller holds the mutex, and must not
// wait: a goroutine sends the confirmations.
func (c *Conn) confirm() {
	c.names.owed++
	if c.names.answering {
		return
	}
	c.names.answering = true
	c.e.tasks.Go(func() {
		for c.owes() {
			ctx, cancel := context.WithTimeout(context.Background(), c.opt.PeerTimeout)
			_ = c.sendMessage(ctx, exchange.MsgForgot, nil, nil) // after an error the connection ends
			cancel()
		}
	})
}

// owes takes a withdrawal that is to be confirmed; false if there is none.
func (c *Conn) owes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names.owed == 0 || c.Works.Refusal() != nil {
		c.names.answering = false
		return false
	}
	c.names.owed--
	return true
}

// confirmed takes the peer's confirmation of the oldest withdrawal.
func (c *Conn) confirmed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names.withdrawn.Len() == 0 {
		return &dmabuf.Error{Op: "read an exchange", Detail: "a confirmation of nothing", Err: ErrMalformed}
	}
	close(c.names.withdrawn.Pop())
	return nil
}

// imported notes what the peer offers under a name; nil if it withdraws it. The caller holds
// the mutex.
func (c *Conn) imported(name string, rb *memory.RemoteBuffer) {
	if old := c.names.imports[name]; old != nil {
		c.offerBytes -= old.Weight()
	}
	switch {
	case rb == nil:
		delete(c.names.imports, name)
		return
	case c.names.imports == nil:
		c.names.imports = map[string]*memory.RemoteBuffer{}
	}
	c.names.imports[name] = rb.Named(name)
	if c.names.changed != nil {
		close(c.names.changed)
		c.names.changed = nil
	}
}

// Import waits until the peer has exported memory under a name, and returns its descriptor.
func (c *Conn) Import(ctx context.Context, name string) (*memory.RemoteBuffer, error) {
	if err := exchange.CheckName("import", name); err != nil {
		return nil, err
	}
	for {
		c.mu.Lock()
		rb, err := c.names.imports[name], c.Works.Refusal()
		if c.names.changed == nil {
			c.names.changed = make(chan struct{})
		}
		changed := c.names.changed
		c.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if rb != nil {
			return rb, nil
		}
		select {
		case <-changed:
		case <-c.ended:
		case <-ctx.Done():
			return nil, &dmabuf.Error{Op: "import", Device: name, Detail: "the peer has not exported it", Err: errs.Ended(ctx)}
		}
	}
}

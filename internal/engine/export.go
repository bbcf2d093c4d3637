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

// exports are the memory that this side has offered by name. The connection's mutex guards them.
type exports struct {
	names map[string]*memory.RemoteBuffer // a nil value: the name is being offered or withdrawn

	withdrawn fifo.Queue[chan struct{}] // a channel for each withdrawal that the peer has not confirmed; the confirmation closes it
	owed      int                       // withdrawals of the peer that this side has not confirmed
	answering bool                      // a goroutine confirms them
}

// Export gives the peer access to local memory, as [Endpoint.Share] does, and offers it under a
// name, for the peer's Import. The access ends with the connection, or with Unexport. If the name
// is exported already, Export returns EEXIST.
func (c *Conn) Export(ctx context.Context, name string, s memory.Span, access ibvfd.Access) error {
	if err := exchange.CheckName("export", name); err != nil {
		return err
	}
	c.mu.Lock()
	if err := c.Works.Refusal(); err != nil {
		c.mu.Unlock()
		return err
	}
	_, taken := c.exports.names[name]
	if !taken {
		if c.exports.names == nil {
			c.exports.names = map[string]*memory.RemoteBuffer{}
		}
		c.exports.names[name] = nil
	}
	c.mu.Unlock()
	if taken {
		return &dmabuf.Error{Op: "export", Device: name, Detail: "the name is taken", Remedy: "use another name, or Unexport it first", Err: unix.EEXIST}
	}
	rb, err := c.Share(s, access)
	if err == nil {
		if err = c.offerFirst(ctx, name, rb); err != nil {
			err = errs.Join(err, c.e.Unshare(rb))
		}
	}
	if err != nil {
		c.mu.Lock()
		delete(c.exports.names, name)
		c.mu.Unlock()
	}
	return err
}

// offerFirst offers memory under a name that was taken, and gives the name the memory.
func (c *Conn) offerFirst(ctx context.Context, name string, rb *memory.RemoteBuffer) error {
	for {
		c.mu.Lock()
		link := c.links
		c.mu.Unlock()
		if err := c.offer(ctx, name, rb); err != nil {
			return err
		}
		c.mu.Lock()
		same := c.links == link // another link offers only what has its name
		if same {
			c.exports.names[name] = rb
		}
		c.mu.Unlock()
		if same {
			return nil
		}
	}
}

// Unexport withdraws the access that Export gave. The peer's next access fails, and ends the
// connection: the two programs agree before. Unexport waits until the peer's host has confirmed
// that it does not import the memory any more, because a message over RDMA may overtake the
// withdrawal.
func (c *Conn) Unexport(ctx context.Context, name string) error {
	c.mu.Lock()
	if err := c.Works.Refusal(); err != nil { // the keys are withdrawn
		c.mu.Unlock()
		return err
	}
	rb := c.exports.names[name]
	if rb != nil {
		c.exports.names[name] = nil // taken, until the withdrawal is sent
	}
	c.mu.Unlock()
	if rb == nil {
		return &dmabuf.Error{Op: "unexport", Device: name, Detail: "nothing is exported under the name", Err: unix.ENOENT}
	}
	forgot := make(chan struct{})
	err := c.sendMessage(ctx, exchange.MsgOffer, exchange.EncodeWithdrawal(name), func() bool {
		c.exports.withdrawn.Push(forgot)
		return true
	})
	c.mu.Lock()
	delete(c.exports.names, name)
	c.mu.Unlock()
	if err = errs.Join(err, c.e.Unshare(rb)); err != nil {
		return &dmabuf.Error{Op: "unexport", Device: name, Detail: "the peer may not know it", Err: err}
	}
	select {
	case <-forgot:
	case <-c.ended: // the name ends with the connection
	case <-ctx.Done():
		return &dmabuf.Error{Op: "unexport", Device: name, Detail: "the keys are withdrawn, and the peer's host has not confirmed it", Err: errs.Ended(ctx)}
	}
	return nil
}

// confirm confirms a withdrawal to the peer. The caller holds the mutex, and must not wait: a
// goroutine sends the confirmations.
func (c *Conn) confirm() {
	c.exports.owed++
	if c.exports.answering {
		return
	}
	c.exports.answering = true
	c.e.tasks.Go(func() {
		for {
			link, some := c.owes()
			if !some {
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), c.opt.PeerTimeout)
			err := c.sendMessage(ctx, exchange.MsgForgot, nil, func() bool { return c.links == link })
			if err != nil && !c.Works.Lose(err) {
				c.Works.Abort(err) // otherwise the peer would wait for the confirmation
			}
			cancel()
		}
	})
}

// owes takes a withdrawal that is to be confirmed over a link; false if there is none.
func (c *Conn) owes() (link uint32, some bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exports.owed == 0 || c.Works.Refusal() != nil {
		c.exports.answering = false
		return 0, false
	}
	c.exports.owed--
	return c.links, true
}

// confirmed takes the peer's confirmation of the oldest withdrawal.
func (c *Conn) confirmed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exports.withdrawn.Len() == 0 {
		return &dmabuf.Error{Op: "read an exchange", Detail: "a confirmation of nothing", Err: ErrMalformed}
	}
	close(c.exports.withdrawn.Pop())
	return nil
}

// Import waits until the peer has exported memory under a name, and returns its descriptor.
func (c *Conn) Import(ctx context.Context, name string) (*memory.RemoteBuffer, error) {
	if err := exchange.CheckName("import", name); err != nil {
		return nil, err
	}
	for {
		c.mu.Lock()
		rb, changed := c.offered.find(name)
		c.mu.Unlock()
		if err := c.Works.Refusal(); err != nil {
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

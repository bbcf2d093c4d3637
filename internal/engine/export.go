// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/memory"
)

// names are the memory that the two sides of a connection have offered by name.
type names struct {
	exported map[string]*memory.RemoteBuffer // by this side; nil while it is being offered
	imports  map[string]*memory.RemoteBuffer // by the peer
	changed  chan struct{}                   // closed at the next change of imports; nil unless a goroutine waits
}

// Export gives the peer access to local memory, as [Endpoint.Share] does, and offers it under a
// name, for the peer's Import. It ends with the connection, or with Unexport. A name that is
// taken is EEXIST.
func (c *Conn) Export(ctx context.Context, name string, s memory.Span, access ibvfd.Access) error {
	if err := exchange.CheckName("export", name); err != nil {
		return err
	}
	c.mu.Lock()
	if err := c.refusal(); err != nil {
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
// the two programs agree before.
func (c *Conn) Unexport(ctx context.Context, name string) error {
	c.mu.Lock()
	if err := c.refusal(); err != nil { // the keys are withdrawn
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
	err := c.sendOffer(ctx, exchange.EncodeWithdrawal(name))
	return errs.Join(err, c.e.Unshare(rb))
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
		rb, err := c.names.imports[name], c.refusal()
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

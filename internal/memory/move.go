// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/placement"
)

// Move puts the memory of several NICs' Buffers on another source, under the keys that this side and its
// peers have: all or none of it. bufs are the Buffers that the NICs have of one memory. It copies no
// bytes. Until it returns, an operation meets the old memory or the new one, key by key. After an error
// everything is where it was; errors.ErrUnsupported says that the keys cannot stay. The old source is let
// go of, and closed if the Buffers own it.
func Move(ctx context.Context, bufs []*Buffer, to Source) error {
	if err := errs.Ended(ctx); err != nil {
		return err
	}
	for _, b := range bufs {
		if err := b.Use(); err != nil {
			return err
		}
		defer b.core.unuse()
	}
	for i, b := range bufs {
		if err := b.core.moveTo(to); err != nil {
			for _, done := range bufs[:i] {
				err = errs.Join(err, done.core.moveTo(done.core.was()))
			}
			return err
		}
	}
	var err error
	for _, b := range bufs {
		err = errs.Join(err, b.core.leave())
	}
	return err
}

// former is the memory that a core was on, until leave.
type former struct {
	at      *backing
	release func()
}

// cannotMove returns the error of a core whose memory stays.
func (c *core) cannotMove(why, remedy string) error {
	return &dmabuf.Error{Op: "move a buffer", Device: c.nic.Name(), Detail: why, Err: fmt.Errorf("%w: %w", errors.ErrUnsupported, unix.EOPNOTSUPP), Remedy: remedy}
}

// moveTo moves all registrations of the memory, or none. A second call, before leave, moves them back.
func (c *core) moveTo(to Source) (err error) {
	const anew = "register the other memory, and export it again: the peers import it anew"
	c.moving.Lock()
	defer c.moving.Unlock()
	switch {
	case to == nil:
		return &dmabuf.Error{Op: "move a buffer", Device: c.nic.Name(), Detail: "no source", Remedy: "give memory of package gpualloc, or of your own", Err: unix.EINVAL}
	case c.source() == nil:
		return c.cannotMove("host memory of the Fabric's stays where it is", anew)
	case c.staging != nil:
		return c.cannotMove("the memory is staged", anew)
	case to.Size() < c.size:
		return &dmabuf.Error{Op: "move a buffer", Device: c.nic.Name(), Detail: fmt.Sprintf("%d bytes, of which there are %d", c.size, to.Size()), Err: dmabuf.ErrRange}
	}
	c.mu.Lock()
	var regs []*rc.Registration
	if c.reg != nil {
		regs = append(regs, c.reg)
	}
	for r := range c.shared {
		regs = append(regs, r)
	}
	ended := c.ended
	c.mu.Unlock()
	if ended {
		return errs.Closed("buffer")
	}
	release, err := to.Hold()
	if err != nil {
		return err
	}
	for i, r := range regs {
		if err = c.move(r, to); err == nil {
			continue
		}
		for _, done := range regs[:i] {
			err = errs.Join(err, c.move(done, c.source()))
		}
		release()
		if errors.Is(err, errors.ErrUnsupported) {
			err = &dmabuf.Error{Op: "move a buffer", Device: c.nic.Name(), Detail: "the keys cannot stay", Err: err, Remedy: anew}
		}
		return err
	}
	now, was := on(to), former{c.at.Load(), nil}
	c.mu.Lock()
	was.release, c.release = c.release, release
	if c.former != nil { // back again, where it is held twice now
		was.release()
		c.former.release()
		c.former = nil
	} else {
		c.former = &was
	}
	if c.path.Direct == Proven {
		c.path.Direct = Registered
	}
	c.path.Proof = placement.Placement{}
	c.mu.Unlock()
	c.moved.Store(false)
	c.at.Store(now)
	return nil
}

// move moves a registration.
func (c *core) move(r *rc.Registration, to Source) error {
	if r.Move == nil {
		return c.cannotMove("the registration stays where it is", "")
	}
	return r.Move(c.export(to))
}

// was returns the memory of before moveTo.
func (c *core) was() Source {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.former.at.src
}

// leave lets go of the memory of before moveTo.
func (c *core) leave() error {
	m := c.nic.readBack
	m.gate <- struct{}{}
	err := closeRegistrations(&c.bytes)
	<-m.gate
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		return err // the memory stays until the Buffer is closed
	}
	c.former.release()
	c.former = nil
	if c.owned == nil {
		return nil
	}
	if err := c.owned.Close(); err != nil {
		return err
	}
	c.owned = nil
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/placement"
)

// Move puts the memory of several NICs' Buffers on another source, under the keys that this side and its
// peers have: all or none of it. bufs are the Buffers that the NICs have of one memory. It copies no
// bytes. Until it returns, an operation meets the old memory or the new one, key by key, and the CPU waits.
// After an error everything is where it was, unless the error says that a key could not go back;
// errors.ErrUnsupported says that the keys cannot stay. The old source is let go of, and closed if the
// Buffers own it.
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
	var done []*move
	defer func() { // letGo may take long, and runs without the locks
		for _, m := range done {
			m.letGo()
		}
	}()
	for _, b := range bufs { // always in the same order
		b.core.moving.Lock()
		defer b.core.moving.Unlock()
	}
	for _, b := range bufs {
		m, err := b.core.moveTo(to)
		if err != nil {
			for _, m := range done {
				err = errs.Join(err, m.back())
			}
			done = nil
			return err
		}
		done = append(done, m)
	}
	for _, m := range done {
		m.commit()
	}
	return nil
}

// move is a core whose registrations are on another source. moving is locked.
type move struct {
	c       *core
	to      Source
	regs    []*rc.Registration
	release func()    // of the other source
	old     func()    // releases the source from before
	owned   io.Closer // the source from before, if it is to be closed; may be nil
}

// cannotMove returns the error of a core whose memory stays.
func (c *core) cannotMove(why, remedy string) error {
	return &failure.Error{Op: "move a buffer", Device: c.nic.Name(), Detail: why, Err: fmt.Errorf("%w: %w", errors.ErrUnsupported, unix.EOPNOTSUPP), Remedy: remedy}
}

// moveTo moves all registrations of the memory, or none.
func (c *core) moveTo(to Source) (*move, error) {
	const anew = "register the other memory, and export it again: the peers import it anew"
	switch {
	case to == nil:
		return nil, &failure.Error{Op: "move a buffer", Device: c.nic.Name(), Detail: "no source", Remedy: "give memory of package gpualloc, or of your own", Err: unix.EINVAL}
	case c.source() == nil:
		return nil, c.cannotMove("host memory of the Fabric's stays where it is", anew)
	case c.staging != nil:
		return nil, c.cannotMove("the memory is staged", anew)
	case to.Size() < c.size:
		return nil, &failure.Error{Op: "move a buffer", Device: c.nic.Name(), Detail: fmt.Sprintf("%d bytes, of which there are %d", c.size, to.Size()), Err: failure.ErrRange}
	}
	// The next Flush registers a byte of the other memory.
	if err := closeRegistrations(&c.bytes); err != nil {
		return nil, err
	}
	m := &move{c: c, to: to}
	var err error
	if m.release, err = to.Hold(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	var regs []*rc.Registration
	if c.reg != nil {
		regs = append(regs, c.reg)
	}
	for r := range c.shared {
		regs = append(regs, r)
	}
	c.mu.Unlock()
	for _, r := range regs {
		if r.Move == nil {
			err = c.cannotMove("the registration stays where it is", anew)
		} else {
			err = r.Move(c.export(to))
		}
		if err != nil {
			break
		}
		m.regs = append(m.regs, r)
	}
	if err == nil {
		return m, nil
	}
	if errors.Is(err, errors.ErrUnsupported) {
		err = &failure.Error{Op: "move a buffer", Device: c.nic.Name(), Detail: "the keys cannot stay", Err: err, Remedy: anew}
	}
	return nil, errs.Join(err, m.back())
}

// back moves the registrations to where they were. If one cannot be moved, the other source stays held
// until the memory is freed.
func (m *move) back() (err error) {
	c := m.c
	for _, r := range m.regs {
		if e := r.Move(c.exported()); e != nil {
			err = errs.Join(err, fmt.Errorf("a key of %s stays on the other memory: %w", c.nic.Name(), e))
		}
	}
	if err == nil {
		m.release()
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.release
	c.release = func() { before(); m.release() }
	return err
}

// commit makes the other source the core's.
func (m *move) commit() {
	c := m.c
	c.mu.Lock()
	m.old, m.owned = c.release, c.owned
	c.release, c.owned = m.release, nil
	if c.path.Direct == Proven {
		c.path.Direct = Registered
	}
	c.path.Proof = placement.Placement{}
	c.moved.Store(false)
	c.at.Store(on(m.to))
	c.mu.Unlock()
}

// letGo lets go of the source from before. moving is not locked.
func (m *move) letGo() {
	m.old()
	if m.owned == nil || m.owned.Close() == nil {
		return
	}
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	m.c.owned = m.owned // it is tried again when the memory is freed
}

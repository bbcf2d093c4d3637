// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// ownedSource is a source that a core owns, and that may refuse to be closed.
type ownedSource struct {
	memSource
	refuse, closed int
}

func (o *ownedSource) Close() error {
	if o.refuse--; o.refuse >= 0 {
		return unix.EIO
	}
	o.closed++
	return nil
}

// stubborn makes the first refuse calls of r's close fail.
func stubborn(r *rc.Registration, refuse int) {
	end := r.Close
	r.Close = func() error {
		if refuse--; refuse >= 0 {
			return unix.EBUSY
		}
		return end()
	}
}

// A second Close frees what the first could not free; the first one returns an error.
func TestCloseAgain(t *testing.T) {
	n := inMemory(t).open(t, NICOptions{})
	src := &ownedSource{memSource: memSource{mem: make([]byte, 64)}, refuse: 2}
	c := must(n.register(src, BufferOptions{}))(t)
	c.owned = src
	b := c.all(64)
	stubborn(c.reg, 1)
	if err := b.Close(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("close while the registration does not end: %v", err)
	}
	if _, err := b.WriteAt([]byte{1}, 0); err != nil {
		t.Errorf("nothing was let go: %v", err)
	}
	for range 2 {
		if err := b.Close(); !errors.Is(err, unix.EIO) {
			t.Errorf("close while the memory is not freed: %v", err)
		}
		for name, err := range map[string]error{"WriteAt": second(b.WriteAt([]byte{1}, 0)), "Slice": second(b.Slice(0, 1)), "Sync": b.Sync()} {
			if !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s without a registration: %v", name, err)
			}
		}
		if err := n.Close(); !errors.Is(err, dmabuf.ErrInUse) {
			t.Errorf("close the NIC: %v", err)
		}
	}
	for range 2 {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if src.closed != 1 || src.holds != 0 || n.Stats().Pinned != 0 {
		t.Errorf("closed %d times, held %d times, %+v", src.closed, src.holds, n.Stats())
	}
}

// The NIC's Close frees memory that could not be freed in the background.
func TestReleaseAgain(t *testing.T) {
	for name, release := range map[string]func(b *Buffer) error{
		"Release": (*Buffer).Release,
		"the last slice": func(b *Buffer) error {
			s, err := b.Slice(1, 2)
			if err != nil {
				return err
			}
			if err := b.Release(); err != nil {
				return err
			}
			err = s.Close()
			return errors.Join(err, s.Close())
		},
		"the last operation": func(b *Buffer) error {
			if err := b.use(); err != nil {
				return err
			}
			err := b.Release()
			b.core.unuse()
			return errors.Join(err, unix.EBUSY) // no caller got this error
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := inMemory(t).open(t, NICOptions{})
			b := must(n.AllocHost(64))(t)
			stubborn(b.core.reg, 2)
			if err := release(b); !errors.Is(err, unix.EBUSY) {
				t.Errorf("%v", err)
			}
			if err := n.Close(); !errors.Is(err, unix.EBUSY) || !errors.Is(err, dmabuf.ErrInUse) {
				t.Errorf("close the NIC, the first time: %v", err)
			}
			if err := n.Close(); err != nil {
				t.Errorf("close the NIC again: %v", err)
			}
			if n.Stats().Pinned != 0 {
				t.Errorf("%+v", n.Stats())
			}
		})
	}
}

// A key that was not withdrawn keeps its memory.
func TestUnshareAgain(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	b := hostKind.make(t, w.b.nic, 64)
	rb := must(w.b.Share(w.ba, b.All(), allAccess))(t)
	stubborn(rb.share.regs[0], 2)
	for range 2 {
		if err := w.b.Unshare(rb); !errors.Is(err, unix.EBUSY) {
			t.Errorf("%v", err)
		}
		if err := b.Close(); !errors.Is(err, dmabuf.ErrInUse) {
			t.Errorf("close of memory to which there is a key: %v", err)
		}
	}
	w.ok(w.b.Unshare(rb))
	w.ok(b.Close())

	// The connection's end withdraws keys, too.
	b = hostKind.make(t, w.b.nic, 64)
	rb = must(w.b.Share(w.ba, b.All(), allAccess))(t)
	stubborn(rb.share.regs[0], 1)
	w.ok(w.b.Remove(w.ba))
	if err := b.Close(); !errors.Is(err, dmabuf.ErrInUse) {
		t.Errorf("close of memory to which there is a key: %v", err)
	}
	if err := w.b.nic.Close(); !errors.Is(err, dmabuf.ErrInUse) { // the endpoint and the buffer
		t.Errorf("close the NIC: %v", err)
	}
	w.ok(b.Close())
}

// stuckLink is a link whose first closes fail.
type stuckLink struct {
	rc.Link
	stays int
}

func (l *stuckLink) Close() error {
	if l.stays--; l.stays >= 0 {
		return unix.EBUSY
	}
	return l.Link.Close()
}

// While a link is not closed, the memory of operations that were under way on it stays.
func TestStuckLink(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a.nic, 64), hostKind.make(t, w.b.nic, 64)
	rb := w.share(theirs.All(), allAccess)
	c := w.a.connTo(w.ab)
	c.mu.Lock()
	c.link = &stuckLink{Link: c.link, stays: 2}
	c.mu.Unlock()
	w.ok(w.a.Recv(mine.All(), w.ab, "receive"))
	w.ok(w.a.InjectWrite([]byte{1}, w.ab, rb.Part(0, 1)))
	slots := len(w.a.slab.free)
	w.ok(w.a.Remove(w.ab))
	for range 2 {
		if c := w.wait(w.a); c.Err == nil {
			t.Errorf("%+v", c)
		}
	}
	for range 2 {
		if err := mine.Close(); !errors.Is(err, dmabuf.ErrInUse) || len(w.a.slab.free) != slots {
			t.Errorf("close of memory that the NIC may touch: %v", err)
		}
		_ = w.a.nic.Close() // the NIC tries again
	}
	w.ok(mine.Close())
	if len(w.a.slab.free) != slots+1 {
		t.Errorf("%d places for what is injected, there were %d and one more", len(w.a.slab.free), slots)
	}
}

// The slab of injected data also outlives its endpoint.
func TestStuckLinkOutlivesItsEndpoint(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	theirs := hostKind.make(t, w.b.nic, 64)
	rb := w.share(theirs.All(), allAccess)
	w.ok(w.a.InjectWrite([]byte{1}, w.ab, rb.Part(0, 1)))
	c := w.a.connTo(w.ab)
	c.mu.Lock()
	c.link = &stuckLink{Link: c.link, stays: 2}
	c.mu.Unlock()
	pinned := w.a.nic.Stats().Pinned
	w.ok(w.a.Close())
	if err := w.a.nic.Close(); !errors.Is(err, unix.EBUSY) || pinned == 0 || w.a.nic.Stats().Pinned != pinned {
		t.Errorf("%v; %+v, %d bytes before", err, w.a.nic.Stats(), pinned)
	}
	w.ok(w.a.nic.Close())
	if w.a.nic.Stats().Pinned != 0 {
		t.Errorf("%+v", w.a.nic.Stats())
	}
}

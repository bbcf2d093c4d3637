// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// stubbornDevice refuses to end the next registration as often as refuse says.
type stubbornDevice struct {
	*fakeDevice
	refuse int
}

func (d *stubbornDevice) Host(mem *hostmem.Buf, off, n int64, access ibvfd.Access) (*rc.Registration, error) {
	r, err := d.fakeDevice.Host(mem, off, n, access)
	if err != nil {
		return nil, err
	}
	end, refuse := r.Close, d.refuse
	d.refuse = 0
	r.Close = func() error {
		if refuse--; refuse >= 0 {
			return unix.EBUSY
		}
		return end()
	}
	return r, nil
}

// A key that was not withdrawn keeps its memory.
func TestUnshareAgain(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	dev := &stubbornDevice{fakeDevice: fakeOf(w.b.nic)}
	replaceDevice(w.b.nic, dev)
	b := hostKind.make(t, w.b.nic, 64)
	dev.refuse = 2
	rb := must(w.b.Share(w.ba, b.All(), allAccess))(t)
	for range 2 {
		if err := w.b.Unshare(rb); !errors.Is(err, unix.EBUSY) {
			t.Errorf("%v", err)
		}
		if err := b.Close(); !errors.Is(err, failure.ErrInUse) {
			t.Errorf("close of memory to which there is a key: %v", err)
		}
	}
	w.ok(w.b.Unshare(rb))
	w.ok(b.Close())

	// The connection's end withdraws keys, too.
	b = hostKind.make(t, w.b.nic, 64)
	dev.refuse = 1
	must(w.b.Share(w.ba, b.All(), allAccess))(t)
	w.ok(w.b.Remove(w.ba))
	if err := b.Close(); !errors.Is(err, failure.ErrInUse) {
		t.Errorf("close of memory to which there is a key: %v", err)
	}
	if err := w.b.nic.Close(); !errors.Is(err, failure.ErrInUse) { // the endpoint and the buffer
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

// stuckDevice makes such links.
type stuckDevice struct{ *fakeDevice }

func (d stuckDevice) Link(a rc.Attr) (rc.Link, error) {
	l, err := d.fakeDevice.Link(a)
	if err != nil {
		return nil, err
	}
	return &stuckLink{Link: l, stays: 2}, nil
}

// stuckWorld is a world in which the first two closes of a's link fail.
func stuckWorld(t *testing.T) *world {
	s := inMemory(t)
	w := &world{t: t, a: s.endpoint(t, EndpointOptions{}), b: s.endpoint(t, EndpointOptions{})}
	replaceDevice(w.a.nic, stuckDevice{fakeOf(w.a.nic)})
	w.connect()
	return w
}

// While a link is not closed, the memory of operations that were under way on it stays.
func TestStuckLink(t *testing.T) {
	w := stuckWorld(t)
	mine, theirs := hostKind.make(t, w.a.nic, 64), hostKind.make(t, w.b.nic, 64)
	rb := w.share(theirs.All(), allAccess)
	w.ok(w.a.Recv(mine.All(), w.ab, "receive"))
	w.ok(w.a.InjectWrite([]byte{1}, w.ab, rb.Part(0, 1)))
	slots := w.a.slab.Free()
	w.ok(w.a.Remove(w.ab))
	for range 2 {
		if c := w.wait(w.a); c.Err == nil {
			t.Errorf("%+v", c)
		}
	}
	for range 2 {
		if err := mine.Close(); !errors.Is(err, failure.ErrInUse) || w.a.slab.Free() != slots {
			t.Errorf("close of memory that the NIC may touch: %v", err)
		}
		_ = w.a.nic.Close() // the NIC tries again
	}
	w.ok(mine.Close())
	if w.a.slab.Free() != slots+1 {
		t.Errorf("%d places for what is injected, there were %d and one more", w.a.slab.Free(), slots)
	}
}

// The slab of injected data also outlives its endpoint.
func TestStuckLinkOutlivesItsEndpoint(t *testing.T) {
	w := stuckWorld(t)
	theirs := hostKind.make(t, w.b.nic, 64)
	rb := w.share(theirs.All(), allAccess)
	w.ok(w.a.InjectWrite([]byte{1}, w.ab, rb.Part(0, 1)))
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

// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// Who gets no answer, or cannot be connected to, is told which way it was: TCP has
// shown that the peer is there, and the GIDs may not reach each other.
func TestErrorsSayWhichWay(t *testing.T) {
	const way = "port 0 of fake0, ::1 to ::1"
	w := inMemory(t).world(t, EndpointOptions{})
	over := must(w.a.Connection(w.ab))(t)
	if over.String() != way {
		t.Errorf("%v", over)
	}
	mine, theirs := hostKind.make(t, w.a.nic, 8), hostKind.make(t, w.b.nic, 8)
	rb := w.share(theirs.All(), allAccess)
	w.b.mu.Lock()
	deaf := w.b.peers[0].conn.link.(*fakeLink)
	w.b.mu.Unlock()
	deaf.f.mu.Lock()
	for _, q := range deaf.qps {
		q.failed = true
	}
	deaf.f.mu.Unlock()
	for i := range 3 {
		w.ok(w.a.Write(mine.All(), w.ab, rb.All(), i))
	}
	for i := range 3 {
		c := w.wait(w.a)
		if c.Context != i || !strings.Contains(c.Err.Error(), way) {
			t.Errorf("%+v, want the way", c)
		}
		if i == 0 && !errors.Is(c.Err, &ibvfd.WCError{Status: ibvfd.WCRetryExcErr}) {
			t.Errorf("the first: %v", c.Err)
		}
	}
	if err := w.a.Lost(limited(t), w.ab); !errors.Is(err, ErrNotConnected) || !strings.Contains(err.Error(), way) {
		t.Error(err)
	}
	if _, err := w.a.Connection(w.ab + 1); !errors.Is(err, ErrNotConnected) {
		t.Errorf("nobody: %v", err)
	}
	if p := must(w.a.Insert("127.0.0.1:1"))(t); !errors.Is(second(w.a.Connection(p)), ErrNotConnected) {
		t.Errorf("peer %d has a connection that nobody made", p)
	}
}

// unroutable's links cannot be connected.
type unroutable struct{ *fakeDevice }

func (d unroutable) link(a linkAttr) (link, error) {
	l, err := d.fakeDevice.link(a)
	return nowhere{l.(*fakeLink)}, err
}

type nowhere struct{ *fakeLink }

func (nowhere) connect([queues]ibvfd.Endpoint) error { return unix.ENETUNREACH }

func TestUnroutable(t *testing.T) {
	s := inMemory(t)
	server, client := s.endpoint(t, EndpointOptions{}), s.endpoint(t, EndpointOptions{})
	addr := must(server.Listen("127.0.0.1:0"))(t).String()
	client.nic.dev = unroutable{client.nic.dev.(*fakeDevice)}
	if _, err := client.Connect(limited(t), addr); !errors.Is(err, unix.ENETUNREACH) || !strings.Contains(err.Error(), "over port 0 of fake0, ::1 to ::1") {
		t.Errorf("where this side finds out: %v", err)
	}
	// Where the other side does, the GID that it was told of is what there is to say.
	fine := s.endpoint(t, EndpointOptions{})
	server.nic.dev = unroutable{server.nic.dev.(*fakeDevice)}
	if _, err := fine.Connect(limited(t), addr); err == nil || !strings.Contains(err.Error(), "the peer was told of port 0 of fake0, ::1") {
		t.Errorf("where the other side does: %v", err)
	}
}

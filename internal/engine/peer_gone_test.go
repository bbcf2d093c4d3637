// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// call connects a new endpoint, which hangUp closes.
func (s setting) call(t testing.TB, addr string) *Endpoint {
	t.Helper()
	e := s.endpoint(t, EndpointOptions{AllowPlaintext: true})
	must(e.Connect(limited(t), addr))(t)
	return e
}

func hangUp(t testing.TB, e *Endpoint) {
	t.Helper()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// Callers that come and go do not keep others out, accepted or not, even without Remove;
// callers that are still connected keep their places.
func TestVanishedCallers(t *testing.T) { testVanishedCallers(t, inMemory(t)) }

func testVanishedCallers(t *testing.T, s setting) {
	const most = 2
	server := s.endpoint(t, EndpointOptions{MaxPeers: most})
	addr := must(server.Listen("127.0.0.1:0"))(t).String()

	t.Run("not accepted", func(t *testing.T) {
		for range 3 * most {
			e := s.call(t, addr)
			for len(server.Peers()) == 0 {
				runtime.Gosched()
			}
			hangUp(t, e)
			for len(server.Peers()) > 0 {
				runtime.Gosched()
			}
		}
		e := s.call(t, addr)
		p := must(server.Accept(limited(t)))(t)
		if list := server.Peers(); !slices.Equal(list, []operation.Peer{p}) {
			t.Errorf("peers %v, accepted %d", list, p)
		}
		hangUp(t, e)
		if err := server.Lost(limited(t), p); !errors.Is(err, ErrNotConnected) {
			t.Error(err)
		}
	})

	t.Run("accepted", func(t *testing.T) {
		stays := s.call(t, addr)
		first := must(server.Accept(limited(t)))(t)
		var gone []operation.Peer
		for range 3 * most {
			e := s.call(t, addr)
			p := must(server.Accept(limited(t)))(t)
			hangUp(t, e)
			if err := server.Lost(limited(t), p); !errors.Is(err, ErrNotConnected) {
				t.Fatal(err)
			}
			// It stays until its place is needed, and reports the reason.
			if list := server.Peers(); !slices.Equal(list, []operation.Peer{first, p}) {
				t.Fatalf("peers %v, want %d and %d", list, first, p)
			}
			gone = append(gone, p)
		}
		buf := hostKind.make(t, server.nic, 8)
		for i, p := range gone {
			for name, err := range map[string]error{
				"Send": server.Send(buf.All(), p, nil), "Share": second(server.Share(p, buf.All(), allAccess)),
				"Offered": second(server.Offered(limited(t), p)), "Lost": server.Lost(limited(t), p),
			} {
				if !errors.Is(err, ErrNotConnected) {
					t.Errorf("%s with a peer that is gone: %v", name, err)
				}
			}
			if err := server.Remove(p); i < len(gone)-1 && !errors.Is(err, ErrNotConnected) || i == len(gone)-1 && err != nil {
				t.Errorf("Remove %d of %v: %v", p, gone, err)
			}
		}

		// Connected peers stay: if the table is full of them there is no place.
		other := s.call(t, addr)
		second := must(server.Accept(limited(t)))(t)
		late := s.endpoint(t, EndpointOptions{AllowPlaintext: true})
		if _, err := late.Connect(limited(t), addr); err == nil {
			t.Error("a third of two got in")
		}
		if _, err := server.Insert("127.0.0.1:1"); !errors.Is(err, failure.ErrLimit) {
			t.Errorf("a third of two: %v", err)
		}
		if list := server.Peers(); !slices.Equal(list, []operation.Peer{first, second}) {
			t.Errorf("peers %v, want %d and %d", list, first, second)
		}
		rb := must(server.Share(first, buf.All(), allAccess))(t)
		if err := server.Offer(limited(t), first, rb); err != nil {
			t.Error(err)
		}
		if got := must(stays.Offered(limited(t), stays.Peers()[0]))(t); got.ID() != buf.ID() {
			t.Errorf("%+v", got)
		}
		hangUp(t, other)
		if err := server.Lost(limited(t), second); !errors.Is(err, ErrNotConnected) {
			t.Error(err)
		}
		must(late.Connect(limited(t), addr))(t)
		must(server.Accept(limited(t)))(t)
	})
}

// An inserted address stays, whatever happens to its connection.
func TestInsertedPeersStay(t *testing.T) {
	const nobody = "127.0.0.1:1"
	e := inMemory(t).endpoint(t, EndpointOptions{MaxPeers: 1})
	p := must(e.Insert(nobody))(t)
	if err := e.Lost(limited(t), p); !errors.Is(err, ErrNotConnected) {
		t.Errorf("before its first use: %v", err)
	}
	buf := hostKind.make(t, e.nic, 8)
	if err := e.Send(buf.All(), p, nil); err != nil {
		t.Fatal(err)
	}
	if err := e.Lost(limited(t), p); !errors.Is(err, ErrNotConnected) || !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("lost for another reason than that nobody is there: %v", err)
	}
	if _, err := e.Insert(nobody); !errors.Is(err, failure.ErrLimit) {
		t.Errorf("in place of an address: %v", err)
	}
}

// Lost reports the reason any number of times, without a call of Poll.
func TestLost(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.b.Lost(ctx, w.ba); !errors.Is(err, context.Canceled) {
		t.Errorf("while it is up: %v", err)
	}
	if err := w.b.Lost(limited(t), w.ba+1); !errors.Is(err, ErrNotConnected) {
		t.Errorf("nobody: %v", err)
	}
	told := make(chan error, 1)
	go func() { told <- w.b.Lost(limited(t), w.ba) }()
	link := w.a.linkTo(w.ab)
	event := &rc.EventError{NIC: "fake0", Event: ibvfd.Event{Type: ibvfd.EventQPFatal}}
	link.Break(event)
	var why *rc.EventError
	if err := w.a.Lost(limited(t), w.ab); !errors.Is(err, ErrNotConnected) || !errors.As(err, &why) {
		t.Errorf("by the NIC: %v", err)
	}
	if err := <-told; !errors.Is(err, ErrNotConnected) {
		t.Errorf("by the peer: %v", err)
	}
	w.connect()
	go func() { told <- w.b.Lost(limited(t), w.ba) }()
	w.ok(w.b.Close())
	if err := <-told; !errors.Is(err, os.ErrClosed) && !errors.Is(err, ErrNotConnected) {
		t.Errorf("by Close: %v", err)
	}
}

// Offers that were not taken end with the connection.
func TestOffersEndWithTheirConnection(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	theirs := hostKind.make(t, w.b.nic, 100)
	rb := must(w.b.Share(w.ba, theirs.All(), allAccess))(t)
	c := w.a.connTo(w.ab)
	const n = 10
	for range n {
		w.ok(w.b.Offer(limited(t), w.ba, rb))
	}
	w.ok(w.b.connTo(w.ba).Offers.Export(limited(t), "last", theirs.All(), allAccess, func(rb *memory.RemoteBuffer) *memory.RemoteBuffer { return rb.WithID(1) }))
	must(c.Offers.Import(limited(t), "last"))(t) // the others have arrived before it
	w.ok(w.b.Remove(w.ba))
	if err := w.a.Lost(limited(t), w.ab); !errors.Is(err, ErrNotConnected) {
		t.Error(err)
	}
	if rb, err := w.a.Offered(limited(t), w.ab); !errors.Is(err, ErrNotConnected) {
		t.Errorf("%+v, %v", rb, err)
	}
}

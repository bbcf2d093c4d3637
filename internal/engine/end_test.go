// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/layout"
)

// The peer's operations before the end of the connection complete before the end: when Lost
// returns, Poll has all their completions without asking the NIC.
func TestTheEndComesLast(t *testing.T) {
	const messages = 20
	w := inMemory(t).world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a.nic, messages), hostKind.make(t, w.b.nic, messages)
	want := random(t, testenv.Seeded(t), mine, messages)
	for i := range int64(messages) {
		w.ok(w.b.Recv(memory.Span{Buf: theirs, Offset: i, Length: 1}, w.ba, i))
	}
	for i := range int64(messages) {
		w.ok(w.a.Send(memory.Span{Buf: mine, Offset: i, Length: 1}, w.ab, i))
		w.done(w.a, operation.Send, i)
	}
	w.ok(w.a.Close())
	if err := w.b.Lost(limited(t), w.ba); !errors.Is(err, ErrNotConnected) {
		t.Error(err)
	}
	list := make([]operation.Completion, messages)
	if n, err := w.b.Poll(list); n != messages || err != nil {
		t.Fatalf("%d completions, %v", n, err)
	}
	for i, c := range list {
		if c.Err != nil || c.Context != int64(i) || c.Len != 1 {
			t.Errorf("message %d: %+v", i, c)
		}
	}
	same(t, "the messages", theirs, want)
}

// One of the receives that the endpoint posts itself reports the end of the connection, with
// the reason; none does if this side ends it.
func TestAutomaticReceivesTellOfTheEnd(t *testing.T) {
	t.Run("the peer's", func(t *testing.T) {
		w := inMemory(t).world(t, EndpointOptions{AutoReceive: 4})
		w.ok(w.a.Close())
		if c := w.wait(w.b); c.Op != operation.Recv || c.Peer != w.ba || !errors.Is(c.Err, ErrNotConnected) {
			t.Errorf("%+v", c)
		}
		w.nothing(w.b, w.ba)
	})
	t.Run("by a message that does not fit", func(t *testing.T) {
		w := inMemory(t).world(t, EndpointOptions{AutoReceive: 4})
		w.ok(w.a.Send(hostKind.make(t, w.a.nic, 8).All(), w.ab, "message"))
		w.failed(w.a, "message", ibvfd.WCRemInvReqErr)
		if c := w.wait(w.b); c.Op != operation.Recv || c.Peer != w.ba || !errors.Is(c.Err, &ibvfd.WCError{Status: ibvfd.WCLocLenErr}) {
			t.Errorf("%+v", c)
		}
		w.nothing(w.b, w.ba)
	})
	t.Run("our own", func(t *testing.T) {
		w := inMemory(t).world(t, EndpointOptions{AutoReceive: 4})
		w.ok(w.b.Remove(w.ba))
		if n, err := w.b.Poll(make([]operation.Completion, 1)); n != 0 || err != nil {
			t.Errorf("%d completions, %v", n, err)
		}
	})
	t.Run("none beside them", func(t *testing.T) {
		w := inMemory(t).world(t, EndpointOptions{AutoReceive: 4})
		if err := w.b.Recv(memory.Span{}, w.ba, nil); !errors.Is(err, unix.EINVAL) {
			t.Errorf("a receive beside automatic ones: %v", err)
		}
	})
}

// nothing checks that there is no further completion when the connection has ended.
func (w *world) nothing(e *Endpoint, p operation.Peer) {
	w.t.Helper()
	if err := e.Lost(limited(w.t), p); !errors.Is(err, ErrNotConnected) {
		w.t.Error(err)
	}
	var c [1]operation.Completion
	if n, err := e.Poll(c[:]); n != 0 || err != nil {
		w.t.Errorf("%d further completions, %v: %+v", n, err, c)
	}
}

// Offer returns the end of the connection, not the error of the stream below it, if the peer
// ends the connection meanwhile.
func TestOfferWhileThePeerEnds(t *testing.T) {
	s := inMemory(t)
	server := s.endpoint(t, EndpointOptions{})
	addr := must(server.Listen("127.0.0.1:0"))(t).String()
	buf := hostKind.make(t, server.nic, 64)
	const tries = 100
	for range tries {
		e := s.endpoint(t, EndpointOptions{})
		must(e.Connect(limited(t), addr))(t)
		p := must(server.Accept(limited(t)))(t)
		rb := must(server.Share(p, buf.All(), allAccess))(t)
		go e.Close()
		for ctx := limited(t); ; {
			err := server.Offer(ctx, p, rb)
			if err == nil {
				continue
			}
			if !errors.Is(err, ErrNotConnected) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
			break
		}
		_ = server.Remove(p)
	}
}

// A nil argument is an error of the call that gets it.
func TestNil(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	mine := hostKind.make(t, w.a.nic, 8)
	for name, err := range map[string]error{
		"Offer":   w.a.Offer(limited(t), w.ab, nil),
		"NewView": second(memory.NewView(layout.Layout{}, nil)), "NewView of some": second(memory.NewView(layout.Layout{}, mine, nil)),
		"Register": second(w.a.nic.Register(nil, memory.BufferOptions{})),
		"Allocate": second(w.a.nic.Allocate(t.Context(), nil, 8, memory.BufferOptions{})),
		"Unshare":  w.a.Unshare(nil),
		"Write":    w.a.Write(memory.Span{Length: 8}, w.ab, memory.RemoteSpan{}, nil),
		"Share":    second(w.a.Share(w.ab, memory.Span{Length: 1}, allAccess)),
	} {
		if !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s of nil: %v", name, err)
		}
	}
}

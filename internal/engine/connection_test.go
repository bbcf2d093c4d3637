// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/rma"
)

// The error of a failed connection names the path: TCP has shown that the peer is there, and
// the GIDs may not reach each other.
func TestErrorsSayWhichWay(t *testing.T) {
	const way = "port 1 of fake0, 10.0.0.1 to 10.0.0.2"
	w := inMemory(t).world(t, EndpointOptions{})
	over := must(w.a.ConnPath(w.ab))(t)
	if over.String() != way {
		t.Errorf("%v", over)
	}
	mine, theirs := hostKind.make(t, w.a.nic, 8), hostKind.make(t, w.b.nic, 8)
	rb := w.share(theirs.All(), allAccess)
	w.b.linkTo(w.ba).Deafen()
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
	if _, err := w.a.ConnPath(w.ab + 1); !errors.Is(err, ErrNotConnected) {
		t.Errorf("nobody: %v", err)
	}
	if p := must(w.a.Insert("127.0.0.1:1"))(t); !errors.Is(second(w.a.ConnPath(p)), ErrNotConnected) {
		t.Errorf("peer %d has a connection that nobody made", p)
	}
}

// Whatever the two sides ask for, they agree on one MTU, and neither sends more READs at once
// than the other answers.
func TestUnequalOptions(t *testing.T) {
	small := ibvfd.ConnectAttr{MTU: 1024, MaxRead: 1}
	for name, c := range map[string]struct {
		client, server ibvfd.ConnectAttr
		mtu            int
		in, out        [2]uint8 // the client's and the server's
	}{
		"equal":               {mtu: 4096, in: [2]uint8{16, 16}, out: [2]uint8{16, 16}},
		"a small client":      {small, ibvfd.ConnectAttr{}, 1024, [2]uint8{1, 16}, [2]uint8{1, 1}},
		"a small server":      {ibvfd.ConnectAttr{}, small, 1024, [2]uint8{16, 1}, [2]uint8{1, 1}},
		"each small":          {ibvfd.ConnectAttr{MTU: 512}, ibvfd.ConnectAttr{MaxRead: 4}, 512, [2]uint8{16, 4}, [2]uint8{4, 4}},
		"more than there is":  {ibvfd.ConnectAttr{MTU: 1 << 20, MaxRead: 200}, ibvfd.ConnectAttr{}, 4096, [2]uint8{200, 16}, [2]uint8{16, 16}},
		"no power of two":     {ibvfd.ConnectAttr{MTU: 1500}, ibvfd.ConnectAttr{MTU: 4096}, 1024, [2]uint8{16, 16}, [2]uint8{16, 16}},
		"no READs to answer":  {ibvfd.ConnectAttr{}, ibvfd.ConnectAttr{MaxRead: ibvfd.Zero}, 4096, [2]uint8{16, 0}, [2]uint8{0, 0}},
		"nor a peer's option": {ibvfd.ConnectAttr{PeerReads: 3}, ibvfd.ConnectAttr{}, 4096, [2]uint8{16, 16}, [2]uint8{16, 16}},
	} {
		t.Run(name, func(t *testing.T) {
			s := inMemory(t)
			w := &world{t: t, a: s.endpoint(t, EndpointOptions{Connect: c.client}), b: s.endpoint(t, EndpointOptions{Connect: c.server})}
			w.connect()
			for i, e := range []*Endpoint{w.a, w.b} {
				conn := e.connTo(e.Peers()[0])
				if conn.Works.State().Link.Attr().ReadsIn != c.in[i] || conn.Works.State().Link.Attr().ReadsOut != c.out[i] {
					t.Errorf("side %d answers %d READs and sends %d, want %d and %d", i, conn.Works.State().Link.Attr().ReadsIn, conn.Works.State().Link.Attr().ReadsOut, c.in[i], c.out[i])
				}
				for q := range rc.Queues {
					if mtu := conn.Works.State().Link.(*fakeLink).MTU(q); mtu != c.mtu {
						t.Errorf("side %d: MTU %d, want %d", i, mtu, c.mtu)
					}
				}
			}
			mine, theirs := hostKind.make(t, w.a.nic, 8), hostKind.make(t, w.b.nic, 8)
			rb := w.share(theirs.All(), allAccess)
			if c.out[0] > 0 {
				w.ok(w.a.Read(mine.All(), w.ab, rb.All(), "r"))
				w.done(w.a, operation.Read, "r")
				return
			}
			// READs and atomics are refused, and the connection stays up.
			w.ok(w.a.Read(mine.All(), w.ab, rb.All(), nil))
			w.ok(w.a.FetchAdd(mine.All(), w.ab, rb.All(), 1, nil))
			w.ok(w.a.WriteMsg(rma.Msg{Local: []memory.Span{mine.All()}, Peer: w.ab, Remote: []memory.RemoteSpan{rb.All()}}, operation.FlagDeliveryComplete))
			for range 3 {
				if done := w.wait(w.a); !errors.Is(done.Err, unix.EOPNOTSUPP) {
					t.Errorf("%+v", done)
				}
			}
			w.ok(w.a.Write(mine.All(), w.ab, rb.All(), "w"))
			w.done(w.a, operation.Write, "w")
		})
	}
	for _, mtu := range []int{-1, 1, 255} {
		if _, err := NewEndpoint(inMemory(t).open(t, memory.NICOptions{}), EndpointOptions{Connect: ibvfd.ConnectAttr{MTU: mtu}}); !errors.Is(err, failure.ErrRange) {
			t.Errorf("MTU %d: %v", mtu, err)
		}
	}
}

// unroutable's links cannot be connected.
type unroutable struct{ *fakeDevice }

func (d unroutable) Link(a rc.Attr) (rc.Link, error) {
	l, err := d.fakeDevice.Link(a)
	return nowhere{l.(*fakeLink)}, err
}

type nowhere struct{ *fakeLink }

func (nowhere) Connect([rc.Queues]ibvfd.Endpoint, uint8) error { return unix.ENETUNREACH }

func TestUnroutable(t *testing.T) {
	s := inMemory(t)
	server, client := s.endpoint(t, EndpointOptions{}), s.endpoint(t, EndpointOptions{})
	addr := must(server.Listen("127.0.0.1:0"))(t).String()
	replaceDevice(client.nic, unroutable{fakeOf(client.nic)})
	if _, err := client.Connect(limited(t), addr); !errors.Is(err, unix.ENETUNREACH) || !strings.Contains(err.Error(), "over port 1 of fake0, 10.0.0.2 to 10.0.0.1") {
		t.Errorf("where this side finds out: %v", err)
	}
	// If the other side fails, the error names the GID that the other side received.
	fine := s.endpoint(t, EndpointOptions{})
	replaceDevice(server.nic, unroutable{fakeOf(server.nic)})
	if _, err := fine.Connect(limited(t), addr); err == nil || !strings.Contains(err.Error(), "this side offered port 1 of fake0, 10.0.0.3") {
		t.Errorf("where the other side does: %v", err)
	}
}

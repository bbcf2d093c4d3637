// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/layout"
)

// The weight of a waiting offer is the memory that it takes, not the memory that it describes.
func TestOffersOfManyBlocks(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	theirs := hostKind.make(t, w.b.nic, 100)
	rb := must(w.b.Share(w.ba, theirs.All(), allAccess))(t)
	view := must(rb.View(must(layout.Interleaved(layout.Extent{Len: 1}, layout.Dim{Count: 1 << 40}))(t)))(t)
	const n = 20
	for range n {
		w.ok(w.b.Offer(limited(t), w.ba, view))
	}
	for range n {
		if got := must(w.a.Offered(limited(t), w.ab))(t); got.Size() != 1<<40 {
			t.Fatalf("%d bytes", got.Size())
		}
	}
	if got := must(layout.SG(make4(1000)...))(t).Weight(); got < 32*1000 {
		t.Errorf("1000 extents weigh %d bytes", got)
	}
}

// make4 returns n extents of 4 bytes with holes between them.
func make4(n int) (list []layout.Extent) {
	for i := range n {
		list = append(list, layout.Extent{Off: int64(8 * i), Len: 4})
	}
	return list
}

// An offer to a peer that reads nothing ends with its context, and ends the connection, on
// which half of the offer may have been sent.
func TestOfferEnds(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	theirs := hostKind.make(t, w.b.nic, 100)
	rb := must(w.b.Share(w.ba, theirs.All(), allAccess))(t)
	deaf, other := net.Pipe()
	defer other.Close()
	c := w.b.connTo(w.ba)
	c.mu.Lock()
	tcp := c.links.last.tcp
	c.links.last.tcp = deaf
	c.mu.Unlock()
	defer tcp.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := w.b.Offer(ctx, w.ba, rb); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an offer that nobody reads: %v", err)
	}
	// The time may be over before the first byte is written.
	for ctx := limited(t); ; {
		ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		err := w.b.Offer(ctx, w.ba, rb)
		cancel()
		if errors.Is(err, ErrNotConnected) {
			break
		}
		if err == nil || t.Context().Err() != nil {
			t.Fatalf("another offer: %v", err)
		}
	}
}

// Offer refuses a descriptor that the peer could not use, and for which the peer would end the
// connection.
func TestOfferOfAnotherConnection(t *testing.T) {
	s := inMemory(t)
	w := s.world(t, EndpointOptions{})
	theirs := hostKind.make(t, w.b.nic, 100)
	third := s.endpoint(t, EndpointOptions{})
	addr := must(w.b.Listen("127.0.0.1:0"))(t).String()
	must(third.Connect(limited(t), addr))(t)
	for3rd := must(w.b.Share(must(w.b.Accept(limited(t)))(t), theirs.All(), allAccess))(t)
	forAll := must(w.b.Share(0, theirs.All(), allAccess))(t)
	back := w.share(theirs.All(), allAccess)
	for name, err := range map[string]error{
		"a third's":       w.b.Offer(limited(t), w.ba, for3rd),
		"the peer's own":  w.a.Offer(limited(t), w.ab, back),
		"another's NIC's": third.Offer(limited(t), third.Peers()[0], forAll),
	} {
		if !errors.Is(err, operation.ErrStaleKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.ok(w.b.Offer(limited(t), w.ba, forAll))
	if got := must(w.a.Offered(limited(t), w.ab))(t); got.ID() != theirs.ID() {
		t.Errorf("%+v", got)
	}
}

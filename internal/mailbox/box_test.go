// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/internal/wire"
)

// opened returns a box of a NIC in memory, whose memory must be free when the test ends.
func opened(t *testing.T, ours, theirs Size) *Box {
	t.Helper()
	network := memnic.New(memnic.Manual())
	n := memory.NewNIC(network.Device("fake0", memnic.Limits{MaxSGE: 5}), memory.NICOptions{})
	b := new(Box)
	if err := b.Open(n, ours, theirs, nil, b.Taken); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		b.Close()
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// side is a box, and what its side has sent and taken.
type side struct {
	*Box
	posted []Letter // the peer's NIC has not acknowledged them
	slots  [][]byte // their bytes
	next   int      // receive that the next message of the peer's takes
	sent   [][]byte // that the peer's program has not taken
}

// post posts a message.
func (s *side) post(l Letter) {
	s.Stamp(&l)
	var wr ibvfd.SendWR
	s.Request(&l, 16, &wr, make([]ibvfd.SGE, 1))
	s.posted = append(s.posted, l)
	s.slots = append(s.slots, bytes.Clone(s.bytes(s.slot(l.slot), l.length)))
}

// deliver carries the oldest posted message to the peer.
func (s *side) deliver(t *testing.T, peer *side) {
	t.Helper()
	p := s.slots[0]
	l, _ := peer.Receive(peer.next % peer.Receives())
	peer.next++
	copy(peer.bytes((l.slot-1)*peer.in, peer.in), p)
	if err := peer.Arrived(&l, len(p)); err != nil {
		t.Fatal(err)
	}
	s.Unstamp(&s.posted[0])
	s.posted, s.slots = s.posted[1:], s.slots[1:]
}

// relink loses what is on its way, and connects the two sides anew.
func relink(t *testing.T, a, b *side) {
	t.Helper()
	again := map[*side][]Letter{}
	for _, s := range []*side{a, b} {
		for i := range s.posted {
			l := &s.posted[i]
			if l.IsCredit() {
				s.Unstamp(l)
				continue
			}
			s.TakeBack(l)
			again[s] = append(again[s], *l)
		}
		s.posted, s.slots, s.next = nil, nil, 0
	}
	_, fromB := a.Restart()
	_, fromA := b.Restart()
	for _, err := range []error{a.Renew(fromA), b.Renew(fromB)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for s, list := range again {
		for i := range list {
			if !s.MayStart(&list[i]) {
				t.Fatal("a message that was on its way has no credit any more")
			}
			s.post(list[i])
		}
	}
}

// Two sides that send, take and withdraw messages in any order, and lose their link, lose none, change none, and never
// send one that the peer has no receive for. All credits come back.
func TestCredits(t *testing.T) {
	r := testenv.Seeded(t)
	for range 50 {
		as, bs := Size{1 + r.IntN(9), 1 + r.IntN(40)}, Size{1 + r.IntN(9), 1 + r.IntN(40)}
		a, b := &side{Box: opened(t, as, bs)}, &side{Box: opened(t, bs, as)}
		step := func(s, peer *side) {
			switch r.IntN(4) {
			case 0: // send
				p := make([]byte, r.IntN(s.longest+1))
				for i := range p {
					p[i] = byte(r.Uint32())
				}
				l, err := s.Letter("send", Message, p)
				if err != nil {
					t.Fatal(err)
				}
				if s.MayStart(&l) {
					s.post(l)
					s.sent = append(s.sent, p)
				}
			case 1: // withdraw what was not posted
				l, err := s.Letter("send", Note, []byte{1})
				if err != nil {
					t.Fatal(err)
				}
				if s.MayStart(&l) {
					was := s.credits
					s.Stamp(&l)
					s.Unstamp(&l)
					if s.credits != was {
						t.Fatalf("%d credits after a message that was not posted, %d before", s.credits, was)
					}
				}
			case 2:
				if len(s.posted) > 0 {
					s.deliver(t, peer)
				}
			case 3:
				if m, taken, ok := s.Take(Message, false); ok {
					taken()
					if !bytes.Equal(m.Body, peer.sent[0]) {
						t.Fatalf("%x, want %x", m.Body, peer.sent[0])
					}
					peer.sent = peer.sent[1:]
				}
			}
			if s.Owes() {
				l := s.Pay()
				s.post(l)
			}
			if n := len(peer.posted); n > s.Receives() {
				t.Fatalf("%d messages on their way, %d receives", n, s.Receives())
			}
		}
		for range 2000 {
			step(a, b)
			step(b, a)
			if r.IntN(100) == 0 {
				relink(t, a, b)
			}
		}
		for range 3 { // to the end
			for _, x := range [][2]*side{{a, b}, {b, a}} {
				for len(x[0].posted) > 0 {
					x[0].deliver(t, x[1])
				}
				for {
					if _, taken, ok := x[1].Take(Message, false); ok {
						taken()
					} else {
						break
					}
					x[0].sent = x[0].sent[1:]
				}
				if x[1].Owes() {
					l := x[1].Pay()
					x[1].post(l)
				}
			}
		}
		for _, x := range [][2]*side{{a, b}, {b, a}} {
			if s, peer := x[0], x[1]; len(s.sent) > 0 || s.credits+peer.owed != peer.depth || len(s.free) != min(s.depth, peer.depth) || len(s.control) != Controls {
				t.Fatalf("%d messages were lost; %d credits and %d owed, of %d; %d and %d free slots", len(s.sent), s.credits, peer.owed, peer.depth, len(s.free), len(s.control))
			}
		}
	}
}

// What no peer of this package sends is malformed.
func TestMalformed(t *testing.T) {
	for name, c := range map[string]struct {
		messages int // that have arrived before
		bytes    []byte
		length   int
	}{
		"nothing":          {0, nil, 0},
		"too long":         {0, nil, kindSize + 9},
		"longer than ours": {0, []byte{byte(Message)}, kindSize + 4},
		"no kind":          {0, []byte{0, 1}, 2},
		"an unknown kind":  {0, []byte{byte(receive), 1}, 2},
		"without a credit": {2, []byte{byte(Note)}, 1},
		"short credits":    {0, []byte{byte(credit), 0, 1}, 3},
		"no sums":          {0, []byte{byte(summed)}, 1},
		"short sums":       {0, []byte{byte(summed), 0}, 2},
		"sums of nothing":  {0, []byte{byte(summed), 0, 0}, 3},
		"sums too long":    {0, []byte{byte(summed), 0, 1}, 3},
		"bad sums":         {0, []byte{byte(summed), 9, 0, 1}, 4},
		"too many credits": {0, binary.BigEndian.AppendUint32([]byte{byte(credit)}, 1), 5},
	} {
		b := opened(t, Size{2, 3}, Size{2, 8})
		l, _ := b.Receive(0)
		for range c.messages {
			b.bytes(0, 1)[0] = byte(Message)
			if err := b.Arrived(&l, 1); err != nil {
				t.Fatal(err)
			}
		}
		copy(b.bytes(0, b.in), c.bytes)
		if err := b.Arrived(&l, c.length); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A message that does not fit, or for which the peer has no receives, is refused before it is
// sent.
func TestRefusedLetters(t *testing.T) {
	b := opened(t, Size{2, 8}, Size{2, 5})
	if _, err := b.Letter("send", Message, make([]byte, 5)); err != nil {
		t.Error(err)
	}
	if _, err := b.Letter("send", Message, make([]byte, 6)); !errors.Is(err, failure.ErrLimit) {
		t.Errorf("6 bytes of 5: %v", err)
	}
	if _, err := new(Box).Letter("send", Message, nil); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("without messages: %v", err)
	}
}

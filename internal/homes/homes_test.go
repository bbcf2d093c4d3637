// SPDX-License-Identifier: Apache-2.0

package homes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// peer is a User in memory. It fails the test if two NICs have its keys at once.
type peer struct {
	t       *testing.T
	reaches []bool
	moved   int   // 1 for NIC 0
	refuses error // of Recall

	mu      sync.Mutex
	linked  []bool
	offered map[int]bool
	all     *sync.Map // NICs that have keys of any peer
	name    string
}

func (p *peer) Reaches(nic int) bool { return p.reaches[nic] }

func (p *peer) Moved(nic int) bool { return p.moved == nic+1 }

func (p *peer) Linked(nic int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.linked[nic]
}

func (p *peer) link(nic int, up bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.linked[nic] = up
}

func (p *peer) Offer(nic int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.linked[nic] {
		p.offered[nic] = true
		p.all.Store(fmt.Sprint(nic, p.name), nic)
	}
	p.all.Range(func(who, other any) bool {
		if other != nic {
			p.t.Errorf("%s is offered NIC %d while %v has NIC %v", p.name, nic, who, other)
		}
		return true
	})
	return nil
}

func (p *peer) Patience() time.Duration { return time.Minute }

func (p *peer) Recall(nic int, limit time.Duration) error {
	if limit != recallTimeout {
		p.t.Errorf("a limit of %v", limit)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuses != nil {
		return p.refuses
	}
	delete(p.offered, nic)
	p.all.Delete(fmt.Sprint(nic, p.name))
	return nil
}

func (p *peer) has(nic int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.offered[nic]
}

const nics = 3

func newPeers(t *testing.T, n int) (list []*peer) {
	all := new(sync.Map)
	for i := range n {
		list = append(list, &peer{t: t, reaches: []bool{true, true, true}, linked: []bool{true, true, true}, offered: map[int]bool{}, all: all, name: fmt.Sprint("peer ", i)})
	}
	return list
}

func newTable() *Table { return &Table{NICs: []string{"a", "b", "c"}} }

// look makes the Table look, as if the last moves were long ago, and waits until it has done so.
func look(t *testing.T, x *Table) {
	t.Helper()
	x.mu.Lock()
	for _, h := range x.homes {
		h.moved = time.Time{}
	}
	x.mu.Unlock()
	x.Look()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		x.mu.Lock()
		moving := false
		for _, h := range x.homes {
			moving = moving || h.moving
		}
		x.mu.Unlock()
		if !moving {
			return
		}
		if time.Now().After(end) {
			t.Fatal("it has not come to an end")
		}
	}
}

func join(t *testing.T, x *Table, u User, memory uint64, order ...int) {
	t.Helper()
	if err := x.Join(t.Context(), u, []uint64{memory}, order, false); err != nil {
		t.Fatal(err)
	}
	if err := x.Offer(t.Context(), u); err != nil {
		t.Fatal(err)
	}
}

func TestMoves(t *testing.T) {
	x, p := newTable(), newPeers(t, 3)
	for i, u := range p {
		join(t, x, u, 7, i, 0, 1, 2) // the first one says where
		if x.NIC(u) != 0 || !u.has(0) {
			t.Fatalf("%s has its home at %d", u.name, x.NIC(u))
		}
	}
	look(t, x)
	if n := x.NIC(p[0]); n != 0 {
		t.Fatalf("the home has moved to %d, and all links are there", n)
	}
	p[1].link(0, false)
	look(t, x)
	for _, u := range p {
		if n := x.NIC(u); n != 1 || !u.has(1) || u.has(0) {
			t.Errorf("%s has its home at %d after the loss of a link", u.name, n)
		}
	}
	p[1].link(0, true)
	look(t, x)
	if n := x.NIC(p[0]); n != 1 {
		t.Errorf("the home has moved to %d, and all have links to NIC 1", n)
	}
	for _, u := range p {
		for nic := range nics {
			u.link(nic, false)
		}
	}
	look(t, x)
	if n := x.NIC(p[0]); n != 1 {
		t.Errorf("the home has moved to %d, where nobody has a link", n)
	}
}

// A home ends with its last user, and the next user may choose another NIC.
func TestLeave(t *testing.T) {
	x, p := newTable(), newPeers(t, 2)
	join(t, x, p[0], 7, 2)
	x.Leave(p[0])
	x.Leave(p[0])
	x.Gone(p[1])
	if n := x.NIC(p[0]); n != -1 {
		t.Fatalf("a home at %d after Leave", n)
	}
	join(t, x, p[1], 7, 1)
	if n := x.NIC(p[1]); n != 1 {
		t.Fatalf("a home at %d", n)
	}
	p[1].link(1, false)
	x.Leave(p[1])
	look(t, x)
	if len(x.homes) > 0 || len(x.members) > 0 {
		t.Error("something is left", x.homes, x.members)
	}
}

// Users that cannot move keep the home of all.
func TestFixed(t *testing.T) {
	x, p := newTable(), newPeers(t, 4)
	join(t, x, p[0], 7, 0)
	if err := x.Join(t.Context(), p[1], []uint64{7, 8}, []int{2}, false); err != nil {
		t.Fatal(err)
	}
	if n := x.NIC(p[1]); n != 0 {
		t.Fatalf("the home of both memories is at %d", n)
	}
	p[0].link(0, false)
	look(t, x)
	if n := x.NIC(p[0]); n != 0 {
		t.Errorf("a home that cannot move is at %d", n)
	}
	x.Leave(p[1])
	look(t, x)
	if n := x.NIC(p[0]); n == 0 {
		t.Error("the home has not moved when nothing held it any more")
	}
	p[2].reaches[x.NIC(p[0])] = false
	if err := x.Join(t.Context(), p[2], []uint64{7}, []int{0, 1, 2}, true); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("it has joined a home that it does not reach: %v", err)
	}
	if err := x.Join(t.Context(), p[3], []uint64{9}, []int{0}, false); err != nil {
		t.Fatal(err)
	}
	if err := x.Join(t.Context(), p[1], []uint64{7, 9}, []int{0}, false); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("memories with two homes were joined: %v", err)
	}
	p[2].reaches = []bool{false, false, false}
	if err := x.Join(t.Context(), p[2], []uint64{10}, []int{0, 1, 2}, false); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("it has joined a home that does not exist: %v", err)
	}
}

// A home whose keys could not be withdrawn stays, and its users have keys again.
func TestRecallFails(t *testing.T) {
	x, p := newTable(), newPeers(t, 2)
	join(t, x, p[0], 7, 0)
	join(t, x, p[1], 7, 0)
	p[1].refuses = unix.EIO
	p[0].link(0, false)
	look(t, x)
	if n := x.NIC(p[0]); n != 0 || !p[1].has(0) {
		t.Errorf("the home is at %d", n)
	}
	p[1].refuses = nil
	look(t, x)
	if n := x.NIC(p[0]); n != 0 {
		t.Errorf("the home is at %d, and the keys that were not withdrawn may be used", n)
	}
	x.Gone(p[1])
	_ = p[1].Recall(0, recallTimeout)
	look(t, x)
	if n := x.NIC(p[0]); n == 0 {
		t.Error("the home has not moved when the keys have ended")
	}
}

// A NIC that reaches a copy is the home only if no other is as good.
func TestCopy(t *testing.T) {
	x, p := newTable(), newPeers(t, 2)
	p[0].moved, p[1].moved = 1, 1
	join(t, x, p[0], 7, 0, 1, 2)
	join(t, x, p[1], 7, 0, 1, 2)
	if n := x.NIC(p[0]); n != 1 {
		t.Fatalf("the home is at %d", n)
	}
	for _, u := range p {
		u.link(1, false)
		u.link(2, false)
	}
	look(t, x)
	if n := x.NIC(p[0]); n != 0 {
		t.Fatalf("the home is at %d, and only NIC 0 has links", n)
	}
	p[0].link(1, true)
	p[1].link(1, true)
	look(t, x)
	if n := x.NIC(p[0]); n != 1 {
		t.Errorf("the home is at %d, a NIC that reaches a copy", n)
	}
}

// A home does not move again at once, and one that is busy holds up no other.
func TestPauses(t *testing.T) {
	x, p := newTable(), newPeers(t, 2)
	join(t, x, p[0], 7, 0)
	p[0].link(0, false)
	look(t, x)
	if n := x.NIC(p[0]); n == 0 {
		t.Fatal("it has not moved")
	}
	was := x.NIC(p[0])
	p[0].link(was, false)
	p[0].link(0, true)
	x.Look()
	if n := x.NIC(p[0]); n != was {
		t.Errorf("it has moved from %d to %d at once", was, n)
	}
	for end := time.Now().Add(30 * time.Second); x.NIC(p[0]) == was; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it has not moved later")
		}
	}
	busy := x.claim([]uint64{7})
	_ = busy[0].lock(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := x.Join(ctx, p[1], []uint64{7}, []int{0}, false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it has joined a home that is busy: %v", err)
	}
	unused := &peer{t: t, reaches: []bool{true}, linked: []bool{true}, offered: map[int]bool{}, all: new(sync.Map), name: "another"}
	if err := x.Join(t.Context(), unused, []uint64{8}, []int{0}, false); err != nil {
		t.Error(err)
	}
	unlock(busy)
	x.unclaim([]uint64{7})
}

// Links are lost and made while peers come and go: never do two NICs have keys of one memory.
func TestRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	x, p := newTable(), newPeers(t, 5)
	joined := map[*peer]bool{}
	for range 3000 {
		u := p[r.IntN(len(p))]
		switch r.IntN(6) {
		case 0:
			if !joined[u] {
				join(t, x, u, 7, r.IntN(nics))
				joined[u] = true
			}
		case 1:
			if joined[u] {
				x.Leave(u)
				delete(joined, u)
			}
		default:
			u.link(r.IntN(nics), r.IntN(2) == 0)
			x.Look()
		}
	}
	look(t, x)
	for u := range joined {
		if home := x.NIC(u); u.Linked(home) {
			x.OfferAgain(u)
			if !u.has(home) {
				t.Errorf("%s has no keys for its home", u.name)
			}
		}
	}
}

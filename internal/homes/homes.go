// SPDX-License-Identifier: Apache-2.0

package homes

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
)

// User is memory that one peer may use for atomics. NICs are numbers.
type User interface {
	// Reaches reports whether the peer may come over a NIC, and the NIC reaches the memory.
	Reaches(nic int) bool
	// Moved reports whether the NIC was seen to reach a copy of the memory.
	Moved(nic int) bool
	// Linked reports whether the peer has a link to a NIC.
	Linked(nic int) bool
	// Offer gives the peer keys for a NIC, over each link to it that has none.
	Offer(nic int) error
	// Recall returns when no atomic of the peer over a NIC is under way, nor can be. After an error some
	// can. A peer that has not confirmed it within the limit loses its link.
	Recall(nic int, limit time.Duration) error
	// Patience is how long an atomic of the peer waits for keys.
	Patience() time.Duration
}

// Times between two moves of a home, and between two attempts to offer keys.
const (
	movePause  = time.Second
	offerPause = time.Second
)

// recallTimeout is the longest time in which a peer must end its atomics.
const recallTimeout = 2 * time.Second

// Table has the homes of all memory of a program. The zero Table is usable; NICs must be set.
type Table struct {
	NICs []string // their names

	mu      sync.Mutex
	homes   map[uint64]*home // by the ID of the memory
	members map[User]member
	later   map[User]bool // whose keys are offered again after a pause
}

// home is the NIC for the atomics on one memory.
type home struct {
	nic    int
	users  []User
	fixed  int           // users that cannot move
	failed User          // whose keys could not be withdrawn: it stays
	claims int           // calls that use it
	busy   chan struct{} // has a value while keys are offered or recalled, and while users join
	moving bool          // a goroutine moves it
	again  bool          // that is to look again
	moved  time.Time     // the last move
}

// member says what a User has joined.
type member struct {
	memories []uint64
	fixed    bool
}

// Join adds a user of some memories. If they have no home, it is the first NIC of order that the user
// reaches, one that reaches no copy if there is one. A fixed user cannot move, nor can a user of several
// memories. Join returns an error if the user does not reach the home, or if two of its memories have
// different homes.
func (t *Table) Join(ctx context.Context, u User, memories []uint64, order []int, fixed bool) error {
	memories = slices.Compact(slices.Sorted(slices.Values(memories)))
	fixed = fixed || len(memories) > 1
	list := t.claim(memories)
	defer t.unclaim(memories)
	for i, h := range list {
		if err := h.lock(ctx); err != nil {
			unlock(list[:i])
			return &failure.Error{
				Op: "export for atomics", Detail: "other peers' atomics on this memory are moving to another NIC", Err: err,
				Remedy: "export it again, or give the call more time",
			}
		}
	}
	defer unlock(list)
	t.mu.Lock()
	defer t.mu.Unlock()
	nic := -1
	for _, h := range list {
		switch {
		case len(h.users) == 0 || h.nic == nic:
		case nic >= 0:
			return t.refuse("the atomics on a part of the memory go over " + t.NICs[nic] + ", and those on another part over " + t.NICs[h.nic])
		default:
			nic = h.nic
		}
	}
	if nic < 0 {
		nic = first(u, order)
	}
	switch {
	case nic < 0:
		return t.refuse("no NIC of the connection that has atomics reaches the memory")
	case !u.Reaches(nic):
		return t.refuse("all peers' atomics on this memory go over " + t.NICs[nic] + ", and this connection has no rail to it")
	}
	for _, h := range list {
		if len(h.users) == 0 {
			h.failed = nil
		}
		h.nic, h.users = nic, append(h.users, u)
		if fixed {
			h.fixed++
		}
	}
	if t.members == nil {
		t.members = map[User]member{}
	}
	t.members[u] = member{memories, fixed}
	return nil
}

// first returns the first NIC that a user reaches; -1 if there is none.
func first(u User, order []int) int {
	found := -1
	for _, nic := range order {
		if u.Reaches(nic) && (found < 0 || u.Moved(found) && !u.Moved(nic)) {
			found = nic
		}
	}
	return found
}

func (t *Table) refuse(detail string) error {
	return &failure.Error{
		Op: "export for atomics", Detail: detail, Err: unix.EOPNOTSUPP,
		Remedy: "connect over several NICs on both sides, or export it without AccessRemoteAtomic",
	}
}

// claim returns the homes of memories, in their order, and keeps them until unclaim.
func (t *Table) claim(memories []uint64) (list []*home) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.homes == nil {
		t.homes = map[uint64]*home{}
	}
	for _, m := range memories {
		h := t.homes[m]
		if h == nil {
			h = &home{busy: make(chan struct{}, 1)}
			t.homes[m] = h
		}
		h.claims++
		list = append(list, h)
	}
	return list
}

func (t *Table) unclaim(memories []uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range memories {
		t.homes[m].claims--
		t.drop(m)
	}
}

// drop forgets a home that nothing uses. The caller holds the mutex.
func (t *Table) drop(memory uint64) {
	if h := t.homes[memory]; len(h.users) == 0 && h.claims == 0 {
		delete(t.homes, memory)
	}
}

func (h *home) lock(ctx context.Context) error {
	select {
	case h.busy <- struct{}{}:
		return nil
	default:
	}
	select {
	case h.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func unlock(list []*home) {
	for _, h := range list {
		<-h.busy
	}
}

// Leave recalls a user's keys, and removes it. No method of it is called any more. A user that has not
// joined is ignored.
func (t *Table) Leave(u User) {
	_ = t.with(context.Background(), u, func(nic int) error {
		_ = u.Recall(nic, limit([]User{u})) // keys that cannot be withdrawn end with the connection
		t.Gone(u)
		return nil
	})
}

// Gone removes a user whose keys have ended with its connection, or that has got none. It does not wait:
// methods of the user may still be called.
func (t *Table) Gone(u User) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.members[u]
	delete(t.members, u)
	for _, m := range x.memories {
		h := t.homes[m]
		if x.fixed {
			h.fixed--
		}
		if h.failed == u {
			h.failed = nil
		}
		h.users = slices.DeleteFunc(h.users, func(o User) bool { return o == u })
		t.drop(m)
	}
}

// NIC returns the home of a user's memory; -1 if it has not joined.
func (t *Table) NIC(u User) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x, ok := t.members[u]; ok {
		return t.homes[x.memories[0]].nic
	}
	return -1
}

// with calls f with the home of a user, while that does not move. It does nothing if the user has not
// joined.
func (t *Table) with(ctx context.Context, u User, f func(nic int) error) error {
	t.mu.Lock()
	x := t.members[u]
	t.mu.Unlock()
	if len(x.memories) == 0 {
		return nil
	}
	list := t.claim(x.memories[:1]) // one of several does not move
	defer t.unclaim(x.memories[:1])
	if err := list[0].lock(ctx); err != nil {
		return err
	}
	defer unlock(list)
	if nic := t.NIC(u); nic >= 0 {
		return f(nic)
	}
	return nil
}

// Offer makes a user offer the keys of its home.
func (t *Table) Offer(ctx context.Context, u User) error { return t.with(ctx, u, u.Offer) }

// OfferAgain offers the keys of a user's home until that has succeeded, or the user is gone.
func (t *Table) OfferAgain(u User) {
	if t.Offer(context.Background(), u) != nil {
		t.offerLater(u)
	}
}

// offerLater is OfferAgain after a pause. Of several for one user there is one.
func (t *Table) offerLater(u User) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.later[u] {
		return
	}
	if t.later == nil {
		t.later = map[User]bool{}
	}
	t.later[u] = true
	time.AfterFunc(offerPause, func() {
		t.mu.Lock()
		delete(t.later, u)
		t.mu.Unlock()
		t.OfferAgain(u)
	})
}

// Look moves homes to which fewer peers have links than to another NIC, each in a goroutine of its own.
func (t *Table) Look() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.NICs) < 2 {
		return
	}
	for m, h := range t.homes {
		if h.again = true; h.moving || len(h.users) == 0 {
			continue
		}
		h.moving = true
		h.claims++
		go t.move(m, h)
	}
}

// move moves a home, as often as that is due.
func (t *Table) move(memory uint64, h *home) {
	for {
		t.mu.Lock()
		if !h.again {
			h.moving = false
			h.claims--
			t.drop(memory)
			t.mu.Unlock()
			return
		}
		h.again = false
		t.mu.Unlock()
		h.busy <- struct{}{}
		t.moveOnce(h)
		<-h.busy
	}
}

// moveOnce moves a home, if that is due.
func (t *Table) moveOnce(h *home) {
	t.mu.Lock()
	users, from, wait := slices.Clone(h.users), h.nic, movePause-time.Since(h.moved)
	stays := h.fixed > 0 || h.failed != nil
	t.mu.Unlock()
	to := best(from, len(t.NICs), users)
	if stays || to == from {
		return
	}
	if wait > 0 { // a peer must not make it move all the time
		time.AfterFunc(wait, t.Look)
		return
	}
	var failed User
	var mu sync.Mutex
	most := limit(users)
	each(users, func(u User) {
		if u.Recall(from, most) != nil {
			mu.Lock()
			defer mu.Unlock()
			failed = u
		}
	})
	t.mu.Lock()
	if h.moved, h.again = time.Now(), true; failed == nil {
		h.nic = to
	} else if slices.Contains(h.users, failed) {
		h.failed = failed
	}
	to = h.nic
	t.mu.Unlock()
	each(users, func(u User) {
		if u.Offer(to) != nil {
			t.offerLater(u)
		}
	})
}

// limit returns how long Recall may wait for a peer: twice that, and then the time to offer keys, is less
// than any user's patience.
func limit(users []User) time.Duration {
	most := recallTimeout
	for _, u := range users {
		most = min(most, u.Patience()/4)
	}
	return most
}

// best returns the NIC to which most users have a link, one that reaches no copy if there are several:
// the home, if no other is better.
func best(home, nics int, users []User) int {
	worth := func(nic int) (n int) {
		for _, u := range users {
			if u.Reaches(nic) && u.Linked(nic) {
				n += 2
			}
		}
		if n > 0 && !slices.ContainsFunc(users, func(u User) bool { return u.Moved(nic) }) {
			n++
		}
		return n
	}
	best, most := home, worth(home)
	for nic := range nics {
		if n := worth(nic); n > most {
			best, most = nic, n
		}
	}
	return best
}

// each calls f for all users at once, and returns when all calls have.
func each(users []User, f func(u User)) {
	var all sync.WaitGroup
	for _, u := range users {
		all.Go(func() { f(u) })
	}
	all.Wait()
}

// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"math"
	"sync"
	"time"
)

// A look at the limits reads half a dozen files, which takes longer than a
// small allocation. Small allocations after it therefore draw on a budget: a
// small part of what the look left, for a short time. A buffer that is closed gives
// back what it drew.
//
// Closed memory may live on, in an MR or another process. So the sum of all that
// allocations draw after a look is at most what the look has left.
const (
	budgetTime     = 100 * time.Millisecond
	budgetMemShare = 16
	budgetFDShare  = 4
)

// budget is what may be allocated without looking at the limits again.
type budget struct {
	mu     sync.Mutex
	until  time.Time
	mem    int64  // bytes
	fds    int64  // descriptors
	total  int64  // bytes that may be drawn on this grant, given back or not
	grants uint64 // how many there were: the number of this one
}

// drawing is what was drawn, on which grant: nothing of the zero value.
type drawing struct {
	mem, fds int64
	grant    uint64
}

// draw takes from the budget, or takes nothing and answers false.
func (b *budget) draw(mem, fds int64) (drawing, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if mem > b.mem || mem > b.total || fds > b.fds || time.Now().After(b.until) {
		return drawing{}, false
	}
	b.mem -= mem
	b.total -= mem
	b.fds -= fds
	return drawing{mem, fds, b.grants}, true
}

// giveBack returns what was drawn, once. After another grant it does nothing: the
// look before that has seen what is free now.
func (b *budget) giveBack(d drawing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d.grant == b.grants {
		b.mem += d.mem
		b.fds += d.fds
	}
}

// grant renews the budget from what a look left free.
func (b *budget) grant(mem, fds int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mem, b.fds, b.total = mem/budgetMemShare, fds/budgetFDShare, mem
	b.until = time.Now().Add(budgetTime)
	b.grants++
}

// noLimit is what a limit that does not apply leaves free.
const noLimit = math.MaxInt64

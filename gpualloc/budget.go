// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"math"
	"sync"
	"time"
)

// A look at the limits reads half a dozen files, which takes longer than a
// small allocation. Small allocations after it therefore draw on a budget: a
// small part of what the look left, for a short time.
const (
	budgetTime     = 100 * time.Millisecond
	budgetMemShare = 16
	budgetFDShare  = 4
)

// budget is what may be allocated without looking at the limits again.
type budget struct {
	mu    sync.Mutex
	until time.Time
	mem   int64 // bytes
	fds   int64
}

// draw takes from the budget, or takes nothing and answers false.
func (b *budget) draw(mem, fds int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if mem > b.mem || fds > b.fds || time.Now().After(b.until) {
		return false
	}
	b.mem -= mem
	b.fds -= fds
	return true
}

// grant renews the budget from what a look left free.
func (b *budget) grant(mem, fds int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mem, b.fds = mem/budgetMemShare, fds/budgetFDShare
	b.until = time.Now().Add(budgetTime)
}

// noLimit is what a limit that does not apply leaves free.
const noLimit = math.MaxInt64

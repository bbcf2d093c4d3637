// SPDX-License-Identifier: Apache-2.0

package holdings

import (
	"slices"
	"sync"
)

// Held count registrations by buffer and NIC.
type Held struct {
	mu sync.Mutex
	n  map[holding]int
}

type holding struct {
	inode uint64 // of the dma-buf; no buffer has 0
	ctx   any    // the *Context; one device may be open twice
	nic   string // its name
}

// Add counts a registration. nic is the name of the device that context has open.
func (h *Held) Add(inode uint64, ctx any, nic string) {
	if inode == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n == nil {
		h.n = map[holding]int{}
	}
	h.n[holding{inode, ctx, nic}]++
}

// Remove ends what Add counted.
func (h *Held) Remove(inode uint64, ctx any, nic string) {
	if inode == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	k := holding{inode, ctx, nic}
	if h.n[k]--; h.n[k] <= 0 {
		delete(h.n, k)
	}
}

// Others lists the NICs that have the buffer registered, except the one of that name.
func (h *Held) Others(inode uint64, name string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []string
	for k := range h.n {
		if k.inode == inode && inode != 0 && k.nic != name && !slices.Contains(list, k.nic) {
			list = append(list, k.nic)
		}
	}
	slices.Sort(list)
	return list
}

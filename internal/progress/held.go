// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"sync"
	"sync/atomic"
)

// Holding is a connection with operations that the next Poll posts (FlagMore).
type Holding interface {
	PostHeld()
}

// held are connections with operations that the next Poll posts.
type held struct {
	some  atomic.Bool
	mu    sync.Mutex
	conns []Holding
	spare []Holding // memory of an earlier list
}

func (h *held) add(c Holding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns = append(h.conns, c)
	h.some.Store(true)
}

// post posts the held operations.
func (h *held) post() {
	if !h.some.Load() {
		return
	}
	h.mu.Lock()
	conns := h.conns
	h.conns, h.spare = h.spare, nil
	h.some.Store(false)
	h.mu.Unlock()
	for _, c := range conns {
		c.PostHeld()
	}
	clear(conns)
	h.mu.Lock()
	h.spare = conns[:0]
	h.mu.Unlock()
}

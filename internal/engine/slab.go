// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"sync"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/memory"
)

// slab is registered host memory in slots: injected data is sent from one, and the result of
// an atomic may go to one. It has as many chunks as the operations under way need.
type slab struct {
	mu     sync.Mutex
	closed bool
	size   int64 // of a slot
	chunks []*memory.Buffer
	free   []slot
	sink   lower.Piece // memory for bytes that are read only for the sake of the read; set once
}

// slot is one of a chunk.
type slot struct {
	chunk *memory.Buffer
	off   int64
}

// resultSize is the size of an atomic's result.
const resultSize = 8

// needSlab makes the first chunk.
func (e *Endpoint) needSlab() error {
	s := &e.slab
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.chunks) > 0 {
		return nil
	}
	return s.grow(e)
}

// grow adds a chunk. The caller holds the mutex.
func (s *slab) grow(e *Endpoint) error {
	if s.closed {
		return e.isClosed()
	}
	slots := e.opt.Depth
	s.size = max((int64(e.opt.InjectSize)+7)&^7, resultSize)
	buf, err := e.nic.AllocHost(s.size*int64(slots) + 8)
	if err != nil {
		return err
	}
	s.chunks = append(s.chunks, buf)
	for i := range slots {
		s.free = append(s.free, slot{buf, int64(slots-1-i) * s.size})
	}
	if len(s.chunks) > 1 {
		return nil
	}
	local := buf.Piece()
	s.sink = lower.Piece{Addr: local.Addr + uint64(s.size*int64(slots)), Length: 8, Key: local.Key}
	return nil
}

// take returns a free slot.
func (s *slab) take(e *Endpoint) (slot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return slot{}, e.isClosed()
	}
	if len(s.free) == 0 {
		if err := s.grow(e); err != nil {
			return slot{}, err
		}
	}
	n := len(s.free) - 1
	x := s.free[n]
	s.free = s.free[:n]
	return x, nil
}

func (s *slab) put(x slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, x)
}

// bytes returns the first n bytes of a slot.
func (x slot) bytes(n int64) []byte { return x.chunk.HostBytes()[x.off : x.off+n] }

// window returns the first n bytes of a slot as memory of an operation.
func (x slot) window(n int64) lower.Window {
	return x.chunk.Window(x.off, n)
}

// hold keeps the memory until the returned function is called.
func (s *slab) hold() func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var held []*memory.Buffer
	for _, b := range s.chunks {
		if b.Use() == nil {
			held = append(held, b)
		}
	}
	return func() {
		for _, b := range held {
			b.Unuse()
		}
	}
}

// release frees the memory. No slot is taken after it.
func (s *slab) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var err error
	for _, b := range s.chunks {
		err = errs.Join(err, b.Release())
	}
	s.chunks = nil
	return err
}

// inject replaces the work's local memory by a slot of n bytes, which fill fills.
func (o *Work) inject(e *Endpoint, n int64, fill func(p []byte) error) error {
	if n > int64(e.opt.InjectSize) {
		return &dmabuf.Error{
			Op: o.kind.String(), Detail: fmt.Sprintf("inject of %d bytes", n), Err: dmabuf.ErrLimit,
			Remedy: fmt.Sprintf("inject takes %d at most: raise InjectSize", e.opt.InjectSize),
		}
	}
	x, err := e.slab.take(e)
	if err != nil {
		return err
	}
	o.slot, o.injected = x, true
	if err := x.chunk.Use(); err != nil { // the endpoint is closed
		return err
	}
	defer x.chunk.Unuse()
	if err := fill(x.bytes(n)); err != nil {
		return err
	}
	o.local, o.staged = o.local[:0], false
	if n > 0 {
		o.local = append(o.local, x.window(n))
	}
	o.length = n
	return nil
}

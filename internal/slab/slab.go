// SPDX-License-Identifier: Apache-2.0

package slab

import (
	"fmt"
	"sync"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/memory"
)

// Slab is registered host memory in slots of one size. It registers a chunk of slots when the
// first one is taken, and another one whenever none is free. Its methods may be called from
// several goroutines at once.
type Slab struct {
	nic    *memory.NIC
	slots  int   // in a chunk
	inject int64 // the most bytes that an inject may have

	mu     sync.Mutex
	closed bool
	size   int64 // of a slot
	chunks []*memory.Buffer
	free   []Slot
	sink   lower.Piece
}

// Slot is a slot of a chunk.
type Slot struct {
	chunk *memory.Buffer
	off   int64
}

// ResultSize is the size of an atomic's result in bytes, which every slot has room for.
const ResultSize = 8

// New returns a slab that has no memory yet. A chunk has that many slots, each with room for an
// inject.
func New(n *memory.NIC, slots, inject int) *Slab {
	return &Slab{nic: n, slots: slots, inject: int64(inject)}
}

// Need makes the first chunk. The slab has a sink from then on.
func (s *Slab) Need() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.chunks) > 0 {
		return nil
	}
	return s.grow()
}

// Sink returns memory for bytes whose values nothing uses, as FlagDeliveryComplete reads them.
// Need must have been called.
func (s *Slab) Sink() lower.Piece { return s.sink }

// grow adds a chunk. The caller holds the mutex.
func (s *Slab) grow() error {
	if s.closed {
		return errs.Closed("endpoint of " + s.nic.Name())
	}
	s.size = max((s.inject+7)&^7, ResultSize)
	buf, err := s.nic.AllocHost(s.size*int64(s.slots) + 8)
	if err != nil {
		return err
	}
	s.chunks = append(s.chunks, buf)
	for i := range s.slots {
		s.free = append(s.free, Slot{buf, int64(s.slots-1-i) * s.size})
	}
	if len(s.chunks) > 1 {
		return nil
	}
	local := buf.Piece()
	s.sink = lower.Piece{Addr: local.Addr + uint64(s.size*int64(s.slots)), Length: 8, Key: local.Key}
	return nil
}

// Take returns a free slot.
func (s *Slab) Take() (Slot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return Slot{}, errs.Closed("endpoint of " + s.nic.Name())
	}
	if len(s.free) == 0 {
		if err := s.grow(); err != nil {
			return Slot{}, err
		}
	}
	n := len(s.free) - 1
	x := s.free[n]
	s.free = s.free[:n]
	return x, nil
}

// Put gives a slot back.
func (s *Slab) Put(x Slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, x)
}

// Free returns the number of free slots.
func (s *Slab) Free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.free)
}

// Bytes returns the first n bytes of a slot.
func (x Slot) Bytes(n int64) []byte { return x.chunk.HostBytes()[x.off : x.off+n] }

// Window returns the first n bytes of a slot as memory of an operation.
func (x Slot) Window(n int64) lower.Window {
	return x.chunk.Window(x.off, n)
}

// Hold keeps the memory until the returned function is called, beyond Release.
func (s *Slab) Hold() func() {
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

// Release frees the memory. No slot is taken after it.
func (s *Slab) Release() error {
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

// Fits refuses an inject that is too long. what names the operation in the error.
func (s *Slab) Fits(what string, n int64) error {
	if n <= s.inject {
		return nil
	}
	return &failure.Error{
		Op: what, Detail: fmt.Sprintf("inject of %d bytes", n), Err: memory.ErrTooLong,
		Remedy: fmt.Sprintf("inject takes %d at most: raise InjectSize", s.inject),
	}
}

// Fill lets a function write the first n bytes of a slot that Take has returned, and keeps the
// memory meanwhile. It returns an error without a call of the function if the slab is released.
func (x Slot) Fill(n int64, fill func(p []byte) error) error {
	if err := x.chunk.Use(); err != nil {
		return err
	}
	defer x.chunk.Unuse()
	return fill(x.Bytes(n))
}

// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"sync"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/lower"
)

// slab is registered host memory from which injected data is sent. It is made at its first
// use.
type slab struct {
	mu   sync.Mutex
	buf  *Buffer // nil until the first use
	size int64   // of a slot
	free []int
	sink Piece // memory for bytes that are read only for the sake of the read
}

// needSlab makes the slab at its first use.
func (e *Endpoint) needSlab() error {
	s := &e.slab
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buf != nil {
		return nil
	}
	slots := e.opt.Depth
	size := (int64(e.opt.InjectSize) + 7) &^ 7
	buf, err := e.nic.AllocHost(size*int64(slots) + 8)
	if err != nil {
		return err
	}
	s.buf, s.size = buf, size
	for i := range slots {
		s.free = append(s.free, slots-1-i)
	}
	local := buf.core.local.Memory[0]
	s.sink = Piece{Addr: local.Addr + uint64(size*int64(slots)), Length: 8, Key: local.Key}
	return nil
}

// take returns a free slot.
func (s *slab) take() (slot int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.free)
	if n == 0 {
		return 0, false
	}
	slot = s.free[n-1]
	s.free = s.free[:n-1]
	return slot, true
}

func (s *slab) put(slot int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, slot)
}

// hold keeps the memory, if there is any, until the returned function is called.
func (s *slab) hold() func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buf == nil || s.buf.use() != nil {
		return func() {}
	}
	return s.buf.core.unuse
}

func (s *slab) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buf == nil {
		return nil
	}
	return s.buf.Release()
}

// inject replaces the op's local memory by a slot of n bytes, which fill fills.
func (o *op) inject(e *Endpoint, n int64, fill func(p []byte) error) error {
	if n > int64(e.opt.InjectSize) {
		return &dmabuf.Error{
			Op: o.kind.String(), Detail: fmt.Sprintf("inject of %d bytes", n), Err: dmabuf.ErrLimit,
			Remedy: fmt.Sprintf("inject takes %d at most: raise EndpointOptions.InjectSize", e.opt.InjectSize),
		}
	}
	if err := e.needSlab(); err != nil {
		return err
	}
	s := &e.slab
	if err := s.buf.use(); err != nil { // the endpoint is closed
		return err
	}
	defer s.buf.core.unuse()
	if o.slot, o.injected = s.take(); !o.injected {
		return ErrQueueFull
	}
	off := int64(o.slot) * s.size
	if err := fill(s.buf.core.hostMem.Bytes()[off : off+n]); err != nil {
		return err
	}
	o.local, o.staged = o.local[:0], false
	if n > 0 {
		o.local = append(o.local, lower.Window{Layout: s.buf.layout, Spaces: s.buf.mem, Off: off, Len: n})
	}
	o.length = n
	return nil
}

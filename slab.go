// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"fmt"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/lower"
)

// slab is registered host memory from which injected data is sent.
type slab struct {
	buf  *Buffer
	size int64 // of a slot
	free []int
	sink Piece // where bytes are read to that only the reading matters of
}

// needSlab makes the slab at its first use.
func (e *Endpoint) needSlab() error {
	if e.slab != nil {
		return nil
	}
	slots := e.opt.Depth
	size := (int64(e.opt.InjectSize) + 7) &^ 7
	buf, err := e.nic.AllocHost(size*int64(slots) + 8)
	if err != nil {
		return err
	}
	s := &slab{buf: buf, size: size}
	for i := range slots {
		s.free = append(s.free, slots-1-i)
	}
	local := buf.core.local.Memory[0]
	s.sink = Piece{Addr: local.Addr + uint64(size*int64(slots)), Length: 8, Key: local.Key}
	e.slab = s
	return nil
}

// inject takes the data of n bytes; fill puts it into the slot.
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
	s := e.slab
	if len(s.free) == 0 {
		return ErrQueueFull
	}
	o.slot, o.injected = s.free[len(s.free)-1], true
	s.free = s.free[:len(s.free)-1]
	off := int64(o.slot) * s.size
	if err := fill(s.buf.core.hostMem.Bytes()[off : off+n]); err != nil {
		return err
	}
	o.local = o.local[:0]
	if n > 0 {
		o.local = append(o.local, lower.Window{Layout: s.buf.layout, Spaces: s.buf.mem, Off: off, Len: n})
	}
	o.length = n
	return nil
}

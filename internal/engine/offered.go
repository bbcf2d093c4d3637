// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/fifo"
	"github.com/gpurdma/gpurdma/internal/memory"
)

// offered is the memory that a peer has offered. The connection's mutex guards it.
type offered struct {
	ended   bool                             // the connection has begun to end, and takes no offers
	bytes   int                              // of all descriptors
	list    fifo.Queue[*memory.RemoteBuffer] // those without a name, which Offered takes
	arrived chan struct{}                    // signals that there is one
	names   map[string]*memory.RemoteBuffer
	changed chan struct{} // closed at the next change of names; nil unless a goroutine waits
}

// maxOffered bounds the memory of a peer's offers that wait for Offered, or have names.
const maxOffered = 16 << 20

// take takes an offer. An offer without a descriptor withdraws the name.
func (o *offered) take(name string, rb *memory.RemoteBuffer) error {
	if rb != nil {
		o.bytes += rb.Weight()
	}
	if name == "" {
		o.list.Push(rb)
		o.tell()
	} else {
		o.named(name, rb)
	}
	if o.bytes > maxOffered {
		return &dmabuf.Error{Op: "take an offer", Detail: fmt.Sprintf("the peer has exported more than fits into %d bytes of descriptors", maxOffered), Err: dmabuf.ErrLimit}
	}
	return nil
}

// named sets the memory that the peer offers under a name; nil withdraws it.
func (o *offered) named(name string, rb *memory.RemoteBuffer) {
	if old := o.names[name]; old != nil {
		o.bytes -= old.Weight()
	}
	switch {
	case rb == nil:
		delete(o.names, name)
		return
	case o.names == nil:
		o.names = map[string]*memory.RemoteBuffer{}
	}
	o.names[name] = rb.Named(name)
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
}

// forgetNames drops all offers with a name.
func (o *offered) forgetNames() {
	for name := range o.names {
		o.named(name, nil)
	}
}

// pop returns the oldest offer without a name; nil if there is none.
func (o *offered) pop() *memory.RemoteBuffer {
	if o.list.Len() == 0 {
		return nil
	}
	rb := o.list.Pop()
	o.bytes -= rb.Weight()
	if o.list.Len() > 0 {
		o.tell() // for another goroutine that waits
	}
	return rb
}

// find returns the memory that the peer offers under a name, or nil, and a channel that is closed
// at the next change.
func (o *offered) find(name string) (*memory.RemoteBuffer, <-chan struct{}) {
	if o.changed == nil {
		o.changed = make(chan struct{})
	}
	return o.names[name], o.changed
}

// drop drops all offers, and makes take drop later ones.
func (o *offered) drop() {
	o.ended, o.bytes, o.list, o.names = true, 0, fifo.Queue[*memory.RemoteBuffer]{}, nil
}

// tell wakes one goroutine that waits for offers.
func (o *offered) tell() {
	select {
	case o.arrived <- struct{}{}:
	default:
	}
}

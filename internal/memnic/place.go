// SPDX-License-Identifier: Apache-2.0

package memnic

import (
	"slices"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Placement is a WRITE that the responder's device has acknowledged, and whose bytes are on
// their way to the memory.
type Placement struct {
	ID      uint64 // the number of the WRITE in the network
	From    string // the device that has sent it
	To      string // the device that has received it
	QPN     uint32 // the receiver's queue pair
	Key     uint32
	Addr    uint64
	Size    int
	Relaxed bool // the key has ibvfd.AccessRelaxedOrdering

	FromNumber, ToNumber int // the devices' numbers
}

// Held is the result of OnPlace's function that holds a WRITE back until it is pushed.
const Held = time.Duration(-1)

// OnPlace sets a function that returns when the bytes of a WRITE reach the memory: 0 for at once,
// [Held] for when they are pushed, or a time after which they arrive unless they are pushed
// before. The sender's completion does not wait for it. Bytes are pushed
//
//   - by a READ, an atomic operation or a completed receive on the same queue pair;
//   - by a READ of the same PCI function's memory through the same device, if their own queue pair is
//     destroyed;
//   - by a WRITE to the same PCI function's memory through the same device, under a key without
//     relaxed ordering, when its own bytes reach the memory: such a WRITE overtakes none;
//   - by Place and PlaceAll;
//   - by the end of the registration, or of the receiver's link if the memory is the host's.
//
// A WRITE under a key with relaxed ordering may overtake others. Bytes of memory that is revoked
// never arrive, nor do bytes that a device has when it is removed. A nil function removes it; writes that are held back stay held.
func (n *Network) OnPlace(when func(Placement) time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.onPlace = when
}

// OnCorrupt sets a function that returns which bit of a WRITE's bytes is flipped before they reach the
// memory, counted from 0, or -1 for none. A nil function removes it.
func (n *Network) OnCorrupt(bit func(Placement) int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.flip = bit
}

// placing is a WRITE whose bytes have not all reached the memory.
type placing struct {
	Placement
	pair     *pair // the receiver's
	region   *region
	to, data []byte
	there    []bool // the bytes that have arrived; nil if none has
	timer    *time.Timer
}

// place brings the bytes of a WRITE to the memory, now or later. q is the receiver's queue pair.
func (q *pair) place(from *pair, r *region, addr uint64, to, data []byte) {
	n, a := q.link.net, q.link.adapter
	n.placed++
	p := &placing{
		Placement: Placement{n.placed, from.link.adapter.name, a.name, q.num, r.rkey, addr, len(data), r.access&ibvfd.AccessRelaxedOrdering != 0, from.link.adapter.index, a.index},
		pair:      q, region: r, to: to, data: data,
	}
	if n.flip != nil {
		if bit := n.flip(p.Placement); bit >= 0 && bit/8 < int64(len(data)) {
			data[bit/8] ^= 1 << (bit % 8)
		}
	}
	when := time.Duration(0)
	if n.onPlace != nil {
		when = n.onPlace(p.Placement)
	}
	a.held = append(a.held, p)
	switch {
	case when == 0:
		a.settle(p)
	case when > 0:
		p.timer = time.AfterFunc(when, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			a.settle(p)
		})
	}
}

// settle brings all bytes of a WRITE to the memory, after those that it may not overtake.
func (a *adapter) settle(p *placing) {
	i := slices.Index(a.held, p)
	if i < 0 {
		return
	}
	if !p.Relaxed {
		a.before(p, p.region.home)
		i = slices.Index(a.held, p)
	}
	p.arriveAt(0, len(p.data))
	a.drop(i)
}

// before settles the WRITEs to a PCI function's memory that are earlier than p.
func (a *adapter) before(p *placing, home pciaddr.Addr) {
	for _, other := range slices.Clone(a.held) {
		if other == p {
			return
		}
		if other.region.home == home {
			a.settle(other)
		}
	}
}

func (a *adapter) drop(i int) {
	if t := a.held[i].timer; t != nil {
		t.Stop()
	}
	a.held = slices.Delete(a.held, i, i+1)
}

// arriveAt copies a part, without the bytes that have arrived before, which later WRITEs may have
// replaced.
func (p *placing) arriveAt(off, size int) {
	if p.there == nil && size == len(p.data) {
		copy(p.to, p.data)
		return
	}
	if p.there == nil {
		p.there = make([]bool, len(p.data))
	}
	for i := off; i < off+size; i++ {
		if !p.there[i] {
			p.to[i], p.there[i] = p.data[i], true
		}
	}
}

// arrive settles the WRITEs that a function chooses, in order.
func (a *adapter) arrive(which func(*placing) bool) {
	if len(a.held) == 0 {
		return
	}
	for _, p := range slices.Clone(a.held) {
		if which(p) {
			a.settle(p)
		}
	}
}

// arrive settles the WRITEs that the queue pair has received.
func (q *pair) arrive() {
	q.link.adapter.arrive(func(p *placing) bool { return p.pair == q })
}

// push settles the WRITEs to a PCI function's memory whose queue pairs are destroyed: the device has none
// of them any more, and its reads do not overtake them on the bus.
func (a *adapter) push(home pciaddr.Addr) {
	a.arrive(func(p *placing) bool { return p.pair.link.closed && p.region.home == home })
}

// forget drops the bytes on their way to a region.
func (a *adapter) forget(r *region) {
	for i := len(a.held) - 1; i >= 0; i-- {
		if a.held[i].region == r {
			a.drop(i)
		}
	}
}

// Waiting returns the WRITEs whose bytes have not all reached the memory, in order of arrival
// at each device.
func (n *Network) Waiting() (list []Placement) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.adapters {
		for _, p := range a.held {
			list = append(list, p.Placement)
		}
	}
	return list
}

// Place brings a part of a waiting WRITE to the memory: size bytes from off on, in any order of
// calls. Without relaxed ordering neither the WRITE's bytes before that part nor earlier WRITEs
// are overtaken, so Place brings them, too. It reports false if no such WRITE is waiting, or if
// it has no such part.
func (n *Network) Place(id uint64, off, size int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.adapters {
		i := slices.IndexFunc(a.held, func(p *placing) bool { return p.ID == id })
		if i < 0 {
			continue
		}
		p := a.held[i]
		if off < 0 || size < 0 || size > len(p.data)-off {
			return false
		}
		if !p.Relaxed {
			a.before(p, p.region.home)
			off, size = 0, off+size
		}
		p.arriveAt(off, size)
		if p.there == nil || !slices.Contains(p.there, false) {
			a.drop(slices.Index(a.held, p))
		}
		return true
	}
	return false
}

// PlaceAll brings all bytes of all waiting WRITEs to the memory.
func (n *Network) PlaceAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.adapters {
		a.arrive(func(*placing) bool { return true })
	}
}

// SPDX-License-Identifier: Apache-2.0

package memnic_test

import (
	"slices"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/pciaddr"
)

func holding(n *memnic.Network) {
	n.OnPlace(func(memnic.Placement) time.Duration { return memnic.Held })
}

// write writes the first bytes of a's memory, and waits for the acknowledgement.
func (s *side) write(t testing.TB, r *rc.Registration, there uint64, n uint32) {
	t.Helper()
	wr := ibvfd.SendWR{ID: 1, Op: ibvfd.OpWrite, Flags: ibvfd.SendSignaled, SGE: s.part(0, n), RemoteAddr: r.Remote[0].Addr + there, RKey: r.Remote[0].Key}
	s.post(rc.WriteQueue, wr)
	s.done(1, ibvfd.WCSuccess)
}

// A WRITE that is held back arrives with a later operation on the same queue pair, not before.
func TestWhatPushes(t *testing.T) {
	for name, push := range map[string]func(n *memnic.Network, a, b *side){
		"a READ": func(_ *memnic.Network, a, b *side) {
			a.post(rc.WriteQueue, a.op(ibvfd.OpRead, 100, 1, b, 100))
			a.done(104, ibvfd.WCSuccess)
		},
		"an atomic operation": func(_ *memnic.Network, a, b *side) {
			a.post(rc.WriteQueue, a.op(ibvfd.OpFetchAdd, 104, 8, b, 104))
			a.done(106, ibvfd.WCSuccess)
		},
		"a message": func(_ *memnic.Network, a, b *side) {
			b.recv(1, 100, 8)
			a.post(rc.WriteQueue, a.op(ibvfd.OpSend, 100, 8, b, 0))
			a.done(102, ibvfd.WCSuccess)
			b.done(1, ibvfd.WCSuccess)
		},
		"immediate data": func(_ *memnic.Network, a, b *side) {
			b.recv(1, 100, 8)
			a.post(rc.WriteQueue, a.op(ibvfd.OpWriteImm, 100, 8, b, 100))
			a.done(101, ibvfd.WCSuccess)
			b.done(1, ibvfd.WCSuccess)
		},
		"PlaceAll":                    func(n *memnic.Network, _, _ *side) { n.PlaceAll() },
		"the end of the link":         func(_ *memnic.Network, _, b *side) { _ = b.link.Close() },
		"the end of the registration": func(_ *memnic.Network, _, b *side) { _ = b.reg.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			eachMode(t, func(t *testing.T, n *memnic.Network) {
				a, b := pairOf(t, n, ibvfd.ConnectAttr{})
				holding(n)
				a.fill(1)
				a.write(t, b.reg, 0, 16)
				// Another queue pair pushes nothing.
				a.post(rc.ReadQueue, a.op(ibvfd.OpRead, 100, 1, b, 0))
				a.done(104, ibvfd.WCSuccess)
				same(t, "before", b.mem[:16], make([]byte, 16))
				if w := n.Waiting(); len(w) != 1 || w[0].From != "a" || w[0].To != "b" || w[0].Size != 16 || w[0].Key != b.reg.Remote[0].Key || w[0].Relaxed {
					t.Errorf("%+v", w)
				}
				push(n, a, b)
				same(t, "after", b.mem[:16], a.mem[:16])
				if w := n.Waiting(); len(w) != 0 {
					t.Errorf("%+v", w)
				}
			})
		})
	}
}

// Bytes that are on their way to memory that is revoked never arrive.
func TestRevokeDropsPlacements(t *testing.T) {
	n := memnic.New(memnic.Manual())
	a, b := pairOf(t, n, ibvfd.ConnectAttr{})
	m := newMemory(t, memnic.MemoryOptions{})
	r := b.registered(m, allAccess)
	holding(n)
	a.fill(1)
	a.write(t, r, 0, 16)
	n.Revoke(m)
	n.PlaceAll()
	same(t, "there", m.Bytes()[:16], make([]byte, 16))
}

// Bytes arrive by themselves after the time that OnPlace says.
func TestPlacedLater(t *testing.T) {
	n := memnic.New(memnic.Manual())
	a, b := pairOf(t, n, ibvfd.ConnectAttr{})
	n.OnPlace(func(memnic.Placement) time.Duration { return time.Millisecond })
	a.fill(1)
	a.write(t, b.reg, 0, 16)
	for end := time.Now().Add(bound); len(n.Waiting()) > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	n.OnPlace(nil)
	same(t, "there", b.mem[:16], a.mem[:16])
	a.write(t, b.reg, 32, 16)
	same(t, "at once", b.mem[32:48], a.mem[:16])
}

// A WRITE in strict order overtakes no earlier one of its device to the same memory; one in
// relaxed order overtakes all, and so do the parts of it.
func TestPlacementOrder(t *testing.T) {
	n := memnic.New(memnic.Manual())
	a, b := pairOf(t, n, ibvfd.ConnectAttr{})
	gpu, other := newMemory(t, memnic.MemoryOptions{}), newMemory(t, memnic.MemoryOptions{PCI: pciaddr.Addr{Bus: 4}})
	const relaxed = allAccess | ibvfd.AccessRelaxedOrdering
	data, flag, far := b.registered(gpu, relaxed), b.registered(gpu, allAccess), b.registered(other, relaxed)
	holding(n)
	a.fill(1)
	ids := func() (list []uint64) {
		for _, p := range n.Waiting() {
			list = append(list, p.ID)
		}
		return list
	}
	a.write(t, data, 0, 4) // 1
	a.write(t, far, 0, 4)  // 2
	a.write(t, data, 8, 4) // 3
	a.write(t, flag, 16, 4)
	a.write(t, data, 24, 4)
	first := ids()
	if len(first) != 5 {
		t.Fatal(first)
	}
	mem := func(off int) bool { return gpu.Bytes()[off] != 0 }

	// The last byte of the second WRITE arrives first.
	if !n.Place(first[2], 3, 1) || mem(0) || mem(8) || gpu.Bytes()[11] != 4 {
		t.Errorf("% x", gpu.Bytes()[:32])
	}
	if n.Place(first[2], 3, 2) || n.Place(first[2], -1, 1) || n.Place(first[4]+1, 0, 1) {
		t.Error("there is no such part")
	}
	// Half of the flag brings the data before it, and not the rest, nor other memory's.
	if !n.Place(first[3], 1, 1) || !mem(0) || !mem(8) || !mem(16) || !mem(17) || mem(18) || mem(24) || other.Bytes()[0] != 0 {
		t.Errorf("% x", gpu.Bytes()[:32])
	}
	if got := ids(); !slices.Equal(got, []uint64{first[1], first[3], first[4]}) {
		t.Errorf("%v are left of %v", got, first)
	}
	// A byte that has arrived does not arrive again.
	gpu.Bytes()[16] = 99
	if !n.Place(first[3], 2, 2) || gpu.Bytes()[16] != 99 || gpu.Bytes()[19] != 4 {
		t.Errorf("% x", gpu.Bytes()[:32])
	}
	// A WRITE in relaxed order that arrives at once overtakes; one in strict order does not.
	n.OnPlace(nil)
	a.mem[0] = 200
	a.write(t, data, 24, 1)
	if gpu.Bytes()[24] != 200 || len(ids()) != 2 {
		t.Errorf("% x", gpu.Bytes()[:32])
	}
	a.write(t, flag, 32, 1)
	if gpu.Bytes()[24] != 1 || gpu.Bytes()[32] != 200 || !slices.Equal(ids(), []uint64{first[1]}) {
		t.Errorf("% x, %v are left", gpu.Bytes()[:33], ids())
	}
}

// Atomic operations are atomic among those of one device, and only among those.
func TestAtomicsOfTwoDevices(t *testing.T) {
	eachMode(t, func(t *testing.T, n *memnic.Network) {
		a, b := pairOf(t, n, ibvfd.ConnectAttr{})
		c, d := newSide(t, n.Device("c", memnic.Limits{}), ibvfd.ConnectAttr{}), newSide(t, n.Device("d", memnic.Limits{}), ibvfd.ConnectAttr{})
		join(t, c, d)
		buf := must(hostmem.Alloc(8))(t)
		rb, rd := must(b.dev.Host(buf, 0, 8, allAccess))(t), must(d.dev.Host(buf, 0, 8, allAccess))(t)
		t.Cleanup(func() {
			_, _, _ = rb.Close(), rd.Close(), buf.Close()
		})
		add := func(s *side, r *rc.Registration, value uint64) ibvfd.SendWR {
			return ibvfd.SendWR{ID: value, Op: ibvfd.OpFetchAdd, Flags: ibvfd.SendSignaled, SGE: s.part(0, 8), RemoteAddr: r.Remote[0].Addr, RKey: r.Remote[0].Key, CompareAdd: value}
		}
		between := 0
		n.OnAtomic(func(x memnic.Atomic) {
			if between++; between > 1 {
				return
			}
			if x.Op != ibvfd.OpFetchAdd || x.Device.Name() != "b" || x.Old != 0 || x.Key != rb.Remote[0].Key {
				t.Errorf("%+v", x)
			}
			c.post(rc.WriteQueue, add(c, rd, 10))
			c.done(10, ibvfd.WCSuccess)
		})
		a.post(rc.WriteQueue, add(a, rb, 1), add(a, rb, 1))
		a.done(1, ibvfd.WCSuccess)
		a.done(1, ibvfd.WCSuccess)
		if got := buf.Bytes()[0]; got != 2 || between != 3 {
			t.Errorf("%d after %d operations: the addition of the other device is not lost", got, between)
		}
		n.OnAtomic(nil)
		c.post(rc.WriteQueue, add(c, rd, 10))
		c.done(10, ibvfd.WCSuccess)
		if got := buf.Bytes()[0]; got != 12 {
			t.Error(got)
		}
	})
}

// Two atomic operations of one device do not interleave, even if one is held up.
func TestAtomicsOfOneDevice(t *testing.T) {
	n := memnic.New()
	a, b := pairOf(t, n, ibvfd.ConnectAttr{})
	c, d := newSide(t, n.Device("c", memnic.Limits{}), ibvfd.ConnectAttr{}), newSide(t, must(b.dev.NewDomain())(t).(*memnic.Device), ibvfd.ConnectAttr{})
	join(t, c, d)
	buf := must(hostmem.Alloc(8))(t)
	rb, rd := must(b.dev.Host(buf, 0, 8, allAccess))(t), must(d.dev.Host(buf, 0, 8, allAccess))(t)
	t.Cleanup(func() { _, _, _ = rb.Close(), rd.Close(), buf.Close() })
	inside, lift := make(chan struct{}, 2), make(chan struct{})
	n.OnAtomic(func(memnic.Atomic) {
		inside <- struct{}{}
		<-lift
	})
	for s, r := range map[*side]*rc.Registration{a: rb, c: rd} {
		s.post(rc.WriteQueue, ibvfd.SendWR{ID: 1, Op: ibvfd.OpFetchAdd, Flags: ibvfd.SendSignaled, SGE: s.part(0, 8), RemoteAddr: r.Remote[0].Addr, RKey: r.Remote[0].Key, CompareAdd: 1})
	}
	<-inside
	time.Sleep(2 * time.Millisecond)
	if len(inside) > 0 {
		t.Error("two operations are between their halves")
	}
	close(lift)
	a.done(1, ibvfd.WCSuccess)
	c.done(1, ibvfd.WCSuccess)
	if buf.Bytes()[0] != 2 {
		t.Error(buf.Bytes()[0])
	}
}

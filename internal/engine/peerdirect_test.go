// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/region"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// pointerDevice registers no dma-bufs; it registers device pointers if the policy allows it.
type pointerDevice struct {
	*fakeDevice
	asked []region.Attr
}

func (d *pointerDevice) Source(src rc.Source, off, n int64, access ibvfd.Access) (*rc.Registration, error) {
	attr := rc.RegionAttr(src, off, n, access)
	d.asked = append(d.asked, attr)
	if attr.Policy != ibvfd.RouteAutoPeerDirect || attr.Segments[0].Addr == 0 {
		return nil, &ibvfd.RegError{Device: d.Name(), Errno: unix.EOPNOTSUPP, Cause: fault.CauseNoDriverOp}
	}
	s := src.(rc.PeerDirect).Source.(*pointerSource)
	r, err := d.fakeDevice.Source(&memSource{mem: s.mem, direct: true}, off, n, access)
	if err != nil {
		return nil, err
	}
	r.Route = ibvfd.RoutePeerDirect
	return r, nil
}

// pointerSource has device pointers.
type pointerSource struct {
	memSource
	addr       uint64
	unexported bool // there are no dma-bufs
}

var anyBuf = new(dmabuf.Buf) // not used

func (s *pointerSource) Segments() []gpualloc.Segment {
	half := s.Size() / 2
	if s.unexported {
		return []gpualloc.Segment{{Size: half, Addr: s.addr}, {Size: half, Addr: 2 * s.addr}}
	}
	return []gpualloc.Segment{{Buf: anyBuf, Offset: 4096, Size: half, Addr: s.addr}, {Buf: anyBuf, Size: half, Addr: 2 * s.addr}}
}

// Device pointers are registered only if the options ask for it, as the source states them,
// and Path reports it. If they cannot be registered either the Buffer is staged.
func TestPeerDirect(t *testing.T) {
	for name, c := range map[string]struct {
		opt    memory.BufferOptions
		addr   uint64
		staged bool
		bare   bool // the memory was never exported
	}{
		"not asked for":               {opt: memory.BufferOptions{}, addr: 1 << 40, staged: true},
		"asked for":                   {opt: memory.BufferOptions{PeerDirect: true}, addr: 1 << 40},
		"asked for, and direct":       {opt: memory.BufferOptions{PeerDirect: true, Policy: memory.DirectOnly}, addr: 1 << 40},
		"there is no pointer":         {opt: memory.BufferOptions{PeerDirect: true}, staged: true},
		"not exported":                {opt: memory.BufferOptions{PeerDirect: true}, addr: 1<<40 + 100, bare: true},
		"not exported, nor asked for": {opt: memory.BufferOptions{}, addr: 1<<40 + 100, bare: true, staged: true},
		"staged by policy":            {opt: memory.BufferOptions{PeerDirect: true, Policy: memory.StagedOnly}, addr: 1 << 40, staged: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := inMemory(t)
			w := s.world(t, EndpointOptions{})
			dev := &pointerDevice{fakeDevice: fakeOf(w.a.nic)}
			replaceDevice(w.a.nic, dev)
			src := &pointerSource{memSource{mem: make([]byte, 8192)}, c.addr, c.bare}
			b := must(w.a.nic.Register(src, c.opt))(t)
			closingBuffer(t, b)
			p := b.Path()
			if c.staged != (p.Direct == memory.Staged) || !c.staged && p.Route != ibvfd.RoutePeerDirect || b.GPUDirect() == c.staged {
				t.Errorf("%+v", p)
			}
			// Memory shared with peers is registered in the same way.
			theirs := hostKind.make(t, w.b.nic, 100)
			want := random(t, testenv.Seeded(t), theirs, 100)
			rb := must(w.a.Share(w.ab, memory.Span{Buf: b, Offset: 4090, Length: 100}, allAccess))(t)
			w.ok(w.a.Offer(limited(t), w.ab, rb))
			got := must(w.b.Offered(limited(t), w.ba))(t)
			w.ok(w.b.Write(theirs.All(), w.ba, got.All(), 1))
			w.done(w.b, operation.Write, 1)
			w.ok(b.Sync())
			if string(src.mem[4090:4190]) != string(want) {
				t.Error("other bytes arrived")
			}
			if asked := len(dev.asked); !c.staged && asked != 2 || c.staged && c.opt.Policy == memory.StagedOnly && asked != 0 {
				t.Errorf("%d registrations were tried", asked)
			}
			for _, a := range dev.asked {
				addrs := []uint64{a.Segments[0].Addr, a.Segments[1].Addr}
				first := uint64(4096)
				if c.bare {
					first = 100 // the address's place in its page
				}
				if (a.Policy == ibvfd.RouteAutoPeerDirect) != c.opt.PeerDirect || !slices.Equal(addrs, []uint64{c.addr, 2 * c.addr}) || a.IOVA != a.Offset+first {
					t.Errorf("asked for %+v", a)
				}
			}
		})
	}
}

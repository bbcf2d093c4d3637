// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
)

// A region is registered by its segments' device pointers where that is allowed and
// no dma-buf can be: each part at its own place, be the range cut as it may.
func TestPeerDirectRegion(t *testing.T) {
	const page = 4096
	s := newScript()
	pd := scripted(t, s, &kernel{driver: 4, reg: func(int32) unix.Errno { return unix.EOPNOTSUPP }})
	peer(t, pd, "nv_mem", "1.3")
	buf := new(dmabuf.Buf) // never asked for anything
	// Each segment begins a page into its dma-buf.
	one := Segment{Buf: buf, Offset: page, Length: 2 * page, Addr: farAway + page}
	two := Segment{Buf: buf, Offset: page, Length: 2 * page, Addr: farAway + 1<<20}
	for name, c := range map[string]struct {
		segments []Segment
		off, n   uint64
		want     []uint64 // what ibv_reg_mr is asked for, one after the other
	}{
		"the beginning": {[]Segment{one}, 0, page, []uint64{one.Addr}},
		"the middle":    {[]Segment{one}, 100, page, []uint64{one.Addr + 100}},
		"two segments":  {[]Segment{one, two}, page, 2 * page, []uint64{one.Addr + page, two.Addr}},
		"the second":    {[]Segment{one, two}, 2*page + 7, page, []uint64{two.Addr + 7}},
	} {
		t.Run(name, func(t *testing.T) {
			a := RegionAttr{Segments: c.segments, Offset: c.off, Length: c.n, IOVA: page + c.off, Policy: RouteAutoPeerDirect, SkipChecks: true}
			parts, err := a.parts(pd)
			if err != nil || len(parts) != len(c.want) {
				t.Fatalf("%+v, %v", parts, err)
			}
			iova := a.IOVA
			for i, p := range parts {
				p.Buf, p.FD = nil, openFile(t) // there is no dma-buf here
				mr, err := pd.RegMR(p)
				if err != nil {
					t.Fatal(err)
				}
				if mr.Route() != RoutePeerDirect || s.addr != c.want[i] || mr.IOVA() != iova {
					t.Errorf("part %d: %+v, registered at %#x, want %#x", i, mr.State(), s.addr, c.want[i])
				}
				iova += uint64(mr.Length())
				if err := mr.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for name, list := range map[string][]Segment{
		"no pointer":            {{Buf: buf, Offset: page, Length: page}},
		"one before its buffer": {{Buf: buf, Offset: page, Length: page, Addr: 1}},
	} {
		parts, err := (&RegionAttr{Segments: list, Length: page, IOVA: page, Policy: RouteAutoPeerDirect}).parts(pd)
		if err != nil || len(parts) != 1 || parts[0].Pointer != 0 {
			t.Errorf("%s: %+v, %v", name, parts, err)
		}
	}
}

// Memory that was never exported is registered by its pointers alone, and only where
// that is allowed and a client is there.
func TestPeerDirectUnexported(t *testing.T) {
	const page = 4096
	s := newScript()
	pd := scripted(t, s, &kernel{driver: 4, reg: func(int32) unix.Errno {
		t.Error("the kernel was asked for a dma-buf")
		return unix.EBADF
	}})
	attr := RegionAttr{
		Segments: []Segment{{Length: 2 * page, Addr: farAway}, {Length: page, Addr: farAway + 1<<20}},
		Offset:   page, Length: 2 * page, IOVA: page, Policy: RouteAutoPeerDirect,
	}
	refused := func(name string, attr RegionAttr, words string) {
		t.Helper()
		r, err := RegisterRegion(attr, pd)
		if e := (*RegError)(nil); !errors.As(err, &e) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, %v; want %q", name, r, err, words)
		}
	}
	refused("no client", attr, "no peer-memory client is registered")
	peer(t, pd, "nv_mem", "1.3")
	unasked := attr
	unasked.Policy = RouteAuto
	refused("not asked for", unasked, "no dma-buf of the memory is at hand: EOPNOTSUPP")
	nowhere := attr
	nowhere.Segments = []Segment{{Length: page}}
	refused("no pointer", nowhere, "without a Buf, or an Addr beyond its Offset")

	r, err := RegisterRegion(attr, pd)
	if err != nil {
		t.Fatal(err)
	}
	mrs := r.MRs(pd)
	if len(mrs) != 2 || mrs[0].Route() != RoutePeerDirect || mrs[0].IOVA() != page || mrs[1].IOVA() != 2*page || s.addr != farAway+1<<20 {
		t.Errorf("%d MRs, the last at %#x", len(mrs), s.addr)
	}
	// The range of an MR by itself can change.
	if err := mrs[0].Rereg(ReregAttr{Change: ReregAccess, MRAttr: MRAttr{Access: AccessRemoteRead}, InPlace: InPlaceNever}); err != nil {
		t.Errorf("another access: %v", err)
	} else if mrs[0].Route() != RoutePeerDirect || mrs[0].Access() != AccessRemoteRead || s.addr != farAway+page {
		t.Errorf("%+v, registered at %#x", mrs[0].State(), s.addr)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	// A dma-buf's MR can become one of such memory, as it can be made of it.
	pd2 := scripted(t, newScript(), &kernel{driver: 4, reg: always(0)})
	peer(t, pd2, "nv_mem", "1.3")
	mr, err := pd2.RegMR(MRAttr{Kind: DMABufFD, FD: openFile(t), Length: page, SkipChecks: true, Policy: RouteIoctlOnly})
	if err != nil {
		t.Fatal(err)
	}
	bare := MRAttr{Kind: DMABufFD, FD: -1, Pointer: farAway, Length: page, Policy: RouteAutoPeerDirect}
	if err := mr.Rereg(ReregAttr{Change: ReregMemory, MRAttr: bare}); err != nil || mr.Route() != RoutePeerDirect {
		t.Errorf("of a dma-buf: %v, %+v", err, mr.State())
	}
	if err := mr.Close(); err != nil {
		t.Error(err)
	}
}

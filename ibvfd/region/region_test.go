// SPDX-License-Identifier: Apache-2.0

package region

import (
	"errors"
	"math"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
)

const farAway = 1 << 46

// Segments whose numbers wrap around do not come out as another range.
func TestSegmentsThatWrap(t *testing.T) {
	buf := new(dmabuf.Buf) // never asked for anything
	for name, list := range map[string][]Segment{
		"an offset":    {{Buf: buf, Offset: math.MaxUint64 - 4, Length: 8}, {Buf: buf, Offset: 0, Length: 8}},
		"the only one": {{Buf: buf, Offset: math.MaxUint64 - 4, Length: 8}},
		"the lengths":  {{Buf: buf, Offset: 0, Length: math.MaxUint64}, {Buf: buf, Offset: 0, Length: 8}},
		"no Buf":       {{Buf: nil, Offset: 0, Length: 8}},
	} {
		a := Attr{Segments: list, Offset: 6, Length: 2}
		if parts, err := a.parts("roce0"); !errors.Is(err, unix.EINVAL) || parts != nil {
			t.Errorf("%s: %+v, %v", name, parts, err)
		}
	}
	a := Attr{Segments: []Segment{{Buf: buf, Offset: 100, Length: 8}, {Buf: buf, Offset: 200, Length: 8}}, Offset: 6, Length: 4, IOVA: 50}
	parts, err := a.parts("roce0")
	if err != nil || len(parts) != 2 || parts[0].Offset != 106 || parts[0].Length != 2 || parts[1].Offset != 200 || parts[1].IOVA != 52 {
		t.Errorf("%+v, %v", parts, err)
	}
}

// Each part has the device pointer of its own place, be the range cut as it may.
func TestPointersOfParts(t *testing.T) {
	page := uint64(os.Getpagesize())
	buf := new(dmabuf.Buf) // never asked for anything
	// Each segment begins a page into its dma-buf.
	one := Segment{Buf: buf, Offset: page, Length: 2 * page, Addr: farAway + page}
	two := Segment{Buf: buf, Offset: page, Length: 2 * page, Addr: farAway + 1<<20}
	for name, c := range map[string]struct {
		segments []Segment
		off, n   uint64
		want     []uint64 // the pointers, one after the other
	}{
		"the beginning": {[]Segment{one}, 0, page, []uint64{one.Addr}},
		"the middle":    {[]Segment{one}, 100, page, []uint64{one.Addr + 100}},
		"two segments":  {[]Segment{one, two}, page, 2 * page, []uint64{one.Addr + page, two.Addr}},
		"the second":    {[]Segment{one, two}, 2*page + 7, page, []uint64{two.Addr + 7}},
	} {
		t.Run(name, func(t *testing.T) {
			a := Attr{Segments: c.segments, Offset: c.off, Length: c.n, IOVA: page + c.off, Policy: ibvfd.RouteAutoPeerDirect, SkipChecks: true}
			parts, err := a.parts("roce0")
			if err != nil || len(parts) != len(c.want) {
				t.Fatalf("%+v, %v", parts, err)
			}
			iova := a.IOVA
			for i, p := range parts {
				if p.Policy != ibvfd.RouteAutoPeerDirect || p.Pointer+p.Offset != c.want[i] || p.IOVA != iova {
					t.Errorf("part %d: %+v, want %#x", i, p, c.want[i])
				}
				iova += p.Length
			}
		})
	}
	if parts, err := (&Attr{Segments: []Segment{{Length: page}}, Length: page}).parts("roce0"); !errors.Is(err, unix.EINVAL) || parts != nil {
		t.Errorf("neither a Buf nor a pointer: %+v, %v", parts, err)
	}
	for name, list := range map[string][]Segment{
		"no pointer":            {{Buf: buf, Offset: page, Length: page}},
		"one before its buffer": {{Buf: buf, Offset: page, Length: page, Addr: 1}},
	} {
		parts, err := (&Attr{Segments: list, Length: page, IOVA: page, Policy: ibvfd.RouteAutoPeerDirect}).parts("roce0")
		if err != nil || len(parts) != 1 || parts[0].Pointer != 0 {
			t.Errorf("%s: %+v, %v", name, parts, err)
		}
	}
}

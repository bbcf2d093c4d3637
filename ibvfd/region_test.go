// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"math"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
)

// Segments whose numbers wrap around do not come out as another range.
func TestSegmentsThatWrap(t *testing.T) {
	pd := scripted(t, newScript(), &kernel{reg: always(0)})
	buf := new(dmabuf.Buf) // never asked for anything
	for name, list := range map[string][]Segment{
		"an offset":    {{Buf: buf, Offset: math.MaxUint64 - 4, Length: 8}, {Buf: buf, Offset: 0, Length: 8}},
		"the only one": {{Buf: buf, Offset: math.MaxUint64 - 4, Length: 8}},
		"the lengths":  {{Buf: buf, Offset: 0, Length: math.MaxUint64}, {Buf: buf, Offset: 0, Length: 8}},
		"no Buf":       {{Buf: nil, Offset: 0, Length: 8}},
	} {
		a := RegionAttr{Segments: list, Offset: 6, Length: 2}
		if parts, err := a.parts(pd); !errors.Is(err, unix.EINVAL) || parts != nil {
			t.Errorf("%s: %+v, %v", name, parts, err)
		}
	}
	a := RegionAttr{Segments: []Segment{{Buf: buf, Offset: 100, Length: 8}, {Buf: buf, Offset: 200, Length: 8}}, Offset: 6, Length: 4, IOVA: 50}
	parts, err := a.parts(pd)
	if err != nil || len(parts) != 2 || parts[0].Offset != 106 || parts[0].Length != 2 || parts[1].Offset != 200 || parts[1].IOVA != 52 {
		t.Errorf("%+v, %v", parts, err)
	}
}

// What a registration that failed could not take back ends with its PD.
func TestRegionLeftovers(t *testing.T) {
	k := &kernel{reg: always(0)}
	pd := scripted(t, newScript(), k)
	mem := new(ownerOfNothing)
	var mrs []*MR
	for range 2 {
		mr, err := pd.RegMR(MRAttr{Kind: DMABufFD, FD: openFile(t), Length: 1, Policy: RouteIoctlOnly, SkipChecks: true, Owner: mem})
		if err != nil {
			t.Fatal(err)
		}
		mrs = append(mrs, mr)
	}
	k.destroy = unix.EBUSY
	if err := pd.discard(slices.Clone(mrs)); !errors.Is(err, unix.EBUSY) {
		t.Errorf("%v", err)
	}
	if err := pd.Close(); !errors.Is(err, unix.EBUSY) || !errors.Is(err, dmabuf.ErrInUse) || k.live != 2 || mem.held != 2 {
		t.Errorf("%v; %d MRs, held %d times", err, k.live, mem.held)
	}
	k.destroy = 0
	for range 2 {
		if err := pd.Close(); err != nil || k.live != 0 || mem.held != 0 {
			t.Errorf("%v; %d MRs, held %d times", err, k.live, mem.held)
		}
	}
}

type ownerOfNothing struct{ held int }

func (o *ownerOfNothing) Hold() (func(), error) {
	o.held++
	return func() { o.held-- }, nil
}

// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/ibvfd/region"
	"github.com/gpurdma/gpurdma/internal/rdmanl"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// otherNIC is the second one of a machine with several.
const otherNIC = "rxe1"

// A dma-buf is exported once and registered with two NICs. Each NIC reads what the other
// writes, also after the region went to another buffer under new keys; the old buffer is
// then neither read nor written.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMRegionOnTwoNICs(t *testing.T) {
	pd := openPD(t)
	c, err := ibvfd.Open(otherNIC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, c) })
	pd2, err := c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, pd2) })
	const n = 10000
	type side struct {
		pd   *ibvfd.PD
		name string
		p    *pair
		host *hostmem.Buf
		hmr  *ibvfd.MR
	}
	var sides []side
	for _, pd := range []*ibvfd.PD{pd, pd2} {
		s := side{pd: pd, name: pd.Context().Name(), p: connect(t, pd, ibvfd.QPAttr{})}
		s.host, s.hmr = hostMR(t, pd, n)
		sides = append(sides, s)
	}
	if sides[0].name != nic || sides[1].name != otherNIC {
		t.Fatalf("the NICs are %s and %s", sides[0].name, sides[1].name)
	}
	exports := func(t *testing.T) int {
		t.Helper()
		bufs, err := dmabuf.KernelBufs("")
		if err != nil {
			t.Fatal(err)
		}
		return len(bufs)
	}
	// What each NIC has registered beside host memory.
	registered := func(t *testing.T) [2]int {
		t.Helper()
		var list [2]int
		for i, s := range sides {
			mrs, err := rdmanl.MRs(s.name)
			if err != nil {
				t.Fatal(err)
			}
			list[i] = len(mrs) - 1
		}
		return list
	}
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		const size = 1 << 17
		one, two := alloc(t, x.Spec, size, gpualloc.Options{}), alloc(t, x.Spec, size, gpualloc.Options{})
		attr := func(buf *gpualloc.Buffer) region.Attr {
			b := segment(t, buf) // the one export
			return region.Attr{
				Segments: []region.Segment{{Buf: b, Length: size / 2}, {Buf: b, Offset: size / 2, Length: size / 2}},
				Length:   size, IOVA: 1 << 40, Access: allRemote, Owner: buf,
			}
		}
		// crosses has each NIC write a piece of each half, and the other read it.
		crosses := func(r *region.Region, buf, old *gpualloc.Buffer, seed uint64) {
			t.Helper()
			want, wantOld := contents(t, buf), contents(t, old)
			for half := range 2 {
				for i, from := range sides {
					to := sides[1-i]
					what := fmt.Sprintf("%s writes half %d, %s reads", from.name, half, to.name)
					seed++
					fill(from.host.Bytes(), seed)
					clear(to.host.Bytes())
					off := 1000 + 20000*i
					copy(want[half*size/2+off:], from.host.Bytes())
					if w := from.p.move(t, ibvfd.OpWrite, from.hmr, r.MRs(from.pd)[half], uint64(off), n); w.Err() != nil {
						t.Fatalf("%s: WRITE: %v", what, w.Err())
					}
					if w := to.p.move(t, ibvfd.OpRead, to.hmr, r.MRs(to.pd)[half], uint64(off), n); w.Err() != nil {
						t.Fatalf("%s: READ: %v", what, w.Err())
					}
					if !bytes.Equal(to.host.Bytes(), from.host.Bytes()) {
						t.Errorf("%s: other bytes", what)
					}
				}
			}
			if !bytes.Equal(contents(t, buf), want) {
				t.Error("the buffer does not hold what both have written, or more")
			}
			if !bytes.Equal(contents(t, old), wantOld) {
				t.Error("the other buffer has changed")
			}
		}
		exported := exports(t)
		r, err := region.Register(attr(one), pd, pd2)
		if err != nil {
			t.Fatal(err)
		}
		defer closed(t, r)
		if got := registered(t); got != [2]int{2, 2} {
			t.Errorf("%v MRs of the region on the NICs, want 2 on each", got)
		}
		if n := exports(t); n != exported {
			t.Errorf("%d dma-bufs in the kernel, were %d before they were registered", n, exported)
		}
		for _, s := range sides {
			for _, mr := range r.MRs(s.pd) {
				if mr.PD() != s.pd {
					t.Errorf("an MR of %s belongs to %s", s.name, mr.PD().Context().Name())
				}
			}
		}
		crosses(r, one, two, 10)
		old := [2]uint32{r.MRs(pd)[0].RKey(), r.MRs(pd2)[0].RKey()}
		if err := r.Rereg(attr(two)); err != nil {
			t.Fatal(err)
		}
		if got := registered(t); got != [2]int{2, 2} {
			t.Errorf("after Rereg %v MRs of the region on the NICs, want 2 on each", got)
		}
		crosses(r, two, one, 20)
		closed(t, one) // no NIC holds it any more
		for i, s := range sides {
			w := s.p.do(t, ibvfd.SendWR{ID: 1, Op: ibvfd.OpWrite, SGE: sge(s.hmr, 0, 8), RemoteAddr: 1 << 40, RKey: old[i]})
			if w.Status != ibvfd.WCRemAccessErr {
				t.Errorf("the old key on %s: %v", s.name, w.Status)
			}
			if err := s.p.reconnect(); err != nil {
				t.Fatal(err)
			}
		}

		// What one NIC refuses changes nothing on the other.
		gone, err := c.AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		closed(t, gone)
		before := []*ibvfd.MR{r.MRs(pd)[0], r.MRs(pd2)[0]}
		if err := r.Rereg(attr(two), pd, gone); err == nil {
			t.Error("registered with a closed PD")
		}
		if got := registered(t); got != [2]int{2, 2} || r.MRs(pd)[0] != before[0] || r.MRs(pd2)[0] != before[1] {
			t.Errorf("after a refusal %v MRs of the region on the NICs", got)
		}
		// On the second NIC only.
		if err := r.Rereg(attr(two), pd2); err != nil {
			t.Fatal(err)
		}
		if got := registered(t); got != [2]int{0, 2} || r.MRs(pd) != nil {
			t.Errorf("on one NIC: %v MRs of the region", got)
		}
		closed(t, r)
		if got := registered(t); got != [2]int{} {
			t.Errorf("closed: %v MRs of the region", got)
		}
	})
}

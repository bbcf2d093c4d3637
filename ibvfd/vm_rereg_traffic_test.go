// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// traffic is WRITEs to an MR, several in flight, each to a slot of its own, while
// another goroutine changes the MR.
type traffic struct {
	pair *pair
	host *hostmem.Buf // the source of the WRITEs
	hmr  *ibvfd.MR
	mr   *ibvfd.MR
	// places are where the MR may be, each of slots*slotSize bytes, and held is what
	// they hold.
	places []io.ReaderAt
	held   [][]byte
	// refusable is whether a WRITE may end in a remote access error.
	refusable bool

	serial           uint64
	flights          int // in the middle of which the MR was changed
	arrived, refused int
	went             map[uint32][]int // under which key how many arrived in which place

	stop     chan struct{}
	finished chan error
	midway   chan struct{}
	idle     chan chan struct{}
}

const slots, slotSize = 8, 8192

func newTraffic(t *testing.T, pd *ibvfd.PD, mr *ibvfd.MR, refusable bool, places ...io.ReaderAt) *traffic {
	t.Helper()
	f := &traffic{pair: connectOne(t, pd, ibvfd.QPAttr{SendDepth: slots}), mr: mr, places: places, refusable: refusable, went: map[uint32][]int{}, midway: make(chan struct{})}
	f.host, f.hmr = hostMR(t, pd, slots*slotSize)
	for _, p := range places {
		all := make([]byte, slots*slotSize)
		if _, err := p.ReadAt(all, 0); err != nil {
			t.Fatal(err)
		}
		f.held = append(f.held, all)
	}
	return f
}

// flight posts a WRITE to each slot, each with the keys that the MR has just then,
// and compares what the places hold once all of them have completed.
func (f *traffic) flight(ctx context.Context) error {
	src := f.host.Bytes()
	for i := 0; i < len(src); i += 8 { // no word is there twice
		f.serial++
		binary.NativeEndian.PutUint64(src[i:], f.serial*0x9e3779b97f4a7c15)
	}
	var keys [slots]uint32
	for i := range slots {
		s := f.mr.State()
		keys[i] = s.RKey
		wr := ibvfd.SendWR{ID: uint64(i), Op: ibvfd.OpWrite, Flags: ibvfd.SendSignaled, SGE: sge(f.hmr, i*slotSize, slotSize), RemoteAddr: s.IOVA + uint64(i)*slotSize, RKey: s.RKey}
		if n, err := f.pair.a.PostSend([]ibvfd.SendWR{wr}); n != 1 || err != nil {
			return fmt.Errorf("PostSend: %d, %w", n, err)
		}
		if i+1 != slots/2 {
			continue
		}
		select {
		case f.midway <- struct{}{}: // the other goroutine is about to change the MR
			if f.flights++; f.flights%2 == 0 {
				runtime.Gosched() // and does so before the rest is posted
			}
		default:
		}
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	good := slots // so many, and those behind are flushed
	for done := 0; done < slots; {
		n, err := f.pair.cq.PollUntil(ctx, f.pair.wc)
		if err != nil {
			return err
		}
		for _, c := range f.pair.wc[:n] {
			want := ibvfd.WCSuccess
			switch {
			case done > good:
				want = ibvfd.WCWRFlushErr
			case f.refusable && c.Status == ibvfd.WCRemAccessErr:
				want, good = c.Status, done
			}
			if c.ID != uint64(done) || c.Status != want {
				return fmt.Errorf("WRITE %d, refusable %v: %+v, want %v", done, f.refusable, c, want)
			}
			done++
		}
	}
	if good < slots {
		if err := f.pair.reconnect(); err != nil {
			return err
		}
	}
	f.arrived += good
	f.refused += slots - good
	return f.compare(keys[:], good)
}

// compare: each of the first good WRITEs has arrived in exactly one of the places,
// every byte of it, and has left the others alone. Of those that failed there may be
// something in one of them: a NIC may find out in the middle.
func (f *traffic) compare(keys []uint32, good int) error {
	now := make([][]byte, len(f.places))
	for p, place := range f.places {
		now[p] = make([]byte, slots*slotSize)
		if _, err := place.ReadAt(now[p], 0); err != nil {
			return err
		}
	}
	for i, key := range keys {
		slot := func(b []byte) []byte { return b[i*slotSize : (i+1)*slotSize] }
		sent, changed := slot(f.host.Bytes()), 0
		for p := range f.places {
			is, was := slot(now[p]), slot(f.held[p])
			if bytes.Equal(is, was) {
				continue
			}
			changed++
			for k := range is {
				if is[k] != sent[k] && (i < good || is[k] != was[k]) {
					return fmt.Errorf("WRITE %d, failed %v: byte %d of place %d is %#x, was %#x, and %#x was written", i, i >= good, k, p, is[k], was[k], sent[k])
				}
			}
			if i < good {
				if f.went[key] == nil {
					f.went[key] = make([]int, len(f.places))
				}
				f.went[key][p]++
			}
		}
		if changed > 1 || changed == 0 && i < good {
			return fmt.Errorf("WRITE %d, failed %v: it is in %d of %d places", i, i >= good, changed, len(f.places))
		}
	}
	f.held = now
	return nil
}

// start has it run until end.
func (f *traffic) start(t *testing.T) {
	t.Helper()
	f.stop, f.finished, f.idle = make(chan struct{}), make(chan error, 1), make(chan chan struct{})
	ctx := t.Context()
	go func() {
		for {
			select {
			case <-f.stop:
				f.finished <- nil
				return
			case resume := <-f.idle:
				<-resume
			default:
			}
			if err := f.flight(ctx); err != nil {
				f.finished <- err
				return
			}
		}
	}()
}

// underWay returns once a part of the WRITEs is posted, before any has been waited for.
func (f *traffic) underWay(t *testing.T) {
	t.Helper()
	select {
	case <-f.midway:
	case err := <-f.finished:
		t.Fatal(err)
	}
}

// between does something while nothing is in flight.
func (f *traffic) between(t *testing.T, do func() error) {
	t.Helper()
	resume := make(chan struct{})
	select {
	case f.idle <- resume:
	case err := <-f.finished:
		t.Fatal(err)
	}
	defer close(resume)
	if err := do(); err != nil {
		t.Fatal(err)
	}
}

func (f *traffic) end(t *testing.T) {
	t.Helper()
	close(f.stop)
	if err := <-f.finished; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d WRITEs arrived, %d failed; %d changes were in the middle of some", f.arrived, f.refused, f.flights)
	if f.flights == 0 {
		t.Error("nothing was in flight when the MR was changed")
	}
}

// settled sends once more, while nothing changes.
func (f *traffic) settled(t *testing.T, what string, arrives bool) {
	t.Helper()
	arrived := f.arrived
	if err := f.flight(t.Context()); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	want := 0
	if arrives {
		want = slots
	}
	if n := f.arrived - arrived; n != want {
		t.Errorf("%s: %d WRITEs of %d have arrived, want %d", what, n, slots, want)
	}
}

// While the MR goes back and forth between two buffers, WRITEs are in flight: each
// arrives in the buffer that its key stands for, and not in the other. With KeepOld
// none of them fails.
func TestVMReregUnderTraffic(t *testing.T) {
	pd := openPD(t)
	bufs := [2]*gpualloc.Buffer{alloc(t, exporter, slots*slotSize, gpualloc.Options{}), alloc(t, exporter, slots*slotSize, gpualloc.Options{})}
	memory := func(i int) ibvfd.MRAttr {
		return ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, bufs[i%2]), Length: slots * slotSize, Access: allRemote, Owner: bufs[i%2]}
	}
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprintf("keep=%v", keep), func(t *testing.T) {
			mr, err := pd.RegMR(memory(0))
			if err != nil {
				t.Fatal(err)
			}
			defer closed(t, mr)
			f := newTraffic(t, pd, mr, !keep, bufs[0], bufs[1])
			// Which buffer a key was ever of: a driver may give the same key again.
			of := map[uint32][2]bool{}
			note := func(i int) {
				k := of[mr.RKey()]
				k[i%2] = true
				of[mr.RKey()] = k
			}
			note(0)
			rounds := testenv.Count(100)
			f.start(t)
			for i := range rounds {
				f.underWay(t)
				if err := mr.Rereg(ibvfd.ReregAttr{Change: ibvfd.ReregMemory, MRAttr: memory(i + 1), KeepOld: keep}); err != nil {
					t.Fatal(err)
				}
				note(i + 1)
				if keep { // until nothing under the old key is in flight
					f.between(t, mr.DropOld)
				}
			}
			f.end(t)
			for i := range 2 { // each of the two is the MR's, at last
				at := rounds + 1 + i
				if err := mr.Rereg(ibvfd.ReregAttr{Change: ibvfd.ReregMemory, MRAttr: memory(at)}); err != nil {
					t.Fatal(err)
				}
				note(at)
				f.settled(t, "at the end", true)
			}
			for key, went := range f.went {
				for place, n := range went {
					if n > 0 && !of[key][place] {
						t.Errorf("%d WRITEs under key %#x arrived in buffer %d, which never had it", n, key, place)
					}
				}
			}
		})
	}
}

// Rights and PD change in place, back and forth, while WRITEs are in flight: the key
// stays, what the change does not concern goes on undisturbed, and what it does
// arrives or is refused.
//
//testbed:kernel 7.2 6.12
func TestVMReregInPlaceUnderTraffic(t *testing.T) {
	pd := openPD(t)
	pd2, err := pd.Context().AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, pd2) })
	access := func(a ibvfd.Access) ibvfd.ReregAttr {
		return ibvfd.ReregAttr{Change: ibvfd.ReregAccess, MRAttr: ibvfd.MRAttr{Access: a}, InPlace: ibvfd.InPlaceOnly}
	}
	moveTo := func(pd *ibvfd.PD) ibvfd.ReregAttr {
		return ibvfd.ReregAttr{Change: ibvfd.ReregPD, PD: pd, InPlace: ibvfd.InPlaceOnly}
	}
	for _, c := range []struct {
		name      string
		away      ibvfd.ReregAttr
		back      ibvfd.ReregAttr
		refusable bool
	}{
		{"other rights", access(remoteWrite), access(allRemote), false},
		{"the right to write", access(localWrite | ibvfd.AccessRemoteRead), access(allRemote), true},
		{"PD", moveTo(pd2), moveTo(pd), true},
	} {
		for _, spec := range []string{hostSpec, exporter} {
			if spec != hostSpec && !dmabufKeepsKeys(t) {
				continue
			}
			t.Run(c.name+"/"+spec, func(t *testing.T) {
				to := newPlace(t, pd, spec)
				before := to.mr.State()
				change := func(attr ibvfd.ReregAttr) {
					t.Helper()
					if err := to.mr.Rereg(attr); err != nil {
						t.Fatal(err)
					}
					if s := to.mr.State(); s.RKey != before.RKey || s.LKey != before.LKey || s.IOVA != before.IOVA {
						t.Fatalf("%+v became %+v", before, s)
					}
				}
				f := newTraffic(t, pd, to.mr, c.refusable, to.io)
				f.start(t)
				for range testenv.Count(50) {
					f.underWay(t)
					change(c.away)
					f.underWay(t)
					change(c.back)
				}
				f.end(t)
				f.settled(t, "changed back", true)
				change(c.away)
				f.settled(t, "changed", !c.refusable)
				change(c.back)
				f.settled(t, "changed back again", true)
			})
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package mrcache

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
)

func get(t *testing.T, c *Cache, pd *ibvfd.PD, b *fakeBuf, off, length uint64, a ibvfd.Access) Ref {
	t.Helper()
	ref, err := c.get(pd, b, Range{off, length, a})
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// What hits, and what does not.
func TestHits(t *testing.T) {
	d, c := newDevice(Config{MaxEntries: 100, MaxBytes: 1 << 40})
	a, b := &fakeBuf{inode: 1, size: size}, &fakeBuf{inode: 2, size: size}
	first := get(t, c, pd1, a, 1000, 1000, 1)
	for _, x := range []struct {
		name   string
		pd     *ibvfd.PD
		buf    *fakeBuf
		off, n uint64
		access ibvfd.Access
		hit    bool
	}{
		{"the same", pd1, a, 1000, 1000, 1, true},
		{"by another descriptor of the buffer", pd1, &fakeBuf{inode: 1, size: size}, 1000, 1000, 1, true},
		{"the first byte", pd1, a, 1000, 1, 1, true},
		{"the last byte", pd1, a, 1999, 1, 1, true},
		{"another PD", pd2, a, 1000, 1000, 1, false},
		{"another buffer", pd1, b, 1000, 1000, 1, false},
		{"more access", pd1, a, 1000, 1000, 3, false},
		{"less access", pd1, a, 1000, 1000, 0, false},
		{"a byte before", pd1, a, 999, 2, 1, false},
		{"a byte behind", pd1, a, 1999, 2, 1, false},
	} {
		made := d.made
		ref := get(t, c, x.pd, x.buf, x.off, x.n, x.access)
		if hit := d.made == made; hit != x.hit {
			t.Errorf("%s: hit is %v", x.name, hit)
		}
		if err := d.check(ref, x.pd, x.buf.inode, Range{x.off, x.n, x.access}); err != nil {
			t.Errorf("%s: %v", x.name, err)
		}
		ref.Release()
		ref.Release() // once is enough, and twice no harm
	}
	if s := c.Stats(); s.Used != 1 || s.Hits != 4 || s.Misses != 7 || s.Entries != 7 {
		t.Errorf("%+v", s)
	}
	first.Release()
	d.done(t, c)
	d.done(t, c)
}

// A larger region takes the place of those it contains; those in use live on.
func TestLargerRegion(t *testing.T) {
	d, c := newDevice(Config{MaxEntries: 10, MaxBytes: 1 << 40})
	a := &fakeBuf{inode: 1, size: size}
	unused, used := get(t, c, pd1, a, 0, 10, 0), get(t, c, pd1, a, 20, 10, 0)
	unused.Release()
	all := get(t, c, pd1, a, 0, 100, 0)
	if len(d.live) != 2 {
		t.Errorf("%d regions, want the large one and the used one", len(d.live))
	}
	if err := d.check(used, pd1, 1, Range{20, 10, 0}); err != nil {
		t.Error(err)
	}
	part := get(t, c, pd1, a, 20, 10, 0)
	if part.LKey() != all.LKey() {
		t.Error("the large region is not the one that is hit")
	}
	used.Release()
	if len(d.live) != 1 {
		t.Errorf("%d regions, want the large one", len(d.live))
	}
	part.Release()
	all.Release()
	d.done(t, c)
}

func TestBadRequests(t *testing.T) {
	d, c := newDevice(Config{MaxEntries: 10, MaxBytes: 1 << 40})
	a := &fakeBuf{inode: 1, size: size}
	for _, r := range []Range{{0, 0, 0}, {0, size + 1, 0}, {size, 1, 0}, {^uint64(0), 1, 0}, {1, ^uint64(0), 0}} {
		if _, err := c.get(pd1, a, r); !errors.Is(err, dmabuf.ErrRange) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	d.fail = unix.EOPNOTSUPP
	if _, err := c.get(pd1, a, Range{0, 1, 0}); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Error(err)
	}
	d.fail = nil
	ref := get(t, c, pd1, a, 0, 1, 0)
	a.closed = true
	if _, err := c.get(pd1, a, Range{0, 1, 0}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed Buf hits: %v", err)
	}
	ref.Release()
	d.done(t, c)
	a.closed = false
	if _, err := c.get(pd1, a, Range{0, 1, 0}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed cache: %v", err)
	}
	var none Ref
	none.Release()
}

// The bounds hold; the least recently used goes first, and what is in use never.
func TestBounds(t *testing.T) {
	d, c := newDevice(Config{MaxEntries: 3, MaxBytes: 1000})
	a := &fakeBuf{inode: 1, size: size}
	x, y, z := get(t, c, pd1, a, 0, 100, 0), get(t, c, pd1, a, 100, 100, 0), get(t, c, pd1, a, 200, 100, 0)
	if _, err := c.get(pd1, a, Range{300, 100, 0}); !errors.Is(err, dmabuf.ErrLimit) || !strings.Contains(err.Error(), "3 of 3 regions, 3 of them in use") {
		t.Errorf("a fourth: %v", err)
	}
	y.Release()
	x.Release()
	z.Release()
	again := get(t, c, pd1, a, 100, 100, 0) // y is not the oldest now
	again.Release()
	w := get(t, c, pd1, a, 300, 100, 0) // instead of x
	made := d.made
	for _, off := range []uint64{100, 200, 300} {
		ref := get(t, c, pd1, a, off, 100, 0)
		ref.Release()
	}
	if d.made != made {
		t.Error("another than the oldest was evicted")
	}
	if _, err := c.get(pd1, a, Range{0, 1001, 0}); !errors.Is(err, dmabuf.ErrLimit) {
		t.Errorf("more than the cache holds: %v", err)
	}
	big := get(t, c, pd1, a, 1000, 900, 0) // 900 and w's 100: the others must go
	if s := c.Stats(); s.Entries != 2 || s.Bytes != 1000 || s.Evictions != 3 {
		t.Errorf("%+v", s)
	}
	if _, err := c.get(pd1, a, Range{0, 1, 0}); !errors.Is(err, dmabuf.ErrLimit) {
		t.Errorf("a byte more: %v", err)
	}
	if err := c.Close(); !errors.Is(err, dmabuf.ErrInUse) {
		t.Errorf("closing what is in use: %v", err)
	}
	big.Release()
	w.Release()
	d.done(t, c)
}

// Regions that the kernel does not let go of count, and are tried again.
func TestRefusedDeregistration(t *testing.T) {
	d, c := newDevice(Config{MaxEntries: 2, MaxBytes: 1000})
	a := &fakeBuf{inode: 1, size: size}
	for off := range uint64(2) {
		ref := get(t, c, pd1, a, off, 1, 0)
		ref.Release()
	}
	d.refuse = true
	if _, err := c.get(pd1, a, Range{9, 1, 0}); !errors.Is(err, dmabuf.ErrLimit) || !strings.Contains(err.Error(), "does not let go of 2") {
		t.Errorf("no room: %v", err)
	}
	if err := c.Flush(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("Flush: %v", err)
	}
	d.refuse = false
	ref := get(t, c, pd1, a, 9, 1, 0)
	d.refuse = true
	ref.Release()
	if err := c.Close(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("Close: %v", err)
	}
	d.refuse = false
	d.done(t, c)
}

func TestInvalidate(t *testing.T) {
	d, c := newDevice(Config{MaxEntries: 100, MaxBytes: 1 << 40})
	a, b := &fakeBuf{inode: 1, size: size}, &fakeBuf{inode: 2, size: size}
	unused, used, covered := get(t, c, pd1, a, 0, 10, 0), get(t, c, pd2, a, 0, 10, 0), get(t, c, pd1, a, 100, 10, 0)
	large, other := get(t, c, pd1, a, 90, 100, 0), get(t, c, pd1, b, 0, 10, 0)
	unused.Release()
	large.Release()
	if n := c.Invalidate(1); n != 2 {
		t.Errorf("%d are still used, want 2", n)
	}
	if n := c.Invalidate(1) + c.Invalidate(99); n != 0 {
		t.Errorf("%d again", n)
	}
	if !used.Dead() || !covered.Dead() || other.Dead() || len(d.live) != 3 {
		t.Errorf("dead: %v, %v, %v; %d regions, want 3", used.Dead(), covered.Dead(), other.Dead(), len(d.live))
	}
	made := d.made
	again := get(t, c, pd2, a, 0, 10, 0)
	if d.made == made || again.Dead() {
		t.Error("a dead region was returned")
	}
	used.Release()
	covered.Release()
	if len(d.live) != 2 {
		t.Errorf("%d regions, want 2", len(d.live))
	}
	again.Release()
	other.Release()
	d.done(t, c)
}

// An operation's error makes the regions unusable where it can be theirs, and
// those of no other buffer.
func TestFailed(t *testing.T) {
	for status, want := range map[ibvfd.WCStatus]bool{
		ibvfd.WCLocProtErr: true, ibvfd.WCLocAccessErr: true, ibvfd.WCLocQPOpErr: true, ibvfd.WCRemAccessErr: true,
		ibvfd.WCRemOpErr: true, ibvfd.WCWRFlushErr: true, ibvfd.WCFatalErr: true, ibvfd.WCGeneralErr: true,
		ibvfd.WCRetryExcErr: false, ibvfd.WCRNRRetryExcErr: false, ibvfd.WCLocLenErr: false, ibvfd.WCRemInvReqErr: false,
	} {
		d, c := newDevice(Config{MaxEntries: 100, MaxBytes: 1 << 40})
		a, b := &fakeBuf{inode: 1, size: size}, &fakeBuf{inode: 2, size: size}
		used, same, other := get(t, c, pd1, a, 0, 10, 0), get(t, c, pd2, a, 5, 10, 1), get(t, c, pd1, b, 0, 10, 0)
		err := fmt.Errorf("write: %w", &ibvfd.WCError{Status: status})
		if got := used.Failed(err); got != want || used.Dead() != want || same.Dead() != want || other.Dead() {
			t.Errorf("%v: %v, dead %v, %v and %v", status, got, used.Dead(), same.Dead(), other.Dead())
		}
		again := get(t, c, pd1, a, 0, 10, 0)
		if (again.LKey() != used.LKey()) != want {
			t.Errorf("%v: a dead region was returned, or a good one was not", status)
		}
		// What is known already does no harm to what has come since.
		if got := used.Failed(err); got != want || again.Dead() {
			t.Errorf("%v, again: %v, dead %v", status, got, again.Dead())
		}
		for _, r := range []*Ref{&used, &same, &other, &again} {
			r.Release()
		}
		if used.Failed(err) {
			t.Error("a Ref that was released failed")
		}
		d.done(t, c)
	}
	d, c := newDevice(Config{MaxEntries: 100, MaxBytes: 1 << 40})
	ref := get(t, c, pd1, &fakeBuf{inode: 1, size: size}, 0, 10, 0)
	if ref.Failed(nil) || ref.Failed(os.ErrClosed) || ref.Dead() {
		t.Error("what is no completion's error counts")
	}
	ref.Release()
	d.done(t, c)
}

// A buffer that is invalidated while it is registered is registered again: what
// began before may be of the memory that is gone.
func TestInvalidateDuringRegistration(t *testing.T) {
	d, c := newDevice(Config{MaxEntries: 100, MaxBytes: 1 << 40})
	a := &fakeBuf{inode: 1, size: size}
	times := 3
	d.during = func() {
		if times--; times > 0 {
			c.Invalidate(1)
		}
	}
	ref := get(t, c, pd1, a, 0, 10, 0)
	if ref.Dead() || d.made != 3 || len(d.live) != 1 {
		t.Errorf("dead is %v after %d registrations, %d regions", ref.Dead(), d.made, len(d.live))
	}
	ref.Release()
	d.done(t, c)
}

func TestDrop(t *testing.T) {
	d, c := newDevice(Config{MaxEntries: 100, MaxBytes: 1 << 40})
	a := &fakeBuf{inode: 1, size: size}
	x, y, z := get(t, c, pd1, a, 0, 10, 0), get(t, c, pd1, a, 50, 10, 0), get(t, c, pd2, a, 0, 10, 0)
	y.Release()
	z.Release()
	if err := c.Drop(pd1); !errors.Is(err, dmabuf.ErrInUse) || len(d.live) != 2 {
		t.Errorf("%v, %d regions, want ErrInUse and 2", err, len(d.live))
	}
	x.Release()
	if err := c.Drop(pd1); err != nil || len(d.live) != 1 {
		t.Errorf("%v, %d regions, want 1", err, len(d.live))
	}
	d.done(t, c)
}

// What the kernel does not let go of is another PD's matter, unless it is the
// same's.
func TestDropOfStuckRegions(t *testing.T) {
	d, c := newDevice(Config{MaxEntries: 100, MaxBytes: 1 << 40})
	a := &fakeBuf{inode: 1, size: size}
	x, y := get(t, c, pd1, a, 0, 10, 0), get(t, c, pd2, a, 0, 10, 0)
	x.Release()
	y.Release()
	d.refuse = true
	if err := c.Drop(pd1); !errors.Is(err, unix.EBUSY) {
		t.Errorf("the PD of a stuck region: %v", err)
	}
	tried := 0
	d.closing = func() { tried++ }
	if err := c.Drop(new(ibvfd.PD)); err != nil || tried != 0 {
		t.Errorf("another PD, after %d tries: %v", tried, err)
	}
	d.closing, d.refuse = nil, false
	if err := c.Drop(pd2); err != nil || len(d.live) != 1 {
		t.Errorf("%v, %d regions, want the stuck one", err, len(d.live))
	}
	if err := c.Drop(pd1); err != nil || len(d.live) != 0 {
		t.Errorf("%v, %d regions, want none", err, len(d.live))
	}
	d.done(t, c)
}

// Regions that an invalidated buffer's users have still, and those that others
// are deregistering, are the PD's too.
func TestDropOfWhatNoGetFinds(t *testing.T) {
	d, c := newDevice(Config{MaxEntries: 1, MaxBytes: 1 << 40})
	a := &fakeBuf{inode: 1, size: size}
	x := get(t, c, pd1, a, 0, 10, 0)
	c.Invalidate(1)
	if err := c.Drop(pd1); !errors.Is(err, dmabuf.ErrInUse) {
		t.Errorf("a region that is dead and in use: %v", err)
	}
	if err := c.Drop(pd2); err != nil {
		t.Errorf("a PD without regions: %v", err)
	}
	x.Release()
	if err := c.Drop(pd1); err != nil {
		t.Error(err)
	}
	y := get(t, c, pd1, a, 0, 10, 0)
	y.Release()
	evicting, goOn, evicted := make(chan struct{}), make(chan struct{}), make(chan struct{})
	d.closing = func() { close(evicting); <-goOn }
	go func() {
		ref, err := c.get(pd2, a, Range{0, 10, 0}) // in the place of y
		if err != nil {
			t.Error(err)
		}
		ref.Release()
		close(evicted)
	}()
	<-evicting
	dropped := make(chan error)
	go func() { dropped <- c.Drop(pd1) }()
	for range 100 {
		runtime.Gosched()
		select {
		case err := <-dropped:
			t.Fatalf("Drop = %v while the region is deregistered", err)
		default:
		}
	}
	close(goOn)
	if err := <-dropped; err != nil {
		t.Error(err)
	}
	<-evicted
	d.closing = nil
	if err := c.Drop(pd2); err != nil || len(c.pds) != 0 {
		t.Errorf("%v, shares of %d PDs are left", err, len(c.pds))
	}
	d.done(t, c)
}

// Who waits for another's registration does not get to hear that the other has
// closed its Buf.
func TestAnothersBufIsClosed(t *testing.T) {
	d, c := newDevice(Config{MaxEntries: 100, MaxBytes: 1 << 40})
	mine, others := &fakeBuf{inode: 1, size: size}, &fakeBuf{inode: 1, size: size}
	d.fail = os.ErrClosed
	var once sync.Once
	var all sync.WaitGroup
	d.during = func() {
		once.Do(func() {
			all.Go(func() {
				ref, err := c.get(pd1, mine, Range{0, 10, 0})
				if err != nil {
					t.Errorf("an open Buf: %v", err)
				}
				ref.Release()
			})
			for c.Stats().Waits < 1 {
				runtime.Gosched()
			}
			d.mu.Lock()
			d.failOf = others
			d.mu.Unlock()
		})
	}
	if _, err := c.get(pd1, others, Range{0, 10, 0}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed Buf: %v", err)
	}
	all.Wait()
	d.done(t, c)
}

// One registration for many who ask at once; its failure is that of all who
// asked for the same, and not of who asked for a part.
func TestSingleFlight(t *testing.T) {
	for _, fail := range []error{nil, unix.ENOMEM} {
		d, c := newDevice(Config{MaxEntries: 100, MaxBytes: 1 << 40})
		a := &fakeBuf{inode: 1, size: size}
		whole, part := Range{0, 100, 0}, Range{10, 10, 0}
		d.fail, d.failAt = fail, whole
		const others = 8
		var all sync.WaitGroup
		var once sync.Once
		d.during = func() {
			once.Do(func() {
				for i := range others {
					all.Go(func() {
						r, want := part, error(nil)
						if i%2 == 1 {
							r, want = whole, fail
						}
						ref, err := c.get(pd1, a, r)
						if !errors.Is(err, want) {
							t.Errorf("%+v: %v, want %v", r, err, want)
						}
						ref.Release()
					})
				}
				for c.Stats().Waits < others {
					runtime.Gosched()
				}
			})
		}
		ref, err := c.get(pd1, a, whole)
		if !errors.Is(err, fail) {
			t.Error(err)
		}
		ref.Release()
		all.Wait()
		if d.made != 1 {
			t.Errorf("%d registrations, want 1", d.made)
		}
		d.done(t, c)
	}
}

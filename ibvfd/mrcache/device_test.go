// SPDX-License-Identifier: Apache-2.0

package mrcache

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// fakeBuf is a buffer that exists in tests only.
type fakeBuf struct {
	inode  uint64
	size   int64
	closed bool
}

func (b *fakeBuf) Inode() uint64 { return b.inode }
func (b *fakeBuf) Size() int64   { return b.size }
func (b *fakeBuf) Closed() bool  { return b.closed }

// device registers fakeBufs and keeps the books.
type device struct {
	mu      sync.Mutex
	limit   Config
	live    map[*fakeMR]bool
	bytes   uint64
	made    uint32
	now     map[string]int // registrations under way, by what they register: the buffer's gen, -1 if it was in doubt
	fail    error
	failAt  Range          // the only one to fail, unless zero
	failOf  buffer         // likewise
	refuse  bool           // to deregister
	gen     map[uint64]int // of a buffer: counts its invalidations, from their start
	busy    map[uint64]int // invalidations under way
	trouble []string
	during  func() // runs in the middle of a registration
	closing func() // runs before a deregistration
}

type fakeMR struct {
	d     *device
	state ibvfd.MRState
	inode uint64
	gen   int
}

func newDevice(cfg Config) (*device, *Cache) {
	d := &device{limit: cfg, live: map[*fakeMR]bool{}, now: map[string]int{}, gen: map[uint64]int{}, busy: map[uint64]int{}}
	return d, newCache(cfg, d.register)
}

func (d *device) complain(format string, args ...any) {
	d.trouble = append(d.trouble, fmt.Sprintf(format, args...))
}

func (d *device) register(pd *ibvfd.PD, buf buffer, r Range) (region, error) {
	d.mu.Lock()
	what := fmt.Sprint(pd == pd2, buf.Inode(), r)
	gen, during := d.gen[buf.Inode()], d.during
	// Not while one is under way that was invalidated.
	if before, ok := d.now[what]; ok && before == gen {
		d.complain("%s is registered twice at once", what)
	}
	d.now[what] = gen
	if d.busy[buf.Inode()] > 0 {
		d.now[what] = -1
	}
	d.mu.Unlock()
	if during != nil {
		during()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.now, what)
	if d.fail != nil && (d.failAt == Range{} || d.failAt == r) && (d.failOf == nil || d.failOf == buf) {
		return nil, d.fail
	}
	d.made++
	m := &fakeMR{d, ibvfd.MRState{PD: pd, LKey: d.made, RKey: ^d.made, IOVA: r.Offset, Length: r.Length, Access: r.Access}, buf.Inode(), gen}
	d.live[m] = true
	if d.bytes += r.Length; len(d.live) > d.limit.MaxEntries || d.bytes > d.limit.MaxBytes {
		d.complain("%d regions with %d bytes are over the limit of %+v", len(d.live), d.bytes, d.limit)
	}
	return m, nil
}

// invalidate is Cache.Invalidate, and returns the buffer's gen: what is
// registered afterwards has at least that.
func (d *device) invalidate(c *Cache, inode uint64) int {
	d.mu.Lock()
	d.gen[inode]++
	gen := d.gen[inode]
	d.busy[inode]++
	d.mu.Unlock()
	c.Invalidate(inode)
	d.mu.Lock()
	d.busy[inode]--
	d.mu.Unlock()
	return gen
}

func (m *fakeMR) State() ibvfd.MRState { return m.state }

func (m *fakeMR) Close() error {
	if m.d.closing != nil {
		m.d.closing()
	}
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	if m.d.refuse {
		return unix.EBUSY
	}
	if !m.d.live[m] {
		m.d.complain("closed twice: %+v", m.state)
	}
	delete(m.d.live, m)
	m.d.bytes -= m.state.Length
	return nil
}

// check holds a Ref against what was asked for.
func (d *device) check(ref Ref, pd *ibvfd.PD, inode uint64, r Range) error {
	m := ref.e.mr.(*fakeMR)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch s := m.state; {
	case !d.live[m]:
		return errors.New("the region is deregistered")
	case m.inode != inode || s.PD != pd || s.Access != r.Access:
		return errors.New("the region is of something else")
	case s.IOVA > r.Offset || s.IOVA+s.Length < r.Offset+r.Length:
		return errors.New("the region does not contain the range")
	case ref.Addr() != r.Offset || ref.LKey() != s.LKey || ref.RKey() != s.RKey:
		return errors.New("the keys or the address are another region's")
	}
	return nil
}

func (d *device) done(t *testing.T, c *Cache) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if len(d.live) != 0 || d.bytes != 0 {
		t.Errorf("%d regions with %d bytes left behind", len(d.live), d.bytes)
	}
	if s := c.Stats(); s.Entries != 0 || s.Used != 0 || s.Bytes != 0 || len(c.buffers) != 0 {
		t.Errorf("the closed cache has %+v, %d buffers", s, len(c.buffers))
	}
	for _, x := range d.trouble {
		t.Error(x)
	}
}

var pd1, pd2 = new(ibvfd.PD), new(ibvfd.PD)

const size = 1 << 20

// SPDX-License-Identifier: Apache-2.0

package mrcache

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
)

// model is what the cache must do, as plainly as it can be said: a list of
// regions, looked through from the start.
type model struct {
	cfg  Config
	all  []*modelled
	tick int
}

type modelled struct {
	inode    uint64
	pd       *ibvfd.PD
	r        Range
	refs     int
	released int  // when it was last
	lost     bool // not to be returned: invalidated, or a larger one is there
	key      uint32
}

func (m *modelled) contains(r Range) bool {
	return m.r.Offset <= r.Offset && r.Offset+r.Length <= m.r.Offset+m.r.Length
}

func (m *model) get(pd *ibvfd.PD, inode uint64, r Range, key uint32) (_ *modelled, hit bool, ok bool) {
	var best *modelled
	for _, x := range m.all {
		if !x.lost && x.inode == inode && x.pd == pd && x.r.Access == r.Access && x.contains(r) && (best == nil || x.r.Offset > best.r.Offset) {
			best = x
		}
	}
	if best != nil {
		best.refs++
		return best, true, true
	}
	for {
		total := r.Length
		for _, x := range m.all {
			total += x.r.Length
		}
		if len(m.all) < m.cfg.MaxEntries && total <= m.cfg.MaxBytes {
			break
		}
		var oldest *modelled
		for _, x := range m.all {
			if x.refs == 0 && (oldest == nil || x.released < oldest.released) {
				oldest = x
			}
		}
		if oldest == nil || r.Length > m.cfg.MaxBytes {
			return nil, false, false
		}
		m.remove(oldest)
	}
	x := &modelled{inode: inode, pd: pd, r: r, refs: 1, key: key}
	for _, old := range slices.Clone(m.all) {
		if !old.lost && old.inode == inode && old.pd == pd && old.r.Access == r.Access && x.contains(old.r) {
			m.lose(old)
		}
	}
	m.all = append(m.all, x)
	return x, false, true
}

func (m *model) remove(x *modelled) {
	m.all = slices.DeleteFunc(m.all, func(y *modelled) bool { return y == x })
}

func (m *model) lose(x *modelled) {
	if x.lost = true; x.refs == 0 {
		m.remove(x)
	}
}

func (m *model) release(x *modelled) {
	m.tick++
	x.released = m.tick
	if x.refs--; x.refs == 0 && x.lost {
		m.remove(x)
	}
}

// Thousands of random histories, step by step against the model.
func TestAgainstModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	for history := range 3000 {
		if err := oneHistory(rand.New(rand.NewPCG(seed, uint64(history)))); err != nil {
			t.Fatalf("seed %#x, history %d: %v", seed, history, err)
		}
	}
}

func oneHistory(rnd *rand.Rand) error {
	cfg := Config{MaxEntries: 1 + rnd.IntN(12), MaxBytes: uint64(20 + rnd.IntN(400))}
	d, c := newDevice(cfg)
	m := &model{cfg: cfg}
	type use struct {
		ref Ref
		x   *modelled
	}
	var uses []use
	span := 1 + rnd.IntN(60)
	pds := []*ibvfd.PD{pd1, pd2}
	for step := range 60 {
		switch k := rnd.IntN(20); {
		case k < 11:
			pd, inode := pds[rnd.IntN(2)], uint64(rnd.IntN(2))
			r := Range{uint64(rnd.IntN(span)), uint64(1 + rnd.IntN(span)), ibvfd.Access(rnd.IntN(2))}
			made := d.made
			ref, err := c.get(pd, &fakeBuf{inode: inode, size: size}, r)
			x, hit, ok := m.get(pd, inode, r, d.made)
			switch {
			case ok != (err == nil), !ok && !errors.Is(err, dmabuf.ErrLimit):
				return fmt.Errorf("step %d: get %+v: %v, the model says %v", step, r, err, ok)
			case !ok:
				continue
			case hit != (d.made == made):
				return fmt.Errorf("step %d: get %+v: the model says hit is %v", step, r, hit)
			case ref.LKey() != x.key:
				return fmt.Errorf("step %d: get %+v: region %d, the model says %d", step, r, ref.LKey(), x.key)
			}
			uses = append(uses, use{ref, x})
		case k < 18 && len(uses) > 0:
			i := rnd.IntN(len(uses))
			uses[i].ref.Release()
			m.release(uses[i].x)
			uses = slices.Delete(uses, i, i+1)
		case k == 18:
			inode, used := uint64(rnd.IntN(2)), 0
			for _, x := range slices.Clone(m.all) {
				if x.inode == inode && (!x.lost || x.refs > 0 && !dead(uses, func(u use) bool { return u.x == x }, func(u use) bool { return u.ref.Dead() })) {
					if x.refs > 0 {
						used++
					}
					m.lose(x)
				}
			}
			if n := c.Invalidate(inode); n != used {
				return fmt.Errorf("step %d: invalidate %d: %d still used, the model says %d", step, inode, n, used)
			}
		case k == 19:
			if err := c.Flush(); err != nil {
				return err
			}
			m.all = slices.DeleteFunc(m.all, func(x *modelled) bool { return x.refs == 0 })
		}
		var bytes uint64
		for _, x := range m.all {
			bytes += x.r.Length
		}
		if s := c.Stats(); s.Entries != len(m.all) || s.Bytes != bytes || len(d.live) != len(m.all) {
			return fmt.Errorf("step %d: %+v with %d live, the model has %d with %d bytes", step, s, len(d.live), len(m.all), bytes)
		}
	}
	for _, u := range uses {
		u.ref.Release()
	}
	if err := c.Close(); err != nil || len(d.live) != 0 || len(d.trouble) != 0 || len(c.buffers) != 0 {
		return fmt.Errorf("at the end: %v, %d live, %v", err, len(d.live), d.trouble)
	}
	return nil
}

// dead reports whether a use that is wanted is of a region that was invalidated
// before.
func dead[U any](uses []U, wanted, isDead func(U) bool) bool {
	i := slices.IndexFunc(uses, wanted)
	return i >= 0 && isDead(uses[i])
}

// Many goroutines do all there is to do. Whatever they see must be right by
// itself: regions in use are registered and the right ones, the bounds hold,
// nothing is registered twice at once, and after Invalidate nothing older comes.
func TestConcurrently(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	cfg := Config{MaxEntries: 20, MaxBytes: 800}
	d, c := newDevice(cfg)
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(worker)))
			pds := []*ibvfd.PD{pd1, pd2}
			var held [3]Ref
			for range 4000 {
				i := rnd.IntN(len(held))
				held[i].Release()
				inode := uint64(rnd.IntN(3))
				switch k := rnd.IntN(100); {
				case k < 5:
					gen := d.invalidate(c, inode) // what is got from here on is new
					r := Range{uint64(rnd.IntN(60)), uint64(1 + rnd.IntN(20)), 0}
					ref, err := c.get(pd1, &fakeBuf{inode: inode, size: size}, r)
					if err == nil && ref.e.mr.(*fakeMR).gen < gen {
						t.Error("a region of before Invalidate was returned after it")
					}
					ref.Release()
				case k < 7:
					if err := c.Flush(); err != nil {
						t.Error(err)
					}
				case k < 8:
					if err := c.Drop(pds[rnd.IntN(2)]); err != nil && !errors.Is(err, dmabuf.ErrInUse) {
						t.Error(err)
					}
				default:
					pd, r := pds[rnd.IntN(2)], Range{uint64(rnd.IntN(60)), uint64(1 + rnd.IntN(20)), ibvfd.Access(rnd.IntN(2))}
					ref, err := c.get(pd, &fakeBuf{inode: inode, size: size}, r)
					if err != nil {
						if !errors.Is(err, dmabuf.ErrLimit) {
							t.Error(err)
						}
						continue
					}
					if err := d.check(ref, pd, inode, r); err != nil {
						t.Errorf("%+v: %v", r, err)
					}
					held[i] = ref
				}
			}
			for i := range held {
				held[i].Release()
			}
		})
	}
	all.Wait()
	d.done(t, c)
}

// The index against a sorted list.
func TestIndex(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 20 {
		var x index
		var plain []*entry
		span := uint64(1 + rnd.IntN(100000))
		for range 3000 {
			start := rnd.Uint64N(span)
			end := start + 1 + rnd.Uint64N(1+span/(1+rnd.Uint64N(3000)))
			contains := func(e *entry) bool { return e.start <= start && end <= e.end }
			want := slices.ContainsFunc(plain, contains)
			if got := x.find(start, end); (got != nil) != want || got != nil && !contains(got) {
				t.Fatalf("find(%d, %d) = %+v, want %v", start, end, got, want)
			}
			if rnd.IntN(3) == 0 && len(plain) > 0 {
				i := rnd.IntN(len(plain))
				x.remove(plain[i])
				plain = slices.Delete(plain, i, i+1)
				continue
			}
			e := &entry{start: start, end: end}
			covered, ok := x.add(e)
			if ok == want {
				t.Fatalf("add(%d, %d): %v", start, end, ok)
			}
			if !ok {
				continue
			}
			n := len(plain)
			plain = slices.DeleteFunc(plain, func(old *entry) bool { return start <= old.start && old.end <= end })
			if len(covered) != n-len(plain) {
				t.Fatalf("add(%d, %d) covers %d, want %d", start, end, len(covered), n-len(plain))
			}
			plain = append(plain, e)
		}
		var walked []*entry
		x.all(func(e *entry) { walked = append(walked, e) })
		if x.count != len(plain) || len(walked) != len(plain) || !slices.IsSortedFunc(walked, func(a, b *entry) int { return int(a.start) - int(b.start) }) {
			t.Fatalf("%d regions, %d walked, want %d in order", x.count, len(walked), len(plain))
		}
	}
}

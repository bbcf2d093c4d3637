// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

func word(t testing.TB, b *gpurdma.Buffer, off int64) uint64 {
	t.Helper()
	return binary.NativeEndian.Uint64(content(t, b)[off:])
}

// Sums of two connections are not lost, and each old value is seen once.
func testFetchAdd(t *testing.T, s *setting) {
	p := s.pair(t)
	theirs := host(t, p.b, 24)
	c2, s2 := p.connect(gpurdma.Config{})
	r1, r2 := p.export(theirs.All(), all), p.exportTo(s2, c2, theirs.All(), all)
	n := testenv.Count(100)
	seen := make([]atomic.Int32, 8*n)
	e := errs{t: t}
	e.do(8, func(i int) error {
		c, r := p.client, r1
		if i%2 == 1 {
			c, r = c2, r2
		}
		for range n {
			old, err := c.FetchAdd(limited(t), r.Range(8, 8), 1)
			if err != nil {
				return err
			}
			if old >= uint64(len(seen)) || seen[old].Add(1) != 1 {
				return fmt.Errorf("%d was there before", old)
			}
		}
		return nil
	})
	e.wg.Wait()
	if got := word(t, theirs, 8); got != uint64(8*n) || word(t, theirs, 0) != 0 || word(t, theirs, 16) != 0 {
		t.Errorf("sum %d of %d", got, 8*n)
	}
	for _, off := range []int64{1, 4, 7} {
		if _, err := p.client.FetchAdd(limited(t), r1.Range(off, 8), 1); err == nil {
			t.Errorf("an atomic at offset %d", off)
		}
	}
	for _, size := range []int64{0, 4, 16} {
		if _, err := p.client.FetchAdd(limited(t), r1.Range(0, size), 1); err == nil {
			t.Errorf("an atomic of %d bytes", size)
		}
	}
	p.alive()
}

// A lock of two connections by compare-and-swap excludes.
func testCompareSwap(t *testing.T, s *setting) {
	p := s.pair(t)
	theirs := host(t, p.b, 16)
	c2, s2 := p.connect(gpurdma.Config{})
	r1, r2 := p.export(theirs.All(), all), p.exportTo(s2, c2, theirs.All(), all)
	n := testenv.Count(20)
	counter := 0
	var inside atomic.Int32
	e := errs{t: t}
	e.do(2, func(i int) error {
		c, r := p.client, r1
		if i == 1 {
			c, r = c2, r2
		}
		for range n {
			for {
				old, err := c.CompareSwap(limited(t), r.Range(0, 8), 0, uint64(i+1))
				if err != nil {
					return err
				}
				if old == 0 {
					break
				}
			}
			if inside.Add(1) != 1 {
				return errors.New("the lock is another's, too")
			}
			counter++
			inside.Add(-1)
			if old, err := c.CompareSwap(limited(t), r.Range(0, 8), uint64(i+1), 0); err != nil || old != uint64(i+1) {
				return fmt.Errorf("unlock: %d, %v", old, err)
			}
		}
		return nil
	})
	e.wg.Wait()
	if counter != 2*n || word(t, theirs, 0) != 0 {
		t.Errorf("%d of %d", counter, 2*n)
	}
}

// The old value of an atomic goes to local memory, if the operation has some, or to the caller.
func testAtomicResult(t *testing.T, s *setting) {
	p := s.pair(t)
	for _, k := range s.kinds {
		mine, theirs := k.alloc(t, p.a, 32), k.alloc(t, p.b, 32)
		remote := p.export(theirs.All(), all)
		put(t, theirs, binary.NativeEndian.AppendUint64(make([]byte, 24), 41))
		ok(t, theirs.Sync())
		x := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpFetchAdd, Local: mine.Range(8, 8), Remote: remote.Range(24, 8), Add: 1}))(t)
		<-x.Done()
		ok(t, x.Err())
		if got := word(t, mine, 8); got != 41 {
			t.Errorf("%s: old value %d", k.name, got)
		}
		x = must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpCompareSwap, Remote: remote.Range(24, 8), Compare: 42, Swap: 7}))(t)
		<-x.Done()
		ok(t, x.Err())
		if x.Value() != 42 {
			t.Errorf("%s: old value %d", k.name, x.Value())
		}
		p.settle()
		if got := word(t, theirs, 24); got != 7 {
			t.Errorf("%s: new value %d", k.name, got)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package lkeys

import (
	"math/rand/v2"
	"sync"
	"testing"
)

// Keys do not mix, however a device counts them, while others come and go.
func TestForeignKeys(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	shapes := map[string]func() uint32{
		"counted in the upper bits": func() uint32 { return r.Uint32N(1<<10)<<8 | 7 },
		"counted in the lower bits": func() uint32 { return 1 + r.Uint32N(1<<10) },
		"at random":                 r.Uint32,
		"few, far apart":            func() uint32 { return r.Uint32N(4)<<30 | r.Uint32N(2) },
	}
	for name, key := range shapes {
		var f Set
		model := map[uint32]bool{}
		for step := range 20_000 {
			k := key()
			if model[k] {
				f.Remove(k)
				delete(model, k)
			} else if k != 0 && len(model) < 300 {
				f.Add(k)
				model[k] = true
			}
			if got := f.Has(k); got != model[k] {
				t.Fatalf("%s, seed %d, step %d: %#x is there: %v, want %v", name, seed, step, k, got, model[k])
			}
			probe := key()
			if got := f.Has(probe); got != model[probe] {
				t.Fatalf("%s, seed %d, step %d: %#x is there: %v, want %v", name, seed, step, probe, got, model[probe])
			}
		}
		for k := range model {
			f.Remove(k)
		}
		if f.more.Load() != 0 || len(f.met) != 0 {
			t.Errorf("%s: %d are left", name, len(f.met))
		}
	}
	// A key that was never added may be removed: a device may have no key, 0, for an MR.
	var few Set
	few.Remove(5)
	few.Add(0)
	few.Add(7)
	few.Remove(0)
	few.Remove(5)
	if !few.Has(7) || few.Has(5) {
		t.Error("a key that was never added took another one with it")
	}
	// A key that its next owner has added before its last one has removed it is foreign
	// until both have, wherever it is kept.
	for _, other := range []uint32{0x1ff, 0x205} {
		var f Set
		f.Add(other)
		for range 2 {
			f.Add(0x101)
		}
		for i, want := range []bool{true, true, false} {
			if i > 0 {
				f.Remove(0x101)
			}
			if got := f.Has(0x101); got != want {
				t.Errorf("beside %#x, removed %d times: it is %v", other, i, got)
			}
		}
		if f.Remove(0x101); !f.Has(other) {
			t.Errorf("%#x went with its neighbour", other)
		}
	}
	// Each goroutine's own are there while it has them, whichever place they take.
	var f Set
	var wg sync.WaitGroup
	for g := range uint32(4) {
		wg.Go(func() {
			for i := range uint32(2000) {
				k := i%16<<8 | g + 1
				f.Add(k)
				if !f.Has(k) {
					t.Errorf("%#x was not found", k)
				}
				f.Remove(k)
				if f.Has(k) {
					t.Errorf("%#x is still there", k)
				}
			}
		})
	}
	wg.Wait()
}

// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"math/rand/v2"
	"sync"
	"testing"
)

// Keys are told apart however a device counts them, while others come and go.
func TestForeignKeys(t *testing.T) {
	if (*foreignKeys)(nil).has([]SGE{{1, 1, 1}}) {
		t.Error("a queue pair without a context has some")
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	shapes := map[string]func() uint32{
		"counted in the upper bits": func() uint32 { return r.Uint32N(1<<10)<<8 | 7 },
		"counted in the lower bits": func() uint32 { return 1 + r.Uint32N(1<<10) },
		"at random":                 r.Uint32,
		"few, far apart":            func() uint32 { return r.Uint32N(4)<<30 | r.Uint32N(2) },
	}
	for name, key := range shapes {
		var f foreignKeys
		model := map[uint32]bool{}
		for step := range 20_000 {
			k := key()
			if model[k] {
				f.remove(k)
				delete(model, k)
			} else if k != 0 && len(model) < 300 {
				f.add(k)
				model[k] = true
			}
			if got := f.has([]SGE{{1, 1, k}}); got != model[k] {
				t.Fatalf("%s, seed %d, step %d: %#x is foreign: %v, want %v", name, seed, step, k, got, model[k])
			}
			probe := key()
			if got := f.has([]SGE{{1, 1, 0}, {1, 0, k}, {1, 1, probe}}); got != model[probe] {
				t.Fatalf("%s, seed %d, step %d: %#x is foreign: %v, want %v", name, seed, step, probe, got, model[probe])
			}
		}
		for k := range model {
			f.remove(k)
		}
		if f.more.Load() != 0 || len(f.met) != 0 {
			t.Errorf("%s: %d are left", name, len(f.met))
		}
	}
	// What was never added may go: a device may have no key, 0, for an MR.
	var few foreignKeys
	few.remove(5)
	few.add(0)
	few.add(7)
	few.remove(0)
	few.remove(5)
	if !few.has([]SGE{{1, 1, 7}}) || few.has([]SGE{{1, 1, 5}}) {
		t.Error("a key that was never added took another one with it")
	}
	// A key that its next owner has added before its last one has removed it is foreign
	// until both have, wherever it is kept.
	for _, other := range []uint32{0x1ff, 0x205} {
		var f foreignKeys
		f.add(other)
		for range 2 {
			f.add(0x101)
		}
		for i, want := range []bool{true, true, false} {
			if i > 0 {
				f.remove(0x101)
			}
			if got := f.has([]SGE{{1, 1, 0x101}}); got != want {
				t.Errorf("beside %#x, removed %d times: foreign is %v", other, i, got)
			}
		}
		if f.remove(0x101); !f.has([]SGE{{1, 1, other}}) {
			t.Errorf("%#x went with its neighbour", other)
		}
	}
	// Each goroutine's own are there while it has them, whoever's place they take.
	var f foreignKeys
	var wg sync.WaitGroup
	for g := range uint32(4) {
		wg.Go(func() {
			for i := range uint32(2000) {
				k := i%16<<8 | g + 1
				f.add(k)
				if !f.has([]SGE{{1, 1, k}}) {
					t.Errorf("%#x was not found", k)
				}
				f.remove(k)
				if f.has([]SGE{{1, 1, k}}) {
					t.Errorf("%#x is still there", k)
				}
			}
		})
	}
	wg.Wait()
}

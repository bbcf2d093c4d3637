// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// The kernel's iterator over symbols tells what /proc/kallsyms does.
func TestVMSymbols(t *testing.T) {
	testenv.VM(t)
	cache := btf.NewCache()
	kernel, err := cache.Kernel()
	if err != nil {
		t.Fatal(err)
	}
	text, asked := newSymbols(""), newSymbols("")
	if err := asked.use(cache, kernel); err != nil || asked.list == nil {
		t.Fatalf("%+v, %v: Linux 6.0 and later have it", asked.list, err)
	}
	defer asked.close()
	names := map[string]bool{"vmemmap_base": true, "dma_buf_pin": true, "rdma_restrack_add": true, "not_in_any_kernel": true}
	want, err := text.find(names, true)
	if err != nil {
		t.Fatal(err)
	}
	got, err := asked.find(names, true)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(want, got) || len(want) < 20 {
		t.Errorf("%d symbols in the text, %d from the kernel", len(want), len(got))
		for _, n := range slices.Sorted(maps.Keys(want)) {
			if want[n] != got[n] {
				t.Errorf("%s: %+v, the kernel says %+v", n, want[n], got[n])
			}
		}
	}
	// Rust's names are longer than any that is asked for, and are cut.
	maps.DeleteFunc(text.named, func(_ uint64, s symbol) bool { return len(s.name) >= 127 })
	maps.DeleteFunc(asked.named, func(_ uint64, s symbol) bool { return len(s.name) >= 127 })
	if len(text.named) < 20 {
		t.Errorf("only %d symbols are remembered", len(text.named))
	}
	for addr, sym := range text.named {
		if asked.named[addr] != sym {
			t.Errorf("%#x: %+v, the kernel says %+v", addr, sym, asked.named[addr])
		}
	}
	if len(asked.named) != len(text.named) {
		t.Errorf("%d are remembered of the text, %d of the kernel's", len(text.named), len(asked.named))
	}
	for _, n := range []string{"dma_buf_pin", "rdma_restrack_add"} {
		if sym := asked.name(want[n].addr); sym != want[n] || sym.name == "" {
			t.Errorf("%s is at %#x, where the kernel has %+v", n, want[n].addr, sym)
		}
	}
	if sym := asked.name(1); sym != (symbol{}) {
		t.Errorf("there is %+v at 1", sym)
	}
}

func BenchmarkSymbols(b *testing.B) {
	cache := btf.NewCache()
	kernel, err := cache.Kernel()
	if err != nil {
		b.Skip(err)
	}
	filter := newNameFilter(map[string]bool{"vmemmap_base": true}, slices.Concat(importerWords, exporterWords))
	text, asked := newSymbols(""), newSymbols("")
	if err := asked.use(cache, kernel); err != nil {
		b.Skip(err)
	}
	defer asked.close()
	for name, s := range map[string]*symbols{"text": text, "kernel": asked} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				n := 0
				if err := s.each(filter, func(r rawSymbol) bool {
					if bytes.Contains(r.name, []byte("gem")) {
						n++
					}
					return true
				}); err != nil || n == 0 {
					b.Fatal(n, err)
				}
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"maps"
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/trace/internal/loader"
	"github.com/gpurdma/gpurdma/trace/internal/symbols"
)

// The kernel's iterator over symbols tells what /proc/kallsyms does.
func TestVMSymbols(t *testing.T) {
	testenv.VM(t)
	cache := btf.NewCache()
	kernel, err := cache.Kernel()
	if err != nil {
		t.Fatal(err)
	}
	text, asked := symbols.New(""), symbols.New("")
	if err := asked.Use(cache, kernel); err != nil || !asked.Listed() {
		t.Fatalf("not used, %v: Linux 6.0 and later have it", err)
	}
	defer asked.Close()
	names := map[string]bool{"vmemmap_base": true, "dma_buf_pin": true, "rdma_restrack_add": true, "not_in_any_kernel": true}
	want, err := text.Find(names, loader.ExporterOps)
	if err != nil {
		t.Fatal(err)
	}
	got, err := asked.Find(names, loader.ExporterOps)
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
	remembered := func(t *symbols.Table) map[uint64]symbols.Symbol {
		all := t.Remembered()
		maps.DeleteFunc(all, func(_ uint64, s symbols.Symbol) bool { return len(s.Name) >= 127 })
		return all
	}
	inText, byKernel := remembered(text), remembered(asked)
	if len(inText) < 20 {
		t.Errorf("only %d symbols are remembered", len(inText))
	}
	for addr, sym := range inText {
		if byKernel[addr] != sym {
			t.Errorf("%#x: %+v, the kernel says %+v", addr, sym, byKernel[addr])
		}
	}
	if len(byKernel) != len(inText) {
		t.Errorf("%d are remembered of the text, %d of the kernel's", len(inText), len(byKernel))
	}
	for _, n := range []string{"dma_buf_pin", "rdma_restrack_add"} {
		if sym := asked.Name(want[n].Addr); sym != want[n] || sym.Name == "" {
			t.Errorf("%s is at %#x, where the kernel has %+v", n, want[n].Addr, sym)
		}
	}
	if sym := asked.Name(1); sym != (symbols.Symbol{}) {
		t.Errorf("there is %+v at 1", sym)
	}
}

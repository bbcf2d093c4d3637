// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/gpurdma/gpurdma/internal/abicheck"
	"github.com/gpurdma/gpurdma/trace/internal/objects"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]Symbol{
		"ffffffff81000000 T _text":                            {"_text", 0xffffffff81000000, "", true},
		"ffffffffc0a01230 t ib_dereg_mr_user\t[ib_core]":      {"ib_dereg_mr_user", 0xffffffffc0a01230, "ib_core", true},
		"0000000000000000 D vmemmap_base":                     {"vmemmap_base", 0, "", false},
		"ffffffffc0000000 t bpf_prog_6deef7357e7b4530\t[bpf]": {},
		"rubbish":            {},
		"":                   {},
		"ffffffff81000000 T": {},
	} {
		r, ok := parse([]byte(line))
		if got := r.symbol(); ok != (want.Name != "") || ok && got != want {
			t.Errorf("%q: %+v, %v", line, got, ok)
		}
	}
}

func BenchmarkSymbols(b *testing.B) {
	cache := btf.NewCache()
	kernel, err := cache.Kernel()
	if err != nil {
		b.Skip(err)
	}
	filter := newNameFilter(map[string]bool{"vmemmap_base": true}, someWords)
	text, asked := New(""), New("")
	if err := asked.Use(cache, kernel); err != nil {
		b.Skip(err)
	}
	defer asked.Close()
	for name, s := range map[string]*Table{"text": text, "kernel": asked} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				n := 0
				if err := s.each(filter, func(r raw) bool {
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

// struct found_symbol has one layout on both sides.
func TestFoundSymbol(t *testing.T) {
	cs, err := objects.Spec("symbols")
	if err != nil {
		t.Fatal(err)
	}
	fields := []string{"addr", "type", "name", "module", ""}
	if err := abicheck.BTF(cs.Types, abicheck.Struct{C: "found_symbol", Go: foundSymbol{}, Fields: fields}); err != nil {
		t.Error(err)
	}
	if size := reflect.TypeFor[foundSymbol]().Size(); size != foundSymbolSize {
		t.Errorf("foundSymbolSize is %d, the structure has %d bytes", foundSymbolSize, size)
	}
}

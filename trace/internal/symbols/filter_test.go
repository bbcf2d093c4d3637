// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// someWords are parts of the names of importers' and exporters' operations.
var someWords = [][]byte{
	[]byte("dmabuf"), []byte("dma_buf"), []byte("prime"), []byte("gem"), []byte("heap"), []byte("virtgpu"),
}

// The filter passes what a plain search finds, whatever surrounds it.
func TestNameFilter(t *testing.T) {
	names := map[string]bool{"vmemmap_base": true, "ib_dereg_mr_user": true, "a": true}
	for _, words := range [][][]byte{someWords, {[]byte("aab"), []byte("ab"), []byte("b_"), []byte("aa_ab")}, nil} {
		f := newNameFilter(names, words)
		const letters = "dma_bufprimegehvtl"
		alphabet := letters
		if len(words) == 4 {
			alphabet = "ab_"
		}
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		passed := 0
		for range 20000 {
			name := make([]byte, 1+r.IntN(24))
			for i := range name {
				name[i] = alphabet[r.IntN(len(alphabet))]
			}
			if len(words) > 0 && r.IntN(3) == 0 {
				name = append(name, words[r.IntN(len(words))]...)
			}
			module := ""
			if r.IntN(2) == 0 {
				module = "\t[dma_buf_module]"
			}
			line := fmt.Appendf(nil, "%016x t %s%s", r.Uint64(), name, module)
			want := names[string(name)] || slices.ContainsFunc(words, func(w []byte) bool { return bytes.Contains(name, w) })
			if want {
				passed++
			}
			got := f.passes(line)
			sameLength := slices.ContainsFunc([]string{"vmemmap_base", "ib_dereg_mr_user", "a"}, func(n string) bool { return n[0] == name[0] && len(n) == len(name) })
			if got != want && !(got && sameLength) {
				t.Fatalf("seed %d: %q: %v, want %v", seed, line, got, want)
			}
		}
		if len(words) > 0 && passed < 1000 {
			t.Errorf("only %d of 20000 names had a word in them", passed)
		}
		for name := range names {
			if !f.passes([]byte("0000000000000000 D " + name)) {
				t.Errorf("%s is held back", name)
			}
		}
		for _, odd := range []string{"", "rubbish", "c0a01230 t vmemmap_base", "ffffffff81000000 T "} {
			if !f.passes([]byte(odd)) {
				t.Errorf("%q is held back: only parse knows what it is", odd)
			}
		}
	}
}

func TestAddressFilter(t *testing.T) {
	f := newAddressFilter(0xffffffffc0a01230)
	for line, want := range map[string]bool{
		"ffffffffc0a01230 t ib_dereg_mr_user\t[ib_core]": true,
		"ffffffffc0a01231 t ib_dereg_mr_user\t[ib_core]": false,
		"0000000000000000 t ib_dereg_mr_user":            false,
		"c0a01230 t on_a_32_bit_kernel":                  true,
		"":                                               true,
	} {
		if got := f.passes([]byte(line)); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}

func BenchmarkNameFilter(b *testing.B) {
	f := newNameFilter(map[string]bool{"vmemmap_base": true}, someWords)
	line := []byte("ffffffffc0a01230 t ext4_map_blocks_and_more\t[ext4]")
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if f.passes(line) {
			b.Fatal("passed")
		}
	}
}

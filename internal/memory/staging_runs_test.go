// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// byByte finds the runs as bridged does, one byte after the other.
func byByte(a, b, keep []byte) (out [][2]int) {
	for i := 0; i < len(a); i++ {
		if a[i] == b[i] {
			continue
		}
		end := i + 1
		for j := end; j < len(a) && j-end <= bridge; j++ {
			if a[j] != b[j] {
				end = j + 1
			} else if keep == nil || keep[j] != b[j] {
				break
			}
		}
		out = append(out, [2]int{i, end})
		i = end
	}
	return out
}

// A search by words and a search by bytes find the same runs of different bytes.
func TestRunsByWords(t *testing.T) {
	for seed := range uint64(20_000) {
		random := rand.New(rand.NewPCG(seed, 1))
		n := random.IntN(100)
		a, b, keep := make([]byte, n), make([]byte, n), make([]byte, n)
		// Few values, so that some neighbours agree and some differ; the top bit, as words are
		// searched for zero bytes.
		values := []byte{0, 1, 0x80, 0xff}[:2+random.IntN(3)]
		change := random.IntN(10)
		for i := range n {
			b[i] = values[random.IntN(len(values))]
			a[i], keep[i] = b[i], b[i]
			if random.IntN(10) < change {
				a[i] = values[random.IntN(len(values))]
			}
			if random.IntN(10) == 0 {
				keep[i]++
			}
		}
		if random.IntN(3) == 0 {
			keep = nil
		}
		var got [][2]int
		if err := bridged(a, b, keep, func(i, j int) error { got = append(got, [2]int{i, j}); return nil }); err != nil {
			t.Fatal(err)
		}
		if want := byByte(a, b, keep); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %v, want %v\n%v\n%v\n%v", seed, got, want, a, b, keep)
		}
	}
}

// BenchmarkRuns compares a chunk of a staging buffer of which no, all or every tenth byte has
// changed.
func BenchmarkRuns(b *testing.B) {
	for _, every := range []int{0, 1, 10} {
		b.Run(fmt.Sprintf("every=%d", every), func(b *testing.B) {
			x, y := make([]byte, syncChunk), make([]byte, syncChunk)
			for i := range x {
				y[i] = byte(i)
				x[i] = y[i]
				if every > 0 && i%every == 0 {
					x[i]++
				}
			}
			b.SetBytes(syncChunk)
			for b.Loop() {
				_ = runs(x, y, func(int, int) error { return nil })
			}
		})
	}
}

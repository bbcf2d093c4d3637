// SPDX-License-Identifier: Apache-2.0

package verify

import "testing"

// BenchmarkSum measures how fast bytes are summed.
func BenchmarkSum(b *testing.B) {
	mem := inOne(make([]byte, 16<<20))
	b.SetBytes(16 << 20)
	for b.Loop() {
		if _, err := sumOf(mem, 0, int64(len(mem))); err != nil {
			b.Fatal(err)
		}
	}
}

// inOne is bytes that are summed in one part.
type inOne []byte

func (m inOne) Each(off, n int64, f func([]byte)) error {
	f(m[off : off+n])
	return nil
}

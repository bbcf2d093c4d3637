// SPDX-License-Identifier: Apache-2.0

package hostbufs_test

import (
	"math"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/ibvfd/internal/hostbufs"
)

// allocated is what a provider has allocated.
type allocated struct{ mem []byte }

func (a *allocated) Bytes() []byte { return a.mem }
func (a *allocated) Free()         {}

// A range is in a buffer only if all of it is.
func TestOf(t *testing.T) {
	mem := make([]byte, 300)
	first, second := &allocated{mem[:100]}, &allocated{mem[200:]}
	var l hostbufs.List
	l.Add(first)
	l.Add(second)
	start := hostmem.AddrOf(mem)
	for _, c := range []struct {
		addr, length uint64
		want         *allocated
	}{
		{start, 100, first},
		{start + 99, 1, first},
		{start + 200, 100, second},
		{start - 1, 2, nil},
		{start + 1, 100, nil},
		{start + 100, 1, nil},
		{start + 99, 102, nil},
		{start + 50, math.MaxUint64, nil},
	} {
		if got := l.Of(c.addr, c.length); c.want == nil && got != nil || c.want != nil && got != c.want {
			t.Errorf("%d bytes at +%d: %v, want %v", c.length, c.addr-start, got, c.want)
		}
	}
	l.Remove(first)
	if l.Of(start, 1) != nil || l.Of(start+200, 1) != second {
		t.Error("Remove removed another buffer")
	}
}

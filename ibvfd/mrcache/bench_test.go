// SPDX-License-Identifier: Apache-2.0

package mrcache

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// A hit with its Release, in a cache of 100,000 regions: of as many buffers, or
// of one; on a thousand of them that are in use, or on all in random order,
// when it is memory that is waited for.
func BenchmarkHit(b *testing.B) {
	const entries = 100_000
	for _, buffers := range []int{entries, 1} {
		for _, inUse := range []int{1000, entries} {
			b.Run(fmt.Sprintf("buffers=%d/asked=%d", buffers, inUse), func(b *testing.B) { benchmarkHit(b, entries, buffers, inUse) })
		}
	}
}

func benchmarkHit(b *testing.B, entries, buffers, inUse int) {
	var made uint32
	c := newCache(Config{MaxEntries: entries}, func(*ibvfd.PD, buffer, Range) (region, error) {
		made++
		return &idleMR{ibvfd.MRState{LKey: made}}, nil
	})
	bufs := make([]*fakeBuf, buffers)
	for i := range bufs {
		bufs[i] = &fakeBuf{inode: uint64(i) + 1, size: 1 << 40}
	}
	type ask struct {
		buf *fakeBuf
		r   Range
	}
	asks := make([]ask, entries)
	for i := range asks {
		asks[i] = ask{bufs[i%buffers], Range{uint64(i/buffers) << 20, 1 << 20, 3}}
		ref, err := c.get(pd1, asks[i].buf, asks[i].r)
		if err != nil {
			b.Fatal(err)
		}
		ref.Release()
	}
	rand.Shuffle(len(asks), func(i, j int) { asks[i], asks[j] = asks[j], asks[i] })
	asks = asks[:inUse]
	b.ReportAllocs()
	i := 0
	cpu := testenv.CPUTime(b)
	for b.Loop() {
		ref, err := c.get(pd1, asks[i].buf, asks[i].r)
		if err != nil {
			b.Fatal(err)
		}
		ref.Release()
		if i++; i == len(asks) {
			i = 0
		}
	}
	cpu(b.N, "cpu-ns/op")
	if int(made) != entries {
		b.Errorf("%d registrations: not all were hits", made)
	}
}

// idleMR costs nothing.
type idleMR struct{ state ibvfd.MRState }

func (m *idleMR) State() ibvfd.MRState { return m.state }
func (m *idleMR) Close() error         { return nil }

func TestHitAllocatesNothing(t *testing.T) {
	_, c := newDevice(Config{MaxEntries: 1, MaxBytes: 1 << 60})
	buf, r := &fakeBuf{inode: 1, size: size}, Range{0, 1, 0}
	if n := testing.AllocsPerRun(100, func() {
		ref, err := c.get(pd1, buf, r)
		if err != nil {
			t.Fatal(err)
		}
		ref.Release()
	}); n != 0 {
		t.Errorf("a hit allocates %v times", n)
	}
}

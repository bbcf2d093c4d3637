// SPDX-License-Identifier: Apache-2.0

package histogram

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestBuckets(t *testing.T) {
	last := -1
	for _, v := range []uint64{0, 1, 2, 31, 32, 33, 63, 64, 65, 66, 127, 128, 1000, 1 << 20, 1<<20 + 1<<15, 1 << 40, math.MaxInt64} {
		d := time.Duration(v)
		i := bucketOf(d)
		if i < last || i >= size {
			t.Errorf("%d is in bucket %d, what is shorter in %d", v, i, last)
		}
		last = i
		if end := bucketEnd(i); end < d || i > 0 && bucketEnd(i-1) >= d || float64(end-d) > float64(v)/32 {
			t.Errorf("%d is in bucket %d, from %d to %d", v, i, bucketEnd(max(i, 1)-1), end)
		}
	}
	if bucketOf(-5) != 0 {
		t.Error("a time below 0")
	}
}

// Quantiles agree with those of the times themselves, up to the bucket.
func TestQuantiles(t *testing.T) {
	var h Histogram
	if h.Quantile(500) != 0 {
		t.Error("of nothing")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var all []time.Duration
	for range 5000 {
		d := time.Duration(math.Exp(rng.Float64() * 20))
		all = append(all, d)
		h.Add(d)
	}
	slices.Sort(all)
	for _, p := range []int{0, 1, 500, 900, 990, 999, 1000} {
		want := all[max(1, (len(all)*p+999)/1000)-1]
		if got := h.Quantile(uint64(p)); got < want || float64(got) > float64(want)*33/32+1 {
			t.Errorf("%d per mille: %d, want %d", p, got, want)
		}
	}
	if h.Quantile(1000) != all[len(all)-1] {
		t.Error("the longest is not exact")
	}
}

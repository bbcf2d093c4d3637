// SPDX-License-Identifier: Apache-2.0

package histogram

import (
	"math/bits"
	"time"
)

// Histogram counts times in buckets whose width grows with the time: each power
// of two has 32, so that a bucket is at most 1/32 wide. The zero value is empty.
type Histogram struct {
	counts [size]uint64
	total  uint64
	max    time.Duration
}

const (
	subBits = 5
	size    = (64 - subBits) << subBits
)

func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	shift := bits.Len64(v>>subBits) - 1
	if shift < 0 {
		return int(v) // exact
	}
	return (shift+1)<<subBits + int(v>>shift) - 1<<subBits
}

// bucketEnd is the longest time of a bucket.
func bucketEnd(i int) time.Duration {
	shift := i>>subBits - 1
	if shift < 0 {
		return time.Duration(i)
	}
	return time.Duration((uint64(i)&(1<<subBits-1)|1<<subBits)+1)<<shift - 1
}

// Add counts a time; one below 0 counts as 0.
func (h *Histogram) Add(d time.Duration) {
	h.counts[bucketOf(d)]++
	h.total++
	h.max = max(h.max, d)
}

// Count is how many times were counted.
func (h *Histogram) Count() uint64 { return h.total }

// Max is the longest of them.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile is the end of the bucket in which the smallest time lies that at
// least that many of a thousand times do not exceed; 0 if there are none.
func (h *Histogram) Quantile(perMille uint64) time.Duration {
	need := max(1, (h.total*perMille+999)/1000)
	var seen uint64
	for i, n := range h.counts {
		if seen += n; seen >= need {
			return min(bucketEnd(i), h.max)
		}
	}
	return 0
}

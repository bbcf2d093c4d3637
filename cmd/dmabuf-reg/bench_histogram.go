// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/bits"
	"time"
)

// histogram counts times in buckets whose width grows with the time: each power
// of two has 32, so that a bucket is at most 1/32 wide. Millions of operations
// take no more memory than one, and none while they are measured.
type histogram struct {
	counts [histogramSize]uint32
	total  int
	max    time.Duration
}

const (
	histogramBits = 5
	histogramSize = (64 - histogramBits) << histogramBits
)

func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	shift := bits.Len64(v>>histogramBits) - 1
	if shift < 0 {
		return int(v) // exact
	}
	return (shift+1)<<histogramBits + int(v>>shift) - 1<<histogramBits
}

// bucketEnd is the longest time of a bucket.
func bucketEnd(i int) time.Duration {
	shift := i>>histogramBits - 1
	if shift < 0 {
		return time.Duration(i)
	}
	return time.Duration((uint64(i)&(1<<histogramBits-1)|1<<histogramBits)+1)<<shift - 1
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucketOf(d)]++
	h.total++
	h.max = max(h.max, d)
}

// percentile is the end of the bucket in which the smallest time lies that at
// least that many of a thousand times do not exceed; 0 if there are none.
func (h *histogram) percentile(perMille int) time.Duration {
	need := max(1, (h.total*perMille+999)/1000)
	for i, n := range h.counts {
		if need -= int(n); need <= 0 && h.total > 0 {
			return min(bucketEnd(i), h.max)
		}
	}
	return 0
}

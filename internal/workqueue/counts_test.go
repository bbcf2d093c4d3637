// SPDX-License-Identifier: Apache-2.0

package workqueue

import "testing"

// A bucket has the times up to a power of two of microseconds, the power included.
func TestBuckets(t *testing.T) {
	for took, want := range map[int64]int{
		0: 0, 1: 0, 999: 0, 1000: 0, 1001: 1, 2000: 1, 2001: 2, 4000: 2, 4001: 3, 1_024_000: 10, 1_024_001: 11,
		16_777_216_000: 24, 16_777_216_001: 25, 1 << 62: 25,
	} {
		if got := bucketOf(took); got != want {
			t.Errorf("%d ns are in bucket %d, want %d", took, got, want)
		}
	}
}

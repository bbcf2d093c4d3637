// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// Exhaustive skips a test of thousands of cases under the race detector, which finds
// nothing in them: `make unit` runs these packages a second time, without it and without
// -short.
func Exhaustive(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("thousands of cases: not for the race detector")
	}
}

// Slow is how many times slower than usual this kernel is, as the testbed says
// it in GPURDMA_SLOW: more than 1 where the kernel checks itself.
func Slow() int {
	n, err := strconv.Atoi(os.Getenv("GPURDMA_SLOW"))
	if err != nil || n < 1 {
		return 1
	}
	return n
}

// Limit is a limit of time for something that takes longer on a slow kernel.
func Limit(d time.Duration) time.Duration { return d * time.Duration(Slow()) }

// Count is how often to repeat something that is repeated n times on a fast
// kernel: at least once.
func Count(n int) int { return max(n/Slow(), 1) }

// Soaking tells whether this is a soak (`make soak`), for which the machine has nothing else to do.
func Soaking() bool { return os.Getenv("GPURDMA_SOAK") != "" }

// Soak is how often to repeat something: many times in a soak, otherwise Count(few).
func Soak(few, many int) int {
	if Soaking() {
		return many
	}
	return Count(few)
}

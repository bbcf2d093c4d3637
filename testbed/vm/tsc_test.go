// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"testing"
	"time"
)

// rateOf is right to a hundredth, an error that kernels correct, however often the thread loses the processor between
// reading the counter and reading the clock.
func TestRateOf(t *testing.T) {
	began := time.Now()
	looks := 0
	got := rateOf(func() uint64 {
		if looks++; looks%3 == 0 {
			defer time.Sleep(time.Millisecond)
		}
		return uint64(time.Since(began)) * 5 / 2 // 2.5 GHz
	}, 20*time.Millisecond)
	if got < 2_475_000 || got > 2_525_000 {
		t.Errorf("%d kHz, want 2,500,000", got)
	}
	if got := rateOf(func() uint64 { return 0 }, time.Millisecond); got != 0 {
		t.Errorf("%d kHz of a counter that stands still", got)
	}
}

// This processor's own is what it was a moment ago.
func TestTSCKHz(t *testing.T) {
	first := tscKHz()
	if rdtsc() == 0 {
		if first != 0 || counterRate() != nil {
			t.Errorf("%d kHz where there is no counter", first)
		}
		return
	}
	if again := rateOf(rdtsc, 50*time.Millisecond); first == 0 || again < first-first/100 || again > first+first/100 {
		t.Errorf("%d kHz, and then %d", first, again)
	}
}

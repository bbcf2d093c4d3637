// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	s := []time.Duration{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for p, want := range map[float64]time.Duration{0: 1, 0.1: 1, 0.5: 5, 0.99: 10, 1: 10} {
		if got := percentile(s, p); got != want {
			t.Errorf("percentile(%v) = %d, want %d", p, got, want)
		}
	}
	if got := percentile([]time.Duration(nil), 0.5); got != 0 {
		t.Errorf("of nothing: %d", got)
	}
}

func TestRatioIsTheMedianOfRounds(t *testing.T) {
	// One round hit by noise must not move the median.
	r := newRatio([]float64{1.0, 1.01, 9.0, 0.99, 1.02})
	if r.Median != 1.01 || r.Rounds != 5 {
		t.Errorf("got %+v", r)
	}
}

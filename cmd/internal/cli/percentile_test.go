// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	var times []time.Duration
	if got := Percentile(times, 50); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	for i := 100; i > 0; i-- {
		times = append(times, time.Duration(i))
	}
	for p, want := range map[int]time.Duration{0: 1, 1: 1, 50: 50, 99: 99, 100: 100} {
		if got := Percentile(times, p); got != want {
			t.Errorf("p%d = %d, want %d", p, got, want)
		}
	}
	if got := Percentile(times[:1], 50); got != 100 {
		t.Errorf("of one: %d", got)
	}
	if times[0] != 100 {
		t.Error("the caller's slice was sorted")
	}
}

// SPDX-License-Identifier: Apache-2.0

package spin

import (
	"testing"
	"time"
)

// It ends, and not before its time; after it sleeps follow each other closely.
func TestWaitEnds(t *testing.T) {
	var w Wait
	began := time.Now()
	for !w.Over() {
	}
	if d := time.Since(began); d < limit {
		t.Errorf("over after %v, before %v", d, limit)
	}
	looks := 1
	for !w.Over() {
		looks++
	}
	if looks > 16 {
		t.Errorf("%d looks after the time was up", looks)
	}
	if n := testing.AllocsPerRun(100, func() { w.Over() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

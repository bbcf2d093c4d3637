// SPDX-License-Identifier: Apache-2.0

package throttle

import (
	"testing"
	"time"
)

func TestLines(t *testing.T) {
	now := time.Unix(1000, 0)
	l := Lines{Now: func() time.Time { return now }}
	for i := range Most + 3 {
		if more, ok := l.Next(); ok != (i < Most) || more != "" {
			t.Fatalf("line %d: %q, %v", i, more, ok)
		}
	}
	now = now.Add(time.Second)
	if more, ok := l.Next(); !ok || more != " (and 3 others before)" {
		t.Errorf("%q, %v", more, ok)
	}
	if more, ok := l.Next(); !ok || more != "" {
		t.Errorf("%q, %v", more, ok)
	}
}

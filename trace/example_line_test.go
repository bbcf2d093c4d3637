// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"testing"

	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace"
)

// The example takes every registration, also one whose MR was not seen.
func TestExampleLine(t *testing.T) {
	r := trace.Record{Call: trace.RegDMABufMR, Placement: placement.Placement{Memory: placement.SystemMemory}}
	if got := line(trace.Event{Kind: trace.Registered, Record: r}); got != "a key that was not seen: "+r.Placement.String() {
		t.Errorf("%q", got)
	}
	r.MR = &trace.MR{LKey: 0x123}
	if got := line(trace.Event{Kind: trace.Registered, Record: r}); got != "lkey 0x123: "+r.Placement.String() {
		t.Errorf("%q", got)
	}
	if got := line(trace.Event{Kind: trace.Released, Record: r}); got != "" {
		t.Errorf("%q", got)
	}
}

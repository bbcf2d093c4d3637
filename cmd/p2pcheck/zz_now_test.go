// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// A proof replaces the prediction. A prediction of direct that was to be proven, and was
// not, is unknown; so is a place in the GPU that no byte was moved to.
func TestNow(t *testing.T) {
	for _, c := range []struct {
		live              *liveRun
		predicted, proven string
		want              string
	}{
		{nil, "direct", "", "direct"}, {nil, "staged", "", "staged"},
		{&liveRun{}, "direct", "direct", "direct"}, {&liveRun{}, "direct", "staged", "staged"}, {&liveRun{}, "staged", "direct", "direct"},
		{&liveRun{}, "direct", "", "unknown"}, {&liveRun{}, "direct", "unknown", "unknown"}, {&liveRun{}, "refused", "", "refused"}, {&liveRun{}, "staged", "unknown", "staged"},
		{&liveRun{Unmoved: "no cgo"}, "direct", "direct", "unknown"}, {&liveRun{Unmoved: "no cgo"}, "staged", "staged", "staged"},
	} {
		p := pair{Outcome: c.predicted}
		if c.proven != "" {
			p.Proof = &proof{Outcome: c.proven}
		}
		if got := (checkResult{Live: c.live}).now(p); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package result

import "testing"

// A proof replaces the prediction. A prediction of direct that was to be proven, and was
// not, is unknown; so is a place in the GPU that no byte was moved to.
func TestNow(t *testing.T) {
	for _, c := range []struct {
		live              *Live
		predicted, proven string
		want              string
	}{
		{nil, "direct", "", "direct"}, {nil, "staged", "", "staged"},
		{&Live{}, "direct", "direct", "direct"}, {&Live{}, "direct", "staged", "staged"}, {&Live{}, "staged", "direct", "direct"},
		{&Live{}, "direct", "", "unknown"}, {&Live{}, "direct", "unknown", "unknown"}, {&Live{}, "refused", "", "refused"}, {&Live{}, "staged", "unknown", "staged"},
		{&Live{Unmoved: "no cgo"}, "direct", "direct", "unknown"}, {&Live{Unmoved: "no cgo"}, "staged", "staged", "staged"},
	} {
		p := Pair{Outcome: c.predicted}
		if c.proven != "" {
			p.Proof = &Proof{Outcome: c.proven}
		}
		if got := (Run{Live: c.live}).now(p); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package result

import "testing"

// A warning is worse than what is not known of a warning, and better than what is not known of a
// failure.
func TestWorst(t *testing.T) {
	warn, small, large := Finding{ID: "X", Result: "warn"}, Finding{ID: "X", Result: "unknown"}, Finding{ID: "X", Result: "unknown", Decides: true}
	for _, test := range []struct {
		all  []Finding
		want string
	}{
		{[]Finding{warn, small}, "warn"},
		{[]Finding{small, warn}, "warn"},
		{[]Finding{warn, large}, "unknown"},
		{[]Finding{large, {ID: "X", Result: "fail"}}, "fail"},
		{[]Finding{{ID: "X", Result: "pass"}, small}, "unknown"},
		{[]Finding{{ID: "X", Result: "skip"}, {ID: "X", Result: "pass"}}, "pass"},
	} {
		if got := Worst(test.all)["X"]; got != test.want {
			t.Errorf("%v: %s, want %s", test.all, got, test.want)
		}
	}
	if got := TallyOf([]Finding{small, warn}); got.Warn != 1 || got.Unknown != 0 || got.Hidden != 0 {
		t.Errorf("%+v", got)
	}
}

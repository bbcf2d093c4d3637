// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// The worst of a check counts, whatever came first, and none that warns is lost.
func TestHeadlineNamesTheWorst(t *testing.T) {
	r := checkResult{Checks: []finding{
		{ID: "A", Result: "warn", Decides: true}, {ID: "A", Result: "fail", Decides: true}, {ID: "A", Result: "unknown", Decides: true},
		{ID: "B", Result: "pass", Decides: true}, {ID: "B", Result: "warn", Decides: true}, {ID: "B", Result: "unknown", Decides: true},
		{ID: "C", Result: "warn"}, {ID: "C", Result: "pass"},
		{ID: "D", Result: "unknown"}, {ID: "E", Result: "pass", Decides: true}, {ID: "E", Result: "unknown"},
		{ID: "F", Result: "unknown"}, {ID: "F", Result: "warn"},
	}}
	r.Tally = tallyOf(r.Checks)
	var b strings.Builder
	nagios(&b, formatted{found: &r, status: 1})
	if !strings.Contains(b.String(), " - no pair to check; fail: A; unknown: B F; warn: C | ") || !strings.HasSuffix(b.String(), " checks_failed=1 checks_warned=1 checks_unknown=2 checks_unlisted=2\n") {
		t.Error(b.String())
	}
}

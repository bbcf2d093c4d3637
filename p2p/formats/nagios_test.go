// SPDX-License-Identifier: Apache-2.0

package formats

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/p2p/result"
)

// The worst result of a check counts, in any order of the findings. Every check that warns is
// in the line.
func TestHeadlineNamesTheWorst(t *testing.T) {
	r := result.Run{Checks: []result.Finding{
		{ID: "A", Result: "warn", Decides: true}, {ID: "A", Result: "fail", Decides: true}, {ID: "A", Result: "unknown", Decides: true},
		{ID: "B", Result: "pass", Decides: true}, {ID: "B", Result: "warn", Decides: true}, {ID: "B", Result: "unknown", Decides: true},
		{ID: "C", Result: "warn"}, {ID: "C", Result: "pass"},
		{ID: "D", Result: "unknown"}, {ID: "E", Result: "pass", Decides: true}, {ID: "E", Result: "unknown"},
		{ID: "F", Result: "unknown"}, {ID: "F", Result: "warn"},
	}}
	r.Tally = result.TallyOf(r.Checks)
	var b strings.Builder
	nagios(&b, Input{Found: &r, Status: 1})
	if !strings.Contains(b.String(), " - no pair to check; fail: A; unknown: B; warn: C F | ") || !strings.HasSuffix(b.String(), " checks_failed=1 checks_warned=2 checks_unknown=1 checks_unlisted=2\n") {
		t.Error(b.String())
	}
}

// With a baseline the performance data counts what is worse, 0 too: a script that drains nodes
// goes by it.
func TestPerformanceDataCountsWhatIsWorse(t *testing.T) {
	for name, c := range map[string]struct {
		baseline string
		drift    []string
		want     string
	}{
		"no baseline":     {"", nil, "checks_unlisted=0\n"},
		"nothing differs": {"old.json", nil, " worse=0\n"},
		"nothing worse":   {"old.json", []string{"unknown", "changed", "better"}, " worse=0\n"},
		"two":             {"old.json", []string{"worse", "worse", "better"}, " worse=2\n"},
	} {
		r := result.Run{Baseline: c.baseline}
		for _, change := range c.drift {
			r.Drift = append(r.Drift, result.Drift{Change: change})
		}
		var b strings.Builder
		nagios(&b, Input{Found: &r, Status: r.Status()})
		if !strings.HasSuffix(b.String(), c.want) {
			t.Errorf("%s: %s", name, b.String())
		}
	}
}

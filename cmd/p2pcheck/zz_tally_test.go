// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// One is, and two are.
func TestTallyOfTheUnlisted(t *testing.T) {
	open := func(ids ...string) checkResult {
		var r checkResult
		for _, id := range ids {
			r.Checks = append(r.Checks, finding{ID: id, Result: "unknown"})
		}
		return r
	}
	for want, r := range map[string]checkResult{"; 1 of the unknown can only warn, and is not listed;": open("A"), "; 2 of the unknown can only warn, and are not listed;": open("A", "B")} {
		if got := tallyText(r, false); !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
}

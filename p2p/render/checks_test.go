// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/p2p/result"
)

// The text says "one is" and "two are".
func TestTallyOfTheUnlisted(t *testing.T) {
	open := func(ids ...string) result.Run {
		var r result.Run
		for _, id := range ids {
			r.Checks = append(r.Checks, result.Finding{ID: id, Result: "unknown"})
		}
		return r
	}
	for want, r := range map[string]result.Run{"; 1 of the unknown can only warn, and is not listed;": open("A"), "; 2 of the unknown can only warn, and are not listed;": open("A", "B")} {
		if got := tallyText(r, false); !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
}

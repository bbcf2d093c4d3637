// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestHeading(t *testing.T) {
	for outcome, want := range map[string]string{"unknown": "what becomes of them is not known", "staged": "the NIC gets system memory (STAGED)", "refused": "the registration fails (REFUSED)"} {
		if got := heading(pair{Outcome: outcome}); got != want {
			t.Errorf("%s: %s", outcome, got)
		}
	}
}

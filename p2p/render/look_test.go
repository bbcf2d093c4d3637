// SPDX-License-Identifier: Apache-2.0

package render

import (
	"testing"

	"github.com/gpurdma/gpurdma/p2p/result"
)

func TestHeading(t *testing.T) {
	for outcome, want := range map[string]string{"unknown": "what becomes of them is not known", "staged": "the NIC gets system memory (STAGED)", "refused": "the registration fails (REFUSED)", "of a later version": "what becomes of them is not known"} {
		if got := Heading(result.Pair{Outcome: outcome}); got != want {
			t.Errorf("%s: %s", outcome, got)
		}
	}
}

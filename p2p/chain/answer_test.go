// SPDX-License-Identifier: Apache-2.0

package chain_test

import (
	"testing"

	"github.com/gpurdma/gpurdma/p2p/chain"
)

// Two answers that are made of one do not share evidence.
func TestWithCopiesTheEvidence(t *testing.T) {
	one := chain.Hold("it holds")
	for range 8 {
		one = one.With("file", "value")
		a, b := one.With("a", "of a"), one.With("b", "of b")
		last := len(one.Evidence)
		if a.Evidence[last].File != "a" || b.Evidence[last].File != "b" {
			t.Fatalf("after %d: %v and %v", last, a.Evidence[last], b.Evidence[last])
		}
	}
}

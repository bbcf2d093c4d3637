// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

func TestArgs(t *testing.T) {
	args := Args("OLD", "NEW")
	if err := args(nil, []string{"a", "b"}); err != nil {
		t.Error(err)
	}
	for words, given := range map[string][]string{
		"OLD is missing":               nil,
		"NEW is missing":               {"a"},
		`"c": nothing comes after NEW`: {"a", "b", "c", "d"},
	} {
		if err := args(nil, given); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v, want %q", given, err, words)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestArgs(t *testing.T) {
	args, cmd := Args("OLD", "NEW"), &cobra.Command{Use: "diff OLD NEW"}
	if err := args(cmd, []string{"a", "b"}); err != nil {
		t.Error(err)
	}
	for words, given := range map[string][]string{
		"OLD is missing: write diff OLD NEW": nil,
		"NEW is missing: write diff OLD NEW": {"a"},
		`"c": nothing comes after NEW`:       {"a", "b", "c", "d"},
	} {
		if err := args(cmd, given); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v, want %q", given, err, words)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package formats

import "testing"

// Prometheus knows three escapes, and refuses a file that has others.
func TestQuoted(t *testing.T) {
	for name, want := range map[string]string{"mlx5_0": `"mlx5_0"`, "a\"b\\c\nd": `"a\"b\\c\nd"`, "tab\tbell\a": "\"tab\tbell\\\\a\"", "\xff": `"\\xff"`} {
		if got := quoted(name); got != want {
			t.Errorf("%q: %s", name, got)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package human

import (
	"strings"
	"testing"
)

func TestFold(t *testing.T) {
	long := strings.Repeat("x", Columns+20)
	for _, c := range []struct{ text, want string }{
		{"", "- "},
		{"one  two\nthree", "- one two three"},
		{long, "- " + long},
		{"a " + long + " b", "- a\n  " + long + "\n  b"},
		{strings.Repeat("ab ", 40), "- " + strings.TrimSpace(strings.Repeat("ab ", 33)) + "\n  " + strings.TrimSpace(strings.Repeat("ab ", 7))},
	} {
		if got := Fold(c.text, "- ", "  "); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

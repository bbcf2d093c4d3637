// SPDX-License-Identifier: Apache-2.0

package human

import "testing"

func TestShort(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{{"", 0, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc…"}, {"aé", 2, "a…"}, {"é", 1, "…"}, {"\xff\xff\xff", 2, "\xff\xff…"}, {"\x80\x80\x80", 2, "…"}} {
		if got := Short(c.text, c.n); got != c.want {
			t.Errorf("%q, %d: %q, want %q", c.text, c.n, got, c.want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package human

import "testing"

func TestPlural(t *testing.T) {
	for n, want := range map[int]string{0: "0 pairs", 1: "1 pair", 2: "2 pairs"} {
		if got := Plural(n, "pair"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestFirst(t *testing.T) {
	names := []string{"a", "b", "c"}
	for n, want := range map[int]string{0: " and 3 more", 2: "a, b and 1 more", 3: "a, b, c", 4: "a, b, c"} {
		if got := First(names, n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	if got := First(nil, 1); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}

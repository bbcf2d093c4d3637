// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for _, c := range [][2]string{
		{"a.json b.json", "a b"},
		{"run/a.json run/b.json", "a b"},
		{"x/p2pcheck.json y/p2pcheck.json", "x y"},
		{"/run/x/1/p2pcheck.json /run/y/1/p2pcheck.json", "x/1 y/1"},
		{"x/a.json y/a.json y/b.json", "x/a y/a b"},
		{"a a.json", "a a.json"},
		{"a.json x/a.json", "a x/a"},
		{"one", "one"},
	} {
		if got := strings.Join(Names(strings.Fields(c[0])), " "); got != c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}
}

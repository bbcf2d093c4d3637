// SPDX-License-Identifier: Apache-2.0

package fleet

import "testing"

func TestChangeOf(t *testing.T) {
	of := func(name string) fact { return fact{good: goodness[name]} }
	for _, c := range [][3]string{
		{"pass", "fail", "worse"}, {"pass", "warn", "worse"}, {"warn", "fail", "worse"}, {"unknown", "fail", "worse"}, {"direct", "staged", "worse"}, {"unknown", "refused", "worse"},
		{"fail", "pass", "better"}, {"fail", "warn", "better"}, {"unknown", "pass", "better"}, {"unknown", "direct", "better"}, {"staged", "direct", "better"},
		{"pass", "unknown", "unknown"}, {"fail", "unknown", "unknown"}, {"unknown", "warn", "changed"}, {"refused", "staged", "changed"},
	} {
		if got := changeOf(of(c[0]), of(c[1]), true, true); got != c[2] {
			t.Errorf("%s after %s is %s, want %s", c[1], c[0], got, c[2])
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package options

import (
	"strings"
	"testing"
)

func TestAccessFlag(t *testing.T) {
	for in, want := range map[string]string{
		"local-write":                            "local-write",
		"remote-read,local-write , remote-write": "local-write,remote-write,remote-read",
		"0x7":                                    "local-write,remote-write,remote-read",
		"0":                                      "0x0",
		"0x40000001":                             "local-write,0x40000000",
		"relaxed-ordering":                       "relaxed-ordering",
	} {
		var f Access
		if err := f.Set(in); err != nil || f.String() != want {
			t.Errorf("%q is %q, %v; want %q", in, f.String(), err, want)
		}
		var back Access
		if first, _, _ := strings.Cut(f.String(), ",0x"); first == f.String() {
			if err := back.Set(f.String()); err != nil || back != f {
				t.Errorf("%q does not come back: %v, %v", f.String(), back, err)
			}
		}
	}
	for _, in := range []string{"", "nope", "local-write,,remote-read", "-1"} {
		var f Access
		if err := f.Set(in); err == nil {
			t.Errorf("%q was taken as %v", in, f.String())
		}
	}
}

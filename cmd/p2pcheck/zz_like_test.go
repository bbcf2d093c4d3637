// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// A command that looks at a device is the same for others. One that changes it is not: the
// text has to name each.
func TestLike(t *testing.T) {
	look := func(gpu string) finding {
		return finding{ID: "P2P-NV-GATE", Remedy: &fix{Command: "p2pcheck --live --gpu " + gpu}}
	}
	set := func(device string) finding {
		return finding{ID: "ISO-RO", Remedy: &fix{Command: "setpci -s " + device}}
	}
	for _, c := range []struct {
		a, b finding
		want bool
	}{
		{look("a"), look("b"), true}, {set("a"), set("b"), false}, {set("a"), set("a"), true}, {set("a"), finding{ID: "ISO-RO"}, false}, {finding{ID: "ISO-RO"}, finding{ID: "ISO-ATS"}, false},
	} {
		if c.a.like(c.b) != c.want || c.b.like(c.a) != c.want {
			t.Errorf("%+v and %+v: not %v", c.a, c.b, c.want)
		}
	}
}

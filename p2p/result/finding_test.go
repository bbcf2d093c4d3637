// SPDX-License-Identifier: Apache-2.0

package result

import "testing"

// A command that only looks at a device is the same for other devices. A command that changes a
// device is not: the text has to name each device.
func TestLike(t *testing.T) {
	look := func(gpu string) Finding {
		return Finding{ID: "P2P-NV-GATE", Remedy: &Fix{Command: "p2pcheck --live --gpu " + gpu}}
	}
	set := func(device string) Finding {
		return Finding{ID: "ISO-RO", Remedy: &Fix{Command: "setpci -s " + device}}
	}
	for _, c := range []struct {
		a, b Finding
		want bool
	}{
		{look("a"), look("b"), true}, {set("a"), set("b"), false}, {set("a"), set("a"), true}, {set("a"), Finding{ID: "ISO-RO"}, false}, {Finding{ID: "ISO-RO"}, Finding{ID: "ISO-ATS"}, false},
	} {
		if c.a.Like(c.b) != c.want || c.b.Like(c.a) != c.want {
			t.Errorf("%+v and %+v: not %v", c.a, c.b, c.want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package pci

import (
	"strings"
	"testing"
)

func TestVPDKeyword(t *testing.T) {
	const name = "\x82\x03\x00NIC"
	readOnly := "\x90\x0e\x00PN\x02AB" + "V3\x03xyz" + "RV\x00"
	whole := name + readOnly + "\x91\x05\x00V3\x02rw\x78"
	for _, c := range []struct{ vpd, keyword, want string }{
		{whole, "V3", "xyz"},
		{whole, "PN", "AB"},
		{whole, "SN", ""},
		{whole, "RV", ""},
		{name + "\x78" + readOnly, "V3", ""},          // behind the end
		{name + "\x91\x05\x00V3\x02rw\x78", "V3", ""}, // of the writable part
		{"\x90\x06\x00V3\x09xyz\x78", "V3", ""},       // a field longer than its part
		{"\x12ab" + readOnly, "V3", "xyz"},            // behind a small tag
		{strings.Repeat("\xff", 64), "V3", ""},        // of a function that is gone
		{"", "V3", ""},
	} {
		if got := VPDKeyword([]byte(c.vpd), c.keyword); got != c.want {
			t.Errorf("%q of %q: %q, want %q", c.keyword, c.vpd, got, c.want)
		}
	}
	for i := range len(whole) {
		if got := VPDKeyword([]byte(whole[:i]), "V3"); got != "" && got != "xyz" {
			t.Errorf("cut off at %d: %q", i, got)
		}
	}
}

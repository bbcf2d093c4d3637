// SPDX-License-Identifier: Apache-2.0

package topo

import "testing"

func TestLink(t *testing.T) {
	const gen4, gen5 = "16.0 GT/s PCIe", "32.0 GT/s PCIe"
	for _, c := range []struct {
		link       Link
		text, long string
		less       bool // than both ends could carry
	}{
		{Link{}, "", "", false},
		{Link{gen5, "16", gen5, "16", gen5, "16"}, "32.0 GT/s x16", "32.0 GT/s x16", false},
		{Link{gen4, "16", gen5, "16", gen5, "16"}, "16.0 GT/s x16 of 32.0 GT/s x16", "16.0 GT/s x16 of 32.0 GT/s x16", true},
		{Link{gen5, "8", gen5, "16", gen5, "16"}, "32.0 GT/s x8 of 32.0 GT/s x16", "32.0 GT/s x8 of 32.0 GT/s x16", true},
		{Link{gen4, "16", gen5, "16", gen4, "16"}, "16.0 GT/s x16 of 32.0 GT/s x16 (the port above: 16.0 GT/s x16)", "16.0 GT/s x16 of 32.0 GT/s x16 (the port above: 16.0 GT/s x16)", false},
		{Link{gen4, "4", gen4, "4", gen5, "16"}, "16.0 GT/s x4", "16.0 GT/s x4 (the port above: 32.0 GT/s x16)", false},
		{Link{Speed: gen4, Width: "4"}, "16.0 GT/s x4", "16.0 GT/s x4", false}, // the maximum of the ends is not known
	} {
		if text, long, less := c.link.text(false), c.link.text(true), c.link.Less(); text != c.text || long != c.long || less != c.less {
			t.Errorf("%+v: %q, %q, %v", c.link, text, long, less)
		}
	}
}

func TestBAR(t *testing.T) {
	large, same := uint64(64<<30), uint64(4<<30)
	for _, c := range []struct {
		bar        BAR
		text, long string
	}{
		{BAR{Index: 1, Size: 4 << 30, Start: 0x1000}, "BAR 1 4GiB", "BAR 1 4GiB at 0x1000"},
		{BAR{Index: 1, Size: 4 << 30, Largest: &large, Prefetchable: true}, "BAR 1 4GiB of 64GiB", "BAR 1 4GiB of 64GiB at 0x0 prefetchable"},
		{BAR{Index: 1, Size: 4 << 30, Largest: &same}, "BAR 1 4GiB", "BAR 1 4GiB, the largest size at 0x0"},
	} {
		if text, long := c.bar.text(false), c.bar.text(true); text != c.text || long != c.long {
			t.Errorf("%+v: %q, %q", c.bar, text, long)
		}
	}
}

// The text does not say that a port does not redirect if its ACS cannot be read.
func TestACS(t *testing.T) {
	for _, c := range []struct {
		acs       ACS
		text      string
		redirects bool
	}{
		{ACS{}, "ACS unknown", false}, {ACS{Known: true}, "", false}, {ACS{Known: true, Present: true, Redirects: "none"}, "ACS does not redirect", false},
		{ACS{Known: true, Present: true, Redirects: "requests", Control: 4}, "ACS requests", true},
	} {
		if text, redirects := c.acs.text(false), c.acs.Redirecting(); text != c.text || redirects != c.redirects {
			t.Errorf("%+v: %q, %v", c.acs, text, redirects)
		}
	}
}

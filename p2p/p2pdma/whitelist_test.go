// SPDX-License-Identifier: Apache-2.0

package p2pdma

import (
	"testing"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// pci_p2pdma_whitelist, as the sources of the four series have it.
func TestWhitelistBySeries(t *testing.T) {
	old := []uint16{0x3c00, 0x3c01, 0x2f00, 0x2f01, 0x2030, 0x2031, 0x2032, 0x2033, 0x2020, 0x09a2}
	later := []uint16{0x0b25, 0x0cfe, 0x11fb, 0x1212, 0x1216, 0x4940, 0x4942, 0x4944, 0x4946, 0x4948}
	if len(whitelist) != len(old)+len(later)+1+4 {
		t.Errorf("%d entries", len(whitelist))
	}
	trusts := func(release string, vendor, device uint16, same bool) placement.Answer {
		k := machine.Kernel{Release: release, Version: machine.ParseVersion(release)}
		answer, _ := Trusts(k, &machine.HostBridge{First: pci.Function{Vendor: vendor, Device: device}}, same)
		return answer
	}
	for release, has := range map[string]placement.Answer{"6.1.192": placement.No, "6.12.117": placement.No, "6.18.1": placement.AnswerUnknown, "7.2.13": placement.Yes, "7.3.4": placement.Yes, "7.9.0": placement.AnswerUnknown} {
		listed := placement.Yes // those of 6.1
		if release == "7.9.0" {
			listed = placement.AnswerUnknown
		}
		for i, device := range old {
			want := listed
			if want == placement.Yes && i < 4 {
				want = placement.No // below one host bridge only
			}
			if got, same := trusts(release, machine.VendorIntel, device, false), trusts(release, machine.VendorIntel, device, true); got != want || same != listed {
				t.Errorf("%s, %04x: %v, and below one bridge %v", release, device, got, same)
			}
		}
		for _, device := range later {
			if got := trusts(release, machine.VendorIntel, device, false); got != has {
				t.Errorf("%s, %04x: %v", release, device, got)
			}
		}
		if got := trusts(release, machine.VendorGoogle, 0x1234, false); got != has {
			t.Errorf("%s, Google: %v", release, got)
		}
		newest := has // no series up to 7.2 has these
		if release == "7.2.13" || release == "6.18.1" {
			newest = placement.No
		}
		for device := uint16(0x2f95); device <= 0x2f98; device++ {
			if got := trusts(release, machine.VendorNVIDIA, device, false); got != newest {
				t.Errorf("%s, NVIDIA %04x: %v", release, device, got)
			}
		}
		if got := trusts(release, machine.VendorIntel, 0x6f00, true); got == placement.Yes {
			t.Errorf("%s: Broadwell is on no list", release)
		}
	}
}

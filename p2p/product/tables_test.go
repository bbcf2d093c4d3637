// SPDX-License-Identifier: Apache-2.0

package product

import (
	"strings"
	"testing"
)

// TestSources checks that each row of each table cites a source.
func TestSources(t *testing.T) {
	check := func(what, source string) {
		t.Helper()
		if len(source) < len("a#1") || strings.Contains(source, "http") {
			t.Errorf("%s: source %q", what, source)
		}
	}
	for _, m := range models {
		check(m.pattern.String(), m.source)
		check(m.line.name, m.line.source)
	}
	for _, r := range nvidiaIDRows {
		check(r.line.name+" by id", r.source)
		check(r.line.name, r.line.source)
	}
	for _, r := range amdRows {
		check(r.name, r.source)
	}
	for _, r := range intelRows {
		check(r.name, r.source)
	}
	for name, l := range drivers {
		check(name, l.source)
	}
	for _, l := range []*line{vGPUCompute, contradiction, noRow, sharedID, otherDriver, unlisted, apu, instinctAPU, amdDriver, intelIntegrated, flex, noIntelRow} {
		check(l.name, l.source)
	}
}

// TestIDsOnce checks that no table has an id twice.
func TestIDsOnce(t *testing.T) {
	once := func(vendor string) func([]uint16) {
		seen := map[uint16]bool{}
		return func(ids []uint16) {
			for _, id := range ids {
				if seen[id] {
					t.Errorf("%s: %04x is there twice", vendor, id)
				}
				seen[id] = true
			}
		}
	}
	n, a, i := once("NVIDIA"), once("AMD"), once("Intel")
	for _, r := range nvidiaIDRows {
		n(r.ids)
	}
	for _, r := range amdRows {
		a(r.ids)
	}
	for _, r := range intelRows {
		i(r.ids)
	}
}

// TestEveryLimitHasASource looks at the limits of a GPU in each state.
func TestEveryLimitHasASource(t *testing.T) {
	seen := map[string]bool{}
	for _, confidential := range []Tri{Unknown, Yes, No} {
		for _, open := range []Tri{Unknown, Yes, No} {
			for _, sli := range []Tri{Unknown, Yes, No} {
				for _, n := range []int{0, 470, 515, 575, 580} {
					for _, l := range []*line{dataCentre, vGPUCompute} {
						f := Facts{Confidential: confidential, OpenModules: open, SLI: sli, Series: n, Virtual: Yes, Arch: "ppc64le", Firmware: noGSP}
						for _, limit := range nvidiaLimits(f, model{line: l, cc: true}) {
							seen[limit.why] = true
							if limit.source == "" || limit.why == "" || limit.change == "" && limit.read == "" {
								t.Errorf("%+v", limit)
							}
							if limit.dmabuf == Yes && limit.peermem == Yes {
								t.Errorf("takes nothing away: %+v", limit)
							}
						}
					}
				}
			}
		}
	}
	if len(seen) != 10 {
		t.Errorf("%d limits, want 10: %v", len(seen), seen)
	}
}

// TestUnlistedIsUnknown tries every device id of every vendor with everything else in
// favour: an id that no table lists is never a yes.
func TestUnlistedIsUnknown(t *testing.T) {
	listed := map[uint16]map[uint16]bool{vendorNVIDIA: {}, vendorAMD: {}, vendorIntel: {}}
	for id := range nvidiaIDs {
		listed[vendorNVIDIA][id] = true
	}
	for id := range amdIDs {
		listed[vendorAMD][id] = true
	}
	for id := range intelByID {
		listed[vendorIntel][id] = true
	}
	yes := map[uint16]int{}
	for vendor, driver := range map[uint16]string{vendorNVIDIA: "nvidia", vendorAMD: "amdgpu", vendorIntel: "xe"} {
		for id := 0; id < 1<<16; id++ {
			a := Of(Facts{
				Vendor: vendor, Device: uint16(id), Driver: driver, Series: 595, OpenModules: Yes, Virtual: No, Confidential: No,
				VRAM: Size{gib, true}, VisibleVRAM: Size{gib, true}, BAR: Size{256 * gib, true}, Arch: "amd64",
			})
			if !listed[vendor][uint16(id)] && a.Gives != Unknown {
				t.Fatalf("%04x:%04x: %+v", vendor, id, a)
			}
			if a.Gives == Yes {
				yes[vendor]++
			}
		}
	}
	for vendor, least := range map[uint16]int{vendorNVIDIA: 100, vendorAMD: 60, vendorIntel: 12} {
		if yes[vendor] < least {
			t.Errorf("%04x: %d ids are a yes, want %d or more", vendor, yes[vendor], least)
		}
	}
}

// FuzzModel gives Of any model's name: it does not panic, its answer is complete, and a
// name with GeForce in it is never a yes.
func FuzzModel(f *testing.F) {
	for _, r := range byName {
		f.Add(r.facts.Model, r.facts.Device, 580)
	}
	f.Add("NVIDIA A100\nGeForce", uint16(0x20b0), 580)
	f.Add("nvidia gEFORCE h100", uint16(0x2330), 0)
	f.Add("\xff\xfe", uint16(0), -1)
	f.Fuzz(func(t *testing.T, name string, device uint16, series int) {
		for _, virtual := range []Tri{Unknown, Yes, No} {
			facts := nv(device, name)
			facts.Series, facts.Virtual, facts.ModelRead = series, virtual, true
			a := Of(facts)
			complete(t, name, a)
			if strings.Contains(strings.ToLower(name), "geforce") && a.Gives != No {
				t.Errorf("%q, %04x: %v", name, device, a.Gives)
			}
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package directnic

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Each bit that a port's value decides is missed, in both setups.
func TestEachBitOfABoard(t *testing.T) {
	for guests, values := range map[Tri]map[string]string{ // rdma_topo, NVCX_Inline_Complex.compute_acs and PCITopo.compute_acs
		Yes: {"0000:02:00.0": "1x111x1", "0000:02:03.0": "xx111x1", "0000:00:00.0": "xx111x1", "0000:05:00.0": "xx111x1"},
		No:  {"0000:02:00.0": "xx000x0", "0000:02:03.0": "xx000x0", "0000:00:00.0": "xx000x0", "0000:05:00.0": "xx000x0"},
	} {
		for at, want := range values {
			for bit := range 7 {
				var m machine
				m.board("0000")
				if guests == Yes {
					m.forGuests("0000")
				}
				m.at(at).ACS.Ctrl ^= 1 << bit
				p := Look(m, Unknown)
				same(t, "guests by the NICs' ATS", p.Guests, guests)
				planned, _ := p.Port(addr(at))
				same(t, at+" wants", planned.Want.String(), want)
				expect := Yes
				if want[6-bit] != 'x' {
					expect = No
				}
				same(t, fmt.Sprintf("guests %v: %s with bit %d changed", guests, at, bit), planned.OK, expect)
				same(t, "the whole", p.OK(), expect)
			}
		}
	}
}

func TestBoard(t *testing.T) {
	tests := []struct {
		name, source string
		guests       Tri
		change       func(m *machine)
		shape        Shape
		ok           Tri
		say          string
		command      string
	}{
		{"as it is", rdmaTopo + ", --no-virt", No, func(*machine) {}, Inline, Yes, "", ""},
		{"for guests", rdmaTopo + ", --virt", Yes, func(m *machine) { m.forGuests("0000") }, Inline, Yes, "", ""},
		{"a host asked about guests", rdmaTopo + ", --virt", Yes, func(*machine) {}, Inline, No, "has no ATS", writeGRUB + " --virt"},
		{"guests asked about the host", rdmaTopo + ", --no-virt", No, func(m *machine) { m.forGuests("0000") }, Inline, No, "has ATS", writeGRUB + " --no-virt"},
		{"ATS alone is on", rdmaTopo + ", NVCX_Inline_Complex.check", No, func(m *machine) { m.at("0000:03:00.0").ATS.Capable = true }, Inline, No, "has ATS", "mlxconfig -d 0000:03:00.0 set ATS_ENABLED=false"},
		{"NICs that differ", rdmaTopo + ", __auto_detect_virt", Unknown, func(m *machine) { m.board("0001"); m.at("0001:03:00.0").ATS.Capable = true }, Inline, Unknown, "has it and", ""},
		{"NICs that differ, and an answer", rdmaTopo + ", --no-virt", No, func(m *machine) { m.board("0001"); m.at("0001:03:00.0").ATS.Capable = true }, Inline, No, "0001:03:00.0 has ATS", "mlxconfig -d 0001:03:00.0 set ATS_ENABLED=false"},
		{"ATS that was not read", "drivers/pci/pci-sysfs.c, pci_read_config", Unknown, func(m *machine) { m.at("0000:03:00.0").ATS = ATS{} }, Inline, Unknown, "could not be read", ""},
		{"ACS that was not read", "drivers/pci/pci-sysfs.c, pci_read_config", Unknown, func(m *machine) { m.at("0000:02:03.0").ACSErr = errUnread }, Inline, Unknown, "64 bytes", ""},
		{"no groups without guests", rdmaTopo + ", NVCX_Inline_Complex.check", No, func(m *machine) { m.at("0000:03:00.0").Group, m.at("0000:06:00.0").Group = "", "" }, Inline, Yes, "", ""},
		{"groups that differ without guests", rdmaTopo + ", NVCX_Inline_Complex.check", No, func(m *machine) { m.at("0000:03:00.0").Group = "9" }, Inline, No, "in 5", writeGRUB + " --no-virt"},
		{"one group for guests", rdmaTopo + ", NVCX_Inline_Complex.check", Yes, func(m *machine) { m.forGuests("0000"); m.at("0000:03:00.0").Group = "5" }, Inline, No, "both are in IOMMU group 5", writeGRUB + " --virt"},
		{"no group for guests", rdmaTopo + ", NVCX_Inline_Complex.check", Yes, func(m *machine) { m.forGuests("0000"); m.at("0000:03:00.0").Group = "" }, Inline, No, "has no IOMMU group", ""},
		{"a group that was not read", rdmaTopo + ", NVCX_Inline_Complex.check", Yes, func(m *machine) { m.forGuests("0000"); m.at("0000:03:00.0").GroupKnown = false }, Inline, Unknown, "could not be read", ""},
		{"another switch above", rdmaTopo + ", __get_nvcx_inline_complex walks up to the root port", No, func(m *machine) {
			m.put(port(0x1000, 0xc030, pci.PortUpstream, noACS), "0000:81:00.0", "0000:00:00.0")
			m.put(port(0x1000, 0xc030, pci.PortDownstream, 0x1d), "0000:82:00.0", "0000:81:00.0", "0000:00:00.0")
			for i := range *m {
				if f := &(*m)[i]; f.Vendor == mellanox || f.Vendor == nvidia {
					up := f.Upstream[: len(f.Upstream)-1 : len(f.Upstream)-1]
					f.Upstream = append(up, addr("0000:82:00.0"), addr("0000:81:00.0"), addr("0000:00:00.0"))
				}
			}
		}, Inline, Yes, "", ""},
		{"a second port with a NIC", rdmaTopo + ", NVCX_Inline_Complex", No, func(m *machine) {
			m.put(port(mellanox, 0x197c, pci.PortDownstream, 0), "0000:02:04.0", "0000:01:00.0", "0000:00:00.0")
			m.put(Function{Vendor: mellanox, Device: 0x1023, Class: network}, "0000:07:00.0", "0000:02:04.0", "0000:01:00.0", "0000:00:00.0")
		}, Unsupported, Unknown, "two ports", ""},
		{"a NIC and a GPU below one port", rdmaTopo + ", NVCX_Inline_Complex takes either", No, func(m *machine) {
			m.put(port(mellanox, 0x197c, pci.PortDownstream, 0), "0000:05:01.0", "0000:04:00.0", "0000:02:03.0", "0000:01:00.0", "0000:00:00.0")
			m.put(Function{Vendor: mellanox, Device: 0x1023, Class: network}, "0000:07:00.0", "0000:05:01.0", "0000:04:00.0", "0000:02:03.0", "0000:01:00.0", "0000:00:00.0")
		}, Unsupported, Unknown, "below port 0000:02:03.0 both", ""},
		{"a second port with a GPU", rdmaTopo + ", NVCX_Inline_Complex", No, func(m *machine) {
			m.put(port(mellanox, 0x197c, pci.PortDownstream, 0), "0000:02:04.0", "0000:01:00.0", "0000:00:00.0")
			m.put(Function{Vendor: nvidia, Device: 0x2901, Class: display}, "0000:07:00.0", "0000:02:04.0", "0000:01:00.0", "0000:00:00.0")
		}, Unsupported, Unknown, "GPUs are below two ports", ""},
		{"the NIC elsewhere", rdmaTopo + ", __get_nvcx_inline_complex", No, func(m *machine) { m.at("0000:03:00.0").Upstream = []pciaddr.Addr{addr("0000:00:00.0")} }, Unsupported, Unknown, "no NIC is below its switch", ""},
		{"firmware without ATS for guests", rdmaTopo + ", NVCX_Inline_Complex.check", Yes, func(m *machine) { m.forGuests("0000"); m.at("0000:03:00.0").ATS = ATS{Known: true} }, Inline, No, "has no ATS", "mlxconfig -d 0000:03:00.0 set ATS_ENABLED=true"},
		{"a group of the GPU only, without guests", rdmaTopo + ", NVCX_Inline_Complex.check", No, func(m *machine) { m.at("0000:03:00.0").Group = "" }, Inline, No, "0000:03:00.0 is in IOMMU group none", writeGRUB + " --no-virt"},
		{"a root port of Grace", rdmaTopo + ", __get_nvcx_inline_complex asks for generic_rp", No, func(m *machine) {
			m.at("0000:00:00.0").Vendor, m.at("0000:00:00.0").Device = nvidia, 0x22b8
		}, Unsupported, Unknown, "one of Grace", ""},
		{"a port of a switch that is not known", rdmaTopo + ", PCIDevice.finish_loading", No, func(m *machine) { m.at("0000:02:00.0").Device = 0x197d }, Unsupported, Unknown, "of no switch", ""},
		{"a port without ACS", rdmaTopo + ", NVCX_Inline_Complex.compute_acs", No, func(m *machine) { m.at("0000:02:03.0").ACS = pci.ACS{} }, Unsupported, Unknown, "has no ACS", ""},
		{"a GPU elsewhere", rdmaTopo + ", __get_nvcx_inline_complex", No, func(m *machine) {
			m.put(Function{Vendor: nvidia, Device: 0x2901, Class: display}, "0000:08:00.0", "0000:05:00.0", "0000:04:00.0", "0000:02:03.0")
		}, Unsupported, Unknown, "four bridges", ""},
		{"a GPU on a root port", "the shapes' values contradict each other: " + rdmaTopo + ", __detect_topo_type", No, func(m *machine) {
			m.put(port(0x8086, 0x352a, pci.PortRoot, 0), "0000:00:01.0")
			m.put(Function{Vendor: nvidia, Device: 0x2901, Class: display}, "0000:09:00.0", "0000:00:01.0")
		}, Unsupported, Unknown, "0000:09:00.0 is on a root port", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.source == "" {
				t.Fatal("no source")
			}
			var m machine
			m.board("0000")
			test.change(&m)
			p := Look(m, test.guests)
			same(t, "shape", p.Shape, test.shape)
			same(t, "OK", p.OK(), test.ok)
			same(t, "command", p.Remedy.Command, test.command)
			if strings.Contains(test.say, "ATS") && test.guests != Unknown && !strings.Contains(p.Remedy.Change, "set ATS_ENABLED") {
				t.Errorf("change %q says nothing of ATS", p.Remedy.Change)
			}
			if said := p.said(); !strings.Contains(said, test.say) {
				t.Errorf("nothing says %q:\n%s", test.say, said)
			}
			same(t, "covers the port toward the GPU", p.Covers(addr("0000:02:03.0")), test.name != "a port without ACS")
		})
	}
}

// The rules for guests are the opposite of those for the host itself.
func TestRulesOfABoard(t *testing.T) {
	for guests, want := range map[Tri][2]string{ // rdma_topo, NVCX_Inline_Complex.check
		Yes: {"groups of their own", "has the ATS"}, No: {"one IOMMU group", "has no ATS"},
	} {
		var m machine
		m.board("0000")
		c := Look(m, guests).Complexes[0]
		same(t, "NICs", c.NICsOK, Yes)
		for i, r := range c.Rules {
			if !strings.Contains(r.Want, want[i]) {
				t.Errorf("guests %v: rule %q", guests, r.Want)
			}
		}
	}
}

// Where the setup is not known, no port is judged.
func TestBoardUndecided(t *testing.T) {
	var m machine
	m.board("0000")
	m.at("0000:03:00.0").ATS = ATS{} // rdma_topo, __auto_detect_virt
	p := Look(m, Unknown)
	for _, port := range p.Ports {
		if port.OK != Unknown || port.Decided || port.Want != (Flags{}) {
			t.Errorf("%+v", port)
		}
		same(t, "keeps", p.Keeps(port.Addr, pci.ACSRequestRedirect), true)
	}
	for _, c := range p.Complexes {
		same(t, "complex", c.OK(), Unknown)
		for _, port := range c.Ports {
			same(t, "decided", port.Decided, false)
		}
		for _, r := range c.Rules {
			same(t, "want", r.Want, "")
		}
	}
	same(t, "entries", len(p.Entries()), 0)
	if !strings.Contains(p.Remedy.Change, "--virt") || !strings.Contains(p.Remedy.Change, "--no-virt") {
		t.Errorf("remedy %q", p.Remedy.Change)
	}
}

// SPDX-License-Identifier: Apache-2.0

package directnic

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/pciaddr"
)

func TestNUMA(t *testing.T) {
	tests := []struct {
		name, source string
		change       func(m *machine)
		shape        Shape
		ok           Tri
		say          string
	}{
		{"Vera and ConnectX-9", rdmaTopo + ", kernel_acs_isolated", func(*machine) {}, NUMA, Yes, ""},
		{"Grace and ConnectX-7", "linux-rdma/rdma-core#1779", func(m *machine) {
			for _, at := range []string{"0000:00:00.0", "0001:00:00.0"} {
				m.at(at).Device, m.at(at).ACS.Ctrl = 0x22b8, 0x1d
			}
			m.at("0001:01:00.0").Device = 0x1021
		}, NUMA, Yes, ""},
		{"Vera without request redirect", rdmaTopo + ", kernel_acs_isolated", func(m *machine) { m.at("0000:00:00.0").ACS.Ctrl = 0x11 }, NUMA, No, "request redirect must be on"},
		{"Vera with completion redirect", rdmaTopo + ", kernel_acs_isolated", func(m *machine) { m.at("0000:00:00.0").ACS.Ctrl = 0x1d }, NUMA, No, "completion redirect must be off"},
		{"ACS that was not read", "drivers/pci/pci-sysfs.c, pci_read_config", func(m *machine) { m.at("0000:00:00.0").ACSErr = errUnread }, NUMA, Unknown, "64 bytes"},
		{"a root port without ACS", rdmaTopo + ", PCITopo.compute_acs", func(m *machine) { m.at("0000:00:00.0").ACS = pci.ACS{} }, NUMA, Yes, ""},
		{"a shared group", rdmaTopo + ", NVCX_NUMA_Complex.check", func(m *machine) { m.at("0001:01:00.0").Group = "1" }, NUMA, No, "shares IOMMU group 1"},
		{"no group", rdmaTopo + ", NVCX_NUMA_Complex.check", func(m *machine) { m.at("0001:01:00.0").Group = "" }, NUMA, No, "has no IOMMU group"},
		{"a group that was not read", rdmaTopo + ", NVCX_NUMA_Complex.check", func(m *machine) { m.at("0001:01:00.0").GroupKnown = false }, NUMA, Unknown, "could not be read"},
		{"a NIC with ATS", rdmaTopo + ", NVCX_NUMA_Complex.check", func(m *machine) { m.at("0001:01:00.0").ATS.Capable = true }, NUMA, No, "has ATS"},
		{"ATS that was not read", rdmaTopo + ", NVCX_NUMA_Complex.check", func(m *machine) { m.at("0001:01:00.0").ATS = ATS{} }, NUMA, Unknown, "could not be read"},
		{"two PFs", rdmaTopo + ", NVCX_NUMA_Complex", func(m *machine) {
			m.put(Function{Vendor: mellanox, Device: 0x1025, Class: network, Group: "3", Node: 1}, "0001:01:00.1", "0001:00:00.0")
		}, NUMA, Yes, ""},
		{"a node without a GPU", rdmaTopo + ", NVCX_NUMA_Complex", func(m *machine) { m.at("0001:00:00.0").Node = 2 }, Unsupported, Unknown, "NUMA node 2 has 0 NICs"},
		{"no node at all", rdmaTopo + ", __build_topo", func(m *machine) { m.at("0000:01:00.0").Node, m.at("0001:01:00.0").Node = -1, -1 }, Unsupported, Unknown, "no function names its NUMA node"},
		{"another processor", "rdma-core#1779 is for Grace and Vera", func(m *machine) { m.at("0000:00:00.0").Vendor, m.at("0000:00:00.0").Device = 0x8086, 0x352a }, None, Unknown, "neither Grace nor Vera"},
		{"a GPU of Vera behind one of another processor", rdmaTopo + ", __detect_topo_type takes any", func(m *machine) {
			m.put(port(0x8086, 0x352a, pci.PortRoot, 0), "0000:00:00.1")
			m.put(Function{Vendor: nvidia, Device: 0x2901, Class: display, Group: "9", Node: 1}, "0000:00:03.0", "0000:00:00.1")
		}, NUMA, Yes, ""},
		{"no GPU", rdmaTopo + ", __detect_topo_type", func(m *machine) { m.at("0000:01:00.0").Class = 0x058000 }, None, Unknown, "no DMA function"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.source == "" {
				t.Fatal("no source")
			}
			m := vera()
			test.change(&m)
			p := Look(m, Unknown)
			same(t, "shape", p.Shape, test.shape)
			same(t, "OK", p.OK(), test.ok)
			if said := p.said(); !strings.Contains(said, test.say) {
				t.Errorf("nothing says %q:\n%s", test.say, said)
			}
			if c, ok := p.Complex(addr("0001:01:00.0"), addr("0000:01:00.0")); ok != (test.shape == NUMA) || ok && c.OK() != test.ok {
				t.Errorf("complex %+v, %v", c, ok)
			} else if ok {
				same(t, "NICs", c.NICsOK, Yes)
				for i, port := range c.Ports {
					same(t, "role", port.Role, RootPort)
					same(t, "once", slices.IndexFunc(c.Ports, func(p PortPlan) bool { return p.Addr == port.Addr }), i)
				}
			}
			same(t, "covers the GPU's root port", p.Covers(addr("0000:00:00.0")), test.shape != None && m.at("0000:00:00.0").ACS != pci.ACS{})
		})
	}
}

// The remedy for ATS says false, and that for groups needs no parameter.
func TestRemedyOfNUMA(t *testing.T) {
	m := vera() // rdma_topo, NVCX_NUMA_Complex.check
	m.at("0001:01:00.0").ATS.Capable = true
	same(t, "ATS", Look(m, Unknown).Remedy.Command, "mlxconfig -d 0001:01:00.0 set ATS_ENABLED=false")
	second := *m.at("0001:01:00.0")
	second.Group = "3"
	m.put(second, "0001:01:00.1", "0001:00:00.0")
	same(t, "ATS of two", Look(m, Unknown).Remedy.Command, "for nic in 0001:01:00.0 0001:01:00.1; do mlxconfig -d $nic set ATS_ENABLED=false; done")
	m = vera()
	m.at("0001:01:00.0").Group = "1"
	r := Look(m, Unknown).Remedy
	same(t, "groups: command", r.Command+r.Parameter, "")
	if !strings.Contains(r.Change, "reboot") {
		t.Errorf("groups: %q", r.Change)
	}
}

func TestKinds(t *testing.T) {
	for _, test := range []struct {
		source string
		f      Function
		want   kind
	}{
		{rdmaTopo, Function{Vendor: 0x15b3, Device: 0x1021}, nicKind},
		{rdmaTopo, Function{Vendor: 0x15b3, Device: 0x1023}, nicKind},
		{rdmaTopo, Function{Vendor: 0x15b3, Device: 0x1025}, nicKind},
		{rdmaTopo, Function{Vendor: 0x15b3, Device: 0x2100}, dmaKind},
		{rdmaTopo, Function{Vendor: 0x15b3, Device: 0xa2dc, Class: network}, otherKind},
		{rdmaTopo, Function{Vendor: 0x15b3, Device: 0x1979, Class: bridge}, switchKind},
		{rdmaTopo, Function{Vendor: 0x15b3, Device: 0x197b, Class: bridge}, blueFieldSwitch},
		{rdmaTopo, Function{Vendor: 0x15b3, Device: 0x197c, Class: bridge}, switchKind},
		{rdmaTopo, Function{Vendor: 0x10de, Device: 0x22b1, Class: bridge}, graceRoot},
		{rdmaTopo, Function{Vendor: 0x10de, Device: 0x22b2, Class: bridge}, graceRoot},
		{rdmaTopo, Function{Vendor: 0x10de, Device: 0x22b8, Class: bridge}, graceRoot},
		{rdmaTopo, Function{Vendor: 0x10de, Device: 0x2f95, Class: bridge}, veraRoot},
		{rdmaTopo, Function{Vendor: 0x10de, Device: 0x2f96, Class: bridge}, veraRoot},
		{rdmaTopo, Function{Vendor: 0x8086, Device: 0x352a, Class: bridge}, anyRoot},
		{rdmaTopo, Function{Vendor: 0x1000, Device: 0xc030, Class: bridge, Upstream: []pciaddr.Addr{{}}}, otherKind},
		{rdmaTopo, Function{Vendor: 0x10de, Device: 0x2330, Class: display}, gpuKind},
		{"PCI ID repository, 10de:22a3 is an NVSwitch", Function{Vendor: 0x10de, Device: 0x22a3, Class: 0x068000}, otherKind},
		{"PCI ID repository, 15b3:197d is a bridge of ConnectX-8", Function{Vendor: 0x15b3, Device: 0x197d, Class: bridge, Upstream: []pciaddr.Addr{{}}}, otherKind},
	} {
		same(t, fmt.Sprintf("%04x:%04x", test.f.Vendor, test.f.Device), kindOf(test.f), test.want)
	}
}

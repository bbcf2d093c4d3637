// SPDX-License-Identifier: Apache-2.0

package directnic

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// A machine of four trays has the parameter that a cloud gives to its GB300 nodes.
func TestParameterOfGB300(t *testing.T) {
	// GoogleCloudPlatform/cluster-toolkit#6097.
	const want = "pci=config_acs=" +
		"xx111x0@0008:00:00.0;xx110x1@0008:02:00.0;xx101x1@0008:02:03.0;xx111x0@0009:00:00.0;xx110x1@0009:02:00.0;xx101x1@0009:02:01.0;" +
		"xx111x0@0018:00:00.0;xx110x1@0018:02:00.0;xx101x1@0018:02:03.0;xx111x0@0019:00:00.0;xx110x1@0019:02:00.0;xx101x1@0019:02:01.0"
	var m machine
	m.tray("0019", "02:01.0", "0013", "4", "d")
	m.tray("0008", "02:03.0", "0002", "1", "a")
	m.tray("0018", "02:03.0", "0010", "3", "c")
	m.tray("0009", "02:01.0", "0000", "2", "b")
	p := Look(m, Unknown)
	same(t, "shape", p.Shape, DataDirect)
	same(t, "OK", p.OK(), Yes)
	same(t, "parameter", Parameter(p.Entries()), want)
	same(t, "remedy of a machine that is right", p.Remedy, Remedy{})
}

// Case 07 in both states.
func TestTrayGoodAndBad(t *testing.T) {
	// linux-rdma/rdma-core#1644, NVIDIA/nodewright-packages#111.
	const want = "pci=config_acs=xx111x0@0008:00:00.0;xx110x1@0008:02:00.0;xx101x1@0008:02:03.0"
	good := Look(oneTray(), Unknown)
	same(t, "good: OK", good.OK(), Yes)
	same(t, "good: remedy", good.Remedy, Remedy{})

	m := oneTray()
	for i, at := range []string{"0008:00:00.0", "0008:02:00.0", "0008:02:03.0"} {
		m.at(at).ACS.Ctrl = 0x1d
		m.at(at).Group = fmt.Sprint(i)
	}
	m.at("0008:03:00.0").Group, m.at("0008:06:00.0").Group = "3", "7"
	bad := Look(m, Unknown)
	same(t, "bad: shape", bad.Shape, DataDirect)
	same(t, "bad: OK", bad.OK(), No)
	same(t, "bad: command", bad.Remedy.Command, "rdma_topo write-grub-acs")
	same(t, "bad: parameter", bad.Remedy.Parameter, want)
	if c, ok := bad.Complex(addr("0000:03:00.0"), addr("0008:06:00.0")); !ok || c.OK() != No {
		t.Errorf("bad: complex %+v, %v", c, ok)
	}

	for _, p := range []Plan{good, bad} {
		// In neither state a port of the tray may have its redirects cleared.
		for _, at := range []string{"0008:00:00.0", "0008:02:00.0", "0008:02:03.0", "0008:05:00.0", "0000:00:00.0"} {
			same(t, "covers "+at, p.Covers(addr(at)), true)
			same(t, "keeps redirects of "+at, p.Keeps(addr(at), pci.ACSRequestRedirect|pci.ACSCompletionRedirect), true)
		}
		same(t, "covers the GPU", p.Covers(addr("0008:06:00.0")), false)
		mover := p.Mover(addr("0000:03:00.0"))
		same(t, "DMA function", mover.DMA, addr("0008:03:00.0"))
		same(t, "has one", mover.Has, Yes)
		same(t, "is usable", mover.Usable, Yes)
	}
	// The bit that the plan wants off may go, once it is on.
	same(t, "keeps the NIC port's request redirect", bad.Keeps(addr("0008:02:00.0"), pci.ACSRequestRedirect), false)
	same(t, "keeps the GPU port's completion redirect", bad.Keeps(addr("0008:02:03.0"), pci.ACSCompletionRedirect), false)
}

// Each bit that a port's value decides is missed, and no other is.
func TestEachBitOfATray(t *testing.T) {
	for at, want := range map[string]string{ // rdma_topo, NVCX_DMA_Complex.compute_acs
		"0008:02:00.0": "xx110x1", "0008:02:03.0": "xx101x1", "0008:00:00.0": "xx111x0",
		"0008:05:00.0": "xx111x1", "0000:00:00.0": "xx111x1",
	} {
		for bit := range 7 {
			m := oneTray()
			m.at(at).ACS.Ctrl ^= 1 << bit
			decided := want[6-bit] != 'x'
			p := Look(m, Unknown)
			planned, _ := p.Port(addr(at))
			same(t, at+" wants", planned.Want.String(), want)
			expect := Yes
			if decided {
				expect = No
			}
			same(t, fmt.Sprintf("%s with bit %d changed", at, bit), planned.OK, expect)
			same(t, "the whole", p.OK(), expect)
			if named := strings.Contains(planned.Why, pci.ACSBits(1<<bit).String()); named != decided {
				t.Errorf("%s with bit %d changed: %q", at, bit, planned.Why)
			}
			if (p.Remedy.Parameter != "") != decided {
				t.Errorf("%s with bit %d changed: remedy %+v", at, bit, p.Remedy)
			}
		}
	}
}

func TestTray(t *testing.T) {
	tests := []struct {
		name, source string
		change       func(m *machine)
		shape        Shape
		ok           Tri
		say          string // in Why of plan, port, rule or mover
	}{
		{"an NVMe drive beside the GPU", rdmaTopo + ", __get_nvcx_complex", func(m *machine) {
			m.put(Function{Vendor: 0x144d, Device: 0xa80a, Class: 0x010802}, "0008:07:00.0", "0008:05:00.0", "0008:04:00.0", "0008:02:03.0", "0008:01:00.0", "0008:00:00.0")
		}, Unsupported, Unknown, "0008:07:00.0 (144d:a80a) is below root port"},
		{"two GPUs", rdmaTopo + ", __get_nvcx_complex", func(m *machine) {
			m.put(Function{Vendor: nvidia, Device: 0x31c2, Class: display}, "0008:06:00.1", "0008:05:00.0", "0008:04:00.0", "0008:02:03.0", "0008:01:00.0", "0008:00:00.0")
		}, Unsupported, Unknown, "2 GPUs"},
		{"no GPU", rdmaTopo + ", __get_nvcx_complex", func(m *machine) { m.at("0008:06:00.0").Class = 0x058000 }, Unsupported, Unknown, "0 GPUs"},
		{"a root port of Vera", rdmaTopo + ", __get_nvcx_complex asks for grace_rp", func(m *machine) { m.at("0008:00:00.0").Device = 0x2f95 }, Unsupported, Unknown, "of Vera"},
		{"a root port of another processor", rdmaTopo + ", __get_nvcx_complex", func(m *machine) { m.at("0008:00:00.0").Vendor = 0x8086 }, Unsupported, Unknown, "root port of Grace"},
		{"a bridge that rdma_topo does not know", "PCI ID repository, 15b3:197d; " + rdmaTopo + ", pci_device_types", func(m *machine) { m.at("0008:04:00.0").Device = 0x197d }, Unsupported, Unknown, "three ports"},
		{"the GPU below the first switch", rdmaTopo + ", __get_nvcx_complex", func(m *machine) {
			m.at("0008:06:00.0").Upstream = m.at("0008:04:00.0").Upstream
		}, Unsupported, Unknown, "three ports"},
		{"a port of the wrong type", "PCI Express Base Specification, device/port type", func(m *machine) { m.at("0008:02:03.0").Port = pci.PortUpstream }, Unsupported, Unknown, "another type"},
		{"port types that were not read", "drivers/pci/pci-sysfs.c, pci_read_config: 64 bytes without CAP_SYS_ADMIN", func(m *machine) {
			for i := range *m {
				(*m)[i].Port = pci.PortNone
			}
		}, DataDirect, Yes, ""},
		{"a port without ACS", rdmaTopo + ", NVCX_DMA_Complex.compute_acs asserts it", func(m *machine) { m.at("0008:02:00.0").ACS = pci.ACS{} }, Unsupported, Unknown, "has no ACS"},
		{"ACS of the DMA function's port unread", "drivers/pci/pci-sysfs.c, pci_read_config", func(m *machine) { m.at("0008:02:00.0").ACSErr = errUnread }, DataDirect, Unknown, "64 bytes"},
		{"ACS of another port unread", "drivers/pci/pci-sysfs.c, pci_read_config", func(m *machine) { m.at("0000:00:00.0").ACSErr = errUnread }, DataDirect, Unknown, "64 bytes"},
		{"a port that cannot forward upstream", "PCI Express Base Specification, ACS capability register", func(m *machine) {
			m.at("0008:02:00.0").ACS = pci.ACS{Present: true, Cap: everyBit &^ pci.ACSUpstreamForward, Ctrl: 0x09}
		}, DataDirect, No, "the port has no upstream forwarding"},
		{"groups that differ", rdmaTopo + ", NVCX_DMA_Complex.check", func(m *machine) { m.at("0008:03:00.0").Group = "3" }, DataDirect, No, "is in IOMMU group 3"},
		{"no groups", rdmaTopo + ", NVCX_DMA_Complex.check", func(m *machine) { m.at("0008:03:00.0").Group, m.at("0008:06:00.0").Group = "", "" }, DataDirect, No, "has no IOMMU group"},
		{"a group that was not read", rdmaTopo + ", NVCX_DMA_Complex.check", func(m *machine) { m.at("0008:06:00.0").GroupKnown = false }, DataDirect, Unknown, "could not be read"},
		{"two PFs of one card", rdmaTopo + ", vpd_v3s", func(m *machine) {
			m.put(Function{Vendor: mellanox, Device: 0x1023, Class: network, Driver: "mlx5_core", Card: "7"}, "0000:03:00.1", "0000:00:00.0")
		}, DataDirect, Yes, ""},
		{"VPD that was not read", "rdma_topo needs root for it; " + rdmaTopo + ", SysfsDevice", func(m *machine) {
			for i := range *m {
				(*m)[i].VPDRead, (*m)[i].Card, (*m)[i].VU = false, "", ""
			}
		}, DataDirect, Yes, "could not be read"},
		{"a NIC's VPD that was not read", "rdma_topo needs root for it; " + rdmaTopo + ", SysfsDevice", func(m *machine) { m.at("0000:03:00.0").VPDRead, m.at("0000:03:00.0").Card = false, "" }, DataDirect, Yes, "could not be read"},
		{"VPD without V3", rdmaTopo + ", __get_nvcx_complex", func(m *machine) { m.at("0008:03:00.0").Card = "" }, Unsupported, Unknown, "has no keyword V3"},
		{"no NIC of the card", rdmaTopo + ", NVCX_DMA_Complex", func(m *machine) { m.at("0000:03:00.0").Card = "8" }, Unsupported, Unknown, "no NIC has the card"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.source == "" {
				t.Fatal("no source")
			}
			m := oneTray()
			test.change(&m)
			p := Look(m, Unknown)
			same(t, "shape", p.Shape, test.shape)
			same(t, "OK", p.OK(), test.ok)
			if said := p.said(); !strings.Contains(said, test.say) {
				t.Errorf("nothing says %q:\n%s", test.say, said)
			}
			if test.shape == Unsupported {
				same(t, "remedy", p.Remedy, Remedy{})
				for _, at := range []string{"0008:02:03.0", "0008:05:00.0", "0000:00:00.0"} {
					same(t, "covers "+at, p.Covers(addr(at)), true)
					same(t, "keeps "+at, p.Keeps(addr(at), pci.ACSRequestRedirect), true)
				}
			}
		})
	}
}

// said is all that a plan says about a machine.
func (p Plan) said() string {
	out := []string{p.Why}
	for _, port := range p.Ports {
		out = append(out, port.Why)
	}
	for _, c := range p.Complexes {
		for _, r := range c.Rules {
			out = append(out, r.Why)
		}
	}
	for _, n := range p.tree.of(nicKind) {
		out = append(out, p.Mover(n.Addr).Why)
	}
	return strings.Join(out, "\n")
}

// A port whose value the kernel sets by itself is not left to the command.
func TestRemedyOfATray(t *testing.T) {
	tests := []struct {
		name, source       string
		change             func(m machine)
		command, parameter string
		say                string
	}{
		{"a port that the kernel sets", rdmaTopo + ", cmd_write_grub_acs leaves it out", func(m machine) { m.at("0000:00:00.0").ACS.Ctrl = 0 },
			"", "pci=config_acs=xx111x1@0000:00:00.0;xx111x0@0008:00:00.0;xx110x1@0008:02:00.0;xx101x1@0008:02:03.0", "disable_acs_redir"},
		{"both kinds of ports", rdmaTopo + ", cmd_write_grub_acs", func(m machine) { m.at("0000:00:00.0").ACS.Ctrl, m.at("0008:00:00.0").ACS.Ctrl = 0, 0x1d },
			writeGRUB, "pci=config_acs=xx111x1@0000:00:00.0;xx111x0@0008:00:00.0;xx110x1@0008:02:00.0;xx101x1@0008:02:03.0", "leaves out"},
		{"groups from before setpci", rdmaTopo + ", cmd_setpci_acs", func(m machine) { m.at("0008:03:00.0").Group = "3" },
			writeGRUB, "pci=config_acs=xx111x0@0008:00:00.0;xx110x1@0008:02:00.0;xx101x1@0008:02:03.0", "later changes of ACS do not change them"},
		{"no IOMMU", rdmaTopo + ", NVCX_DMA_Complex.check", func(m machine) { m.at("0008:03:00.0").Group, m.at("0008:06:00.0").Group = "", "" },
			"", "", "turn the IOMMU on"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := oneTray()
			test.change(m)
			r := Look(m, Unknown).Remedy
			same(t, "command", r.Command, test.command)
			same(t, "parameter", r.Parameter, test.parameter)
			same(t, "weakens", r.Weakens != "", test.parameter != "")
			if !strings.Contains(r.Change, test.say) {
				t.Errorf("change %q does not say %q", r.Change, test.say)
			}
		})
	}
}

func TestMover(t *testing.T) {
	const driver = "drivers/infiniband/hw/mlx5/data_direct.c, mlx5_data_direct_probe"
	tests := []struct {
		name, source string
		change       func(m *machine)
		nic          string
		has, usable  Tri
		say          string
	}{
		{"not bound", driver, func(m *machine) { m.at("0008:03:00.0").Driver = "" }, "0000:03:00.0", Yes, No, "mlx5_ib is not bound"},
		{"without VU", driver, func(m *machine) { m.at("0008:03:00.0").Driver, m.at("0008:03:00.0").VU = "", "" }, "0000:03:00.0", Yes, No, "keyword VU"},
		{"bound though VU was not seen", driver + " fails without VU", func(m *machine) { m.at("0008:03:00.0").VU = "" }, "0000:03:00.0", Yes, Yes, "keyword V3"},
		{"given to a guest", driver, func(m *machine) { m.at("0008:03:00.0").Driver = "vfio-pci" }, "0000:03:00.0", Yes, No, "vfio-pci is bound"},
		{"the NIC's VPD unread", rdmaTopo + ", parse_vpd", func(m *machine) { m.at("0000:03:00.0").VPDRead = false }, "0000:03:00.0", Unknown, Unknown, "the NIC's VPD"},
		{"the DMA function's VPD unread", rdmaTopo + ", parse_vpd", func(m *machine) { m.at("0008:03:00.0").VPDRead = false }, "0000:03:00.0", Unknown, Unknown, "0008:03:00.0"},
		{"the NIC without V3", rdmaTopo + ", parse_vpd", func(m *machine) { m.at("0000:03:00.0").Card = "" }, "0000:03:00.0", Unknown, Unknown, "V3"},
		{"another card", rdmaTopo + ", vpd_v3s", func(m *machine) { m.at("0000:03:00.0").Card = "8" }, "0000:03:00.0", No, No, "of this card"},
		{"ConnectX-7", "PCI ID repository, 15b3:1021; data_direct.c names ConnectX-8", func(m *machine) { m.at("0000:03:00.0").Device = 0x1021 }, "0000:03:00.0", No, No, "ConnectX-8 is the first"},
		{"a machine without any", driver, func(m *machine) { m.at("0008:03:00.0").Device = 0x2101 }, "0000:03:00.0", No, No, "the machine has no DMA function"},
		{"two of one card", rdmaTopo + ", vpd_v3s", func(m *machine) { m.tray("0009", "02:01.0", "0002", "91", "7") }, "0000:03:00.0", Unknown, Unknown, "2 DMA functions"},
		{"a NIC that is not in the list", "the caller's list", func(*machine) {}, "0000:04:00.0", Unknown, Unknown, "not among"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := oneTray()
			test.change(&m)
			got := Look(m, Unknown).Mover(addr(test.nic))
			same(t, "has", got.Has, test.has)
			same(t, "usable", got.Usable, test.usable)
			if !strings.Contains(got.Why, test.say) {
				t.Errorf("%q does not say %q", got.Why, test.say)
			}
		})
	}
}

// A complex is of a NIC and the GPU beside its DMA function, and of no other pair.
func TestComplexOfATray(t *testing.T) {
	m := oneTray() // torchcomms#3104: the DMA function serves the GPU of its own PCI domain
	m.tray("0009", "02:01.0", "0002", "91", "8")
	p := Look(m, Unknown)
	for _, test := range []struct {
		nic, gpu string
		want     bool
	}{
		{"0000:03:00.0", "0008:06:00.0", true}, {"0008:03:00.0", "0008:06:00.0", true}, {"0002:03:00.0", "0009:06:00.0", true},
		{"0000:03:00.0", "0009:06:00.0", false}, {"0002:03:00.0", "0008:06:00.0", false}, {"0009:03:00.0", "0008:06:00.0", false},
	} {
		c, ok := p.Complex(addr(test.nic), addr(test.gpu))
		same(t, test.nic+" and "+test.gpu, ok, test.want)
		if ok && (c.OK() != Yes || len(c.Ports) != 3) {
			t.Errorf("%s and %s: %+v", test.nic, test.gpu, c)
		}
	}
	// A port of one complex says nothing about the other.
	m.at("0009:02:00.0").ACS.Ctrl = 0x1d
	p = Look(m, Unknown)
	first, _ := p.Complex(addr("0000:03:00.0"), addr("0008:06:00.0"))
	second, _ := p.Complex(addr("0002:03:00.0"), addr("0009:06:00.0"))
	same(t, "the complex that is right", first.OK(), Yes)
	same(t, "the complex that is wrong", second.OK(), No)
}

// The NICs of a complex are known if all VPD was read.
func TestNICsOfAComplex(t *testing.T) {
	p := Look(oneTray(), Unknown) // rdma_topo, vpd_v3s
	same(t, "NICs", p.Complexes[0].NICsOK, Yes)
	for _, at := range []string{"0000:03:00.0", "0008:03:00.0"} {
		m := oneTray()
		m.at(at).VPDRead, m.at(at).Card = false, ""
		p := Look(m, Unknown)
		same(t, "shape with the VPD of "+at+" unread", p.Shape, DataDirect)
		same(t, "NICs with the VPD of "+at+" unread", p.Complexes[0].NICsOK, Unknown)
		_, ok := p.Complex(addr("0000:03:00.0"), addr("0008:06:00.0"))
		same(t, "complex with the VPD of "+at+" unread", ok, false)
	}
}

// A port that is right keeps all that it has, and one that differs keeps what it needs.
func TestKeeps(t *testing.T) {
	m := oneTray() // rdma_topo leaves translation blocking as it is: "x"
	m.at("0008:02:00.0").ACS.Ctrl |= pci.ACSTranslationBlock
	same(t, "a bit that is open, of a port that is right", Look(m, Unknown).Keeps(addr("0008:02:00.0"), pci.ACSTranslationBlock), true)
	m.at("0008:02:00.0").ACS.Ctrl |= pci.ACSRequestRedirect
	same(t, "a bit that is open, of a port that differs", Look(m, Unknown).Keeps(addr("0008:02:00.0"), pci.ACSTranslationBlock), false)
	same(t, "a bit that is off", Look(oneTray(), Unknown).Keeps(addr("0008:02:00.0"), pci.ACSEgressControl), false)
	same(t, "a port that the plan does not have", Look(oneTray(), Unknown).Keeps(addr("0008:01:00.0"), pci.ACSRequestRedirect), false)
}

// The sentence about a port names the bits of both directions.
func TestDifference(t *testing.T) {
	for control, want := range map[pci.ACSBits]string{ // the port toward the DMA function wants xx110x1 (rdma_topo)
		0x19: "", 0x1d: "request redirect must be off", 0x11: "completion redirect must be on",
		0x15: "completion redirect must be on, and request redirect off",
	} {
		m := oneTray()
		m.at("0008:02:00.0").ACS.Ctrl = control
		p, _ := Look(m, Unknown).Port(addr("0008:02:00.0"))
		same(t, "why", p.Why, want)
		same(t, "OK", p.OK == Yes, want == "")
		same(t, "OK", p.OK == No, want != "")
	}
}

// A list whose bridges are above each other ends in an answer.
func TestCircle(t *testing.T) {
	m := oneTray()
	m.at("0008:00:00.0").Upstream = m.at("0008:06:00.0").Upstream
	same(t, "shape", Look(m, Unknown).Shape, Unsupported)
	for i := range m {
		m[i].Upstream = []pciaddr.Addr{m[(i+1)%len(m)].Addr}
	}
	Look(m, Unknown)
	same(t, "shape of nothing", Look(nil, Unknown).Shape, None)
}

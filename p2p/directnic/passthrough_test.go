// SPDX-License-Identifier: Apache-2.0

package directnic

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/pciaddr"
)

const appendix = `NVIDIA AI Enterprise, "Optimizing VM configuration", appendix "ATS and ACS configuration"`

// host is the machine of case 13: an H100 and a ConnectX-7 below one switch, both
// given to a guest, and neither ATS nor direct translated on.
func host() machine {
	var m machine
	m.put(port(0x8086, 0x352a, pci.PortRoot, 0x1d), "0000:10:01.0")
	m.put(port(0x1000, 0xc030, pci.PortUpstream, noACS), "0000:11:00.0", "0000:10:01.0")
	m.put(port(0x1000, 0xc030, pci.PortDownstream, 0x1d), "0000:12:00.0", "0000:11:00.0", "0000:10:01.0")
	m.put(port(0x1000, 0xc030, pci.PortDownstream, 0x1d), "0000:12:01.0", "0000:11:00.0", "0000:10:01.0")
	m.put(Function{Vendor: nvidia, Device: 0x2330, Class: display, Driver: "vfio-pci", Group: "4"}, "0000:13:00.0", "0000:12:00.0", "0000:11:00.0", "0000:10:01.0")
	m.put(Function{Vendor: mellanox, Device: 0x1021, Class: infiniband, Driver: "vfio-pci", Group: "6"}, "0000:14:00.0", "0000:12:01.0", "0000:11:00.0", "0000:10:01.0")
	m.at("0000:14:00.0").ATS = ATS{Known: true, Capable: true}
	return m
}

// right is that host as it should be.
func right() machine {
	m := host()
	m.at("0000:12:01.0").ACS.Ctrl = 0x5d
	m.at("0000:14:00.0").ATS.Enabled = true
	return m
}

func TestPassthrough(t *testing.T) {
	const reported = "NVIDIA/nccl-tests#380, NVIDIA/nccl#1464, NVIDIA/nccl#2171"
	tests := []struct {
		name, source       string
		of                 func() machine
		change             func(m *machine)
		noATS              Tri
		ok                 Tri
		off, unread        []string // a part of each sentence, in order
		command, parameter string
	}{
		{"case 13", reported, host, func(*machine) {}, No, No, []string{"0000:12:01.0: direct translated must be on", "0000:14:00.0: ATS is off"}, nil,
			"mlxconfig -d 0000:14:00.0 set ATS_ENABLED=true", "pci=config_acs=1x111x1@0000:12:01.0"},
		{"as it should be", appendix, right, func(*machine) {}, No, Yes, nil, nil, "", ""},
		{"as it should be, with an unread command line", appendix, right, func(*machine) {}, Unknown, Yes, nil, nil, "", ""},
		{"no ATS capability", appendix, right, func(m *machine) { m.at("0000:14:00.0").ATS = ATS{Known: true} }, No, No, []string{"it shows no ATS"}, nil, "mlxconfig -d 0000:14:00.0 set ATS_ENABLED=true", ""},
		{"ATS that was not read", appendix, right, func(m *machine) { m.at("0000:14:00.0").ATS = ATS{} }, No, Unknown, nil, []string{"its ATS could not be read"}, "", ""},
		{"a virtual function", "drivers/net/ethernet/mellanox/mlx5/core/main.c, mlx5_core_pci_table", right, func(m *machine) {
			m.at("0000:14:00.0").Device, m.at("0000:14:00.0").ATS.Enabled = 0x101e, false
		}, No, No, []string{"ATS is off"}, nil, "mlxconfig -d PF set ATS_ENABLED=true", ""},
		{"a NIC of another vendor", appendix, right, func(m *machine) { m.at("0000:14:00.0").Vendor, m.at("0000:14:00.0").ATS.Enabled = 0x14e4, false }, No, No, []string{"ATS is off"}, nil, "", ""},
		{"the NIC's port redirects no requests", appendix, right, func(m *machine) { m.at("0000:12:01.0").ACS.Ctrl = 0x59 }, No, No, []string{"request redirect must be on"}, nil, "", "pci=config_acs=1x111x1@0000:12:01.0"},
		{"the GPU's port is open", appendix, right, func(m *machine) { m.at("0000:12:00.0").ACS.Ctrl = 0 }, No, No, []string{"port toward the GPU 0000:12:00.0"}, nil, "", "pci=config_acs=xx111x1@0000:12:00.0"},
		{"the GPU's port has direct translated as well", appendix, right, func(m *machine) { m.at("0000:12:00.0").ACS.Ctrl = 0x5d }, No, Yes, nil, nil, "", ""},
		{"the root port is open", appendix, right, func(m *machine) { m.at("0000:10:01.0").ACS.Ctrl = 0 }, No, No, []string{"root port 0000:10:01.0"}, nil, "", "pci=config_acs=xx111x1@0000:10:01.0"},
		{"a root port of Vera", rdmaTopo + ", kernel_acs_isolated", right, func(m *machine) {
			m.at("0000:10:01.0").Vendor, m.at("0000:10:01.0").Device, m.at("0000:10:01.0").ACS.Ctrl = nvidia, 0x2f95, 0x15
		}, No, Yes, nil, nil, "", ""},
		{"the NIC's port was not read", "drivers/pci/pci-sysfs.c, pci_read_config", right, func(m *machine) { m.at("0000:12:01.0").ACSErr = errUnread }, No, Unknown, nil, []string{"64 bytes"}, "", ""},
		{"a port cannot", "PCI Express Base Specification, ACS capability register", host, func(m *machine) {
			m.at("0000:12:01.0").ACS.Cap = 0x1f
			m.at("0000:14:00.0").ATS.Enabled = true
		}, No, No, []string{"the port has no direct translated"}, nil, "", "pci=config_acs=1x111x1@0000:12:01.0"},
		{"a port without ACS", "PCI Express Base Specification, ACS is optional", right, func(m *machine) { m.at("0000:12:01.0").ACS = pci.ACS{} }, No, Unknown, nil, []string{"it has no ACS"}, "", ""},
		{"pci=noats", "PCI/ACS: Enforce pci=noats with Transaction Blocking, commit 7cae7849fccee", host, func(m *machine) {
			for _, at := range []string{"0000:10:01.0", "0000:12:00.0", "0000:12:01.0"} {
				m.at(at).ACS.Ctrl = 0x1f
			}
		}, Yes, No, []string{"direct translated must be on", "0000:12:01.0: translation blocking must be off", "0000:10:01.0: translation blocking must be off", "pci=noats"}, nil,
			"", "pci=config_acs=1x11101@0000:12:01.0"},
		{"translation blocking in the root port", "drivers/pci/pci.c, pci_std_enable_acs", right, func(m *machine) { m.at("0000:10:01.0").ACS.Ctrl = 0x1f }, No, No,
			[]string{"0000:10:01.0: translation blocking must be off"}, nil, "", "pci=config_acs=xxxxx0x@0000:10:01.0"},
		{"no switch", "what the root complex routes is not documented", right, func(m *machine) {
			m.put(port(0x8086, 0x352a, pci.PortRoot, 0x1d), "0000:20:01.0")
			m.at("0000:13:00.0").Upstream = []pciaddr.Addr{addr("0000:20:01.0")}
		}, No, Unknown, nil, []string{"share no switch"}, "", ""},
		{"below Grace", "NVIDIA, Grace Blackwell CX8 GPUDirect RDMA guide", right, func(m *machine) {
			m.at("0000:10:01.0").Vendor, m.at("0000:10:01.0").Device = nvidia, 0x22b8
		}, No, No, []string{"Grace has no ATS"}, nil, "", ""},
		{"a bridge that is not in the list", "the caller's list", right, func(m *machine) { *m = (*m)[1:] }, No, Unknown, nil, []string{"not all among"}, "", ""},
		{"the GPU's bridge is not in the list", "the caller's list", right, func(m *machine) {
			m.at("0000:13:00.0").Upstream = []pciaddr.Addr{addr("0000:77:00.0"), addr("0000:10:01.0")}
		}, No, Unknown, nil, []string{"not all among"}, "", ""},
		{"below one root port without a switch", "PCI Express Base Specification: a root port has one link", right, func(m *machine) {
			m.at("0000:12:00.0").Upstream, m.at("0000:12:01.0").Upstream = []pciaddr.Addr{addr("0000:10:01.0")}, []pciaddr.Addr{addr("0000:10:01.0")}
			m.at("0000:13:00.0").Upstream = []pciaddr.Addr{addr("0000:12:00.0"), addr("0000:10:01.0")}
			m.at("0000:14:00.0").Upstream = []pciaddr.Addr{addr("0000:12:01.0"), addr("0000:10:01.0")}
		}, No, Unknown, nil, []string{"share no switch"}, "", ""},
		{"the NIC without a port of its own", "PCI Express Base Specification: below an upstream port are downstream ports", right, func(m *machine) {
			m.at("0000:14:00.0").Upstream = m.at("0000:12:01.0").Upstream
		}, No, Unknown, nil, []string{"share no switch"}, "", ""},
		{"the GPU without a port of its own", "PCI Express Base Specification: below an upstream port are downstream ports", right, func(m *machine) {
			m.at("0000:13:00.0").Upstream = m.at("0000:12:01.0").Upstream
		}, No, Unknown, nil, []string{"share no switch"}, "", ""},
		{"a bridge that is no upstream port", "PCI Express Base Specification, device/port type", right, func(m *machine) { m.at("0000:11:00.0").Port = pci.PortDownstream }, No, Unknown, nil, []string{"share no switch"}, "", ""},
		{"an AMD Instinct", "PCI ID repository, 1002:74a1", right, func(m *machine) {
			m.at("0000:13:00.0").Vendor, m.at("0000:13:00.0").Device, m.at("0000:13:00.0").Class = 0x1002, 0x74a1, 0x120000
		}, No, Yes, nil, nil, "", ""},
		{"an Intel Max", "PCI ID repository, 8086:0bd5", right, func(m *machine) {
			m.at("0000:13:00.0").Vendor, m.at("0000:13:00.0").Device, m.at("0000:13:00.0").Class = 0x8086, 0x0bd5, 0x038000
		}, No, Yes, nil, nil, "", ""},
		{"a port between was not read", "drivers/pci/pci-sysfs.c, pci_read_config", right, func(m *machine) { m.at("0000:11:00.0").ACSErr = errUnread }, No, Unknown, nil, []string{"port 0000:11:00.0: its ACS"}, "", ""},
		{"translation blocking in two ports", "drivers/pci/pci.c, pci_std_enable_acs", right, func(m *machine) {
			m.at("0000:12:01.0").ACS.Ctrl, m.at("0000:10:01.0").ACS.Ctrl = 0x5f, 0x1f
		}, No, No, []string{"0000:12:01.0: translation blocking", "0000:10:01.0: translation blocking"}, nil, "", "pci=config_acs=xxxxx0x@0000:12:01.0;xxxxx0x@0000:10:01.0"},
		{"the NIC's port below another switch", "PCI Express Base Specification: a port redirects what comes in by it", right, func(m *machine) {
			m.put(port(0x1000, 0xc030, pci.PortUpstream, noACS), "0000:15:00.0", "0000:12:01.0", "0000:11:00.0", "0000:10:01.0")
			m.put(port(0x1000, 0xc030, pci.PortDownstream, 0x1d), "0000:16:00.0", "0000:15:00.0", "0000:12:01.0", "0000:11:00.0", "0000:10:01.0")
			m.at("0000:14:00.0").Upstream = append([]pciaddr.Addr{addr("0000:16:00.0")}, m.at("0000:16:00.0").Upstream...)
		}, No, Yes, nil, nil, "", ""},
		{"a board of ConnectX-8", rdmaTopo + ", --virt", func() machine {
			var m machine
			m.board("0000")
			m.forGuests("0000")
			return m
		}, func(m *machine) { m.at("0000:02:00.0").ACS.Ctrl = 0x1d }, No, No, []string{"direct translated must be on"}, nil, writeGRUB + " --virt", "pci=config_acs=1x111x1@0000:02:00.0"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.source == "" {
				t.Fatal("no source")
			}
			m := test.of()
			test.change(&m)
			found := Passthrough(m, test.noATS)
			if len(found) != 1 {
				t.Fatalf("%d findings", len(found))
			}
			f := found[0]
			same(t, "OK", f.OK, test.ok)
			match(t, "off", f.Off, test.off)
			match(t, "unread", f.Unread, test.unread)
			same(t, "command", f.Remedy.Command, test.command)
			same(t, "parameter", f.Remedy.Parameter, test.parameter)
			same(t, "a change", f.Remedy.Change != "", test.ok == No)
			off := slices.ContainsFunc(f.Off, func(s string) bool {
				return strings.Contains(s, "ATS is off") || strings.Contains(s, "no ATS") || strings.Contains(s, "noats")
			})
			same(t, "ATS is off", f.ATS == No, off)
			same(t, "the change is about ATS", strings.Contains(f.Remedy.Change, "turn ATS on") || strings.Contains(f.Remedy.Change, "noats") || strings.Contains(f.Remedy.Change, "Data Direct"), off)
			same(t, "the change is about ports", strings.Contains(f.Remedy.Change, "have the kernel set"), test.parameter != "")
			same(t, "the change is about the IOMMU", strings.Contains(f.Remedy.Change, "turn the IOMMU on"), test.command != "" && strings.Contains(strings.Join(f.Off, ""), "ATS is off"))
			if (f.Remedy.Weakens != "") != (f.Remedy.Parameter != "") {
				t.Errorf("parameter %q weakens %q", f.Remedy.Parameter, f.Remedy.Weakens)
			}
		})
	}
}

func match(t *testing.T, what string, got, parts []string) {
	t.Helper()
	if len(got) != len(parts) {
		t.Errorf("%s: got %q, want %q", what, got, parts)
		return
	}
	for i, part := range parts {
		if !strings.Contains(got[i], part) {
			t.Errorf("%s: %q does not say %q", what, got[i], part)
		}
	}
}

// A list whose bridges are above each other ends in an answer, and so does none.
func TestPassthroughInACircle(t *testing.T) {
	m := right()
	for i := range m {
		m[i].Upstream = []pciaddr.Addr{m[(i+1)%len(m)].Addr}
	}
	for _, f := range Passthrough(m, Unknown) {
		same(t, "OK", f.OK, Unknown)
	}
	same(t, "findings of nothing", len(Passthrough(nil, Unknown)), 0)
}

// Both functions must be given away, by any driver of VFIO.
func TestGivenAway(t *testing.T) {
	for _, test := range []struct {
		driver, source string
		want           bool
	}{
		{"vfio-pci", "drivers/vfio/pci/vfio_pci.c", true}, {"nvgrace-gpu-vfio-pci", "drivers/vfio/pci/nvgrace-gpu", true}, {"nvgrace_gpu_vfio_pci", "drivers/vfio/pci/nvgrace-gpu", true},
		{"mlx5_vfio_pci", "drivers/vfio/pci/mlx5", true}, {"xe-vfio-pci", "drivers/vfio/pci/xe", true},
		{"nvidia", "NVIDIA/open-gpu-kernel-modules", false}, {"mlx5_core", "drivers/net/ethernet/mellanox/mlx5/core", false}, {"pci-stub", "drivers/pci/pci-stub.c", false}, {"", "no driver", false},
	} {
		for _, at := range []string{"0000:13:00.0", "0000:14:00.0"} {
			m := right()
			m.at(at).Driver = test.driver
			same(t, at+" of "+test.driver, len(Passthrough(m, No)) == 1, test.want)
		}
	}
}

// Below Grace a NIC of a guest needs its DMA function.
func TestPassthroughOfDataDirect(t *testing.T) {
	const guide = "NVIDIA, Grace Blackwell CX8 GPUDirect RDMA guide; " + rdmaTopo
	given := func(m *machine, at ...string) {
		for _, a := range at {
			m.at(a).Driver = "vfio-pci"
		}
	}
	all := []string{"0000:03:00.0", "0008:03:00.0", "0008:06:00.0"}
	tests := []struct {
		name, source string
		change       func(m *machine)
		ok           Tri
		off, unread  []string
		parameter    bool
	}{
		{"all three", guide, func(m *machine) { given(m, all...) }, Yes, nil, nil, false},
		{"without the DMA function", guide, func(m *machine) { given(m, "0000:03:00.0", "0008:06:00.0") }, No, []string{"0008:03:00.0 is not given"}, nil, false},
		{"the kernel's ACS, and without the DMA function", guide, func(m *machine) {
			given(m, "0000:03:00.0", "0008:06:00.0")
			m.at("0008:02:00.0").ACS.Ctrl = 0x1d
		}, No, []string{"0008:03:00.0 is not given", "request redirect must be off"}, nil, true},
		{"the kernel's ACS", guide, func(m *machine) {
			given(m, all...)
			m.at("0008:02:00.0").ACS.Ctrl = 0x1d
		}, No, []string{"request redirect must be off"}, nil, true},
		{"ACS that was not read", guide, func(m *machine) {
			given(m, all...)
			m.at("0008:02:00.0").ACSErr = errUnread
		}, Unknown, nil, []string{"64 bytes"}, false},
		{"groups that differ", guide, func(m *machine) {
			given(m, all...)
			m.at("0008:03:00.0").Group = "3"
		}, No, []string{"is in IOMMU group 3"}, nil, true},
		{"VPD that was not read", guide, func(m *machine) {
			given(m, all...)
			m.at("0000:03:00.0").VPDRead = false
		}, Unknown, nil, []string{"its DMA function is not known"}, false},
		{"a tree that deviates", guide, func(m *machine) {
			given(m, all...)
			m.at("0008:04:00.0").Device = 0x197d
		}, Unknown, nil, []string{"the values for the ports are not known"}, false},
		{"a NIC without one", guide, func(m *machine) {
			given(m, all...)
			m.at("0000:03:00.0").Device = 0x1021
			m.at("0000:03:00.0").Card = "8"
		}, No, []string{"has no DMA function"}, nil, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := oneTray()
			test.change(&m)
			found := Passthrough(m, No)
			if len(found) != 1 {
				t.Fatalf("%d findings", len(found))
			}
			f := found[0]
			same(t, "OK", f.OK, test.ok)
			match(t, "off", f.Off, test.off)
			match(t, "unread", f.Unread, test.unread)
			same(t, "ATS", f.ATS, No)
			same(t, "a parameter", f.Remedy.Parameter != "", test.parameter)
			same(t, "a change", f.Remedy.Change != "", test.ok == No)
			same(t, "the change is about ports", strings.Contains(f.Remedy.Change, "have the kernel set"), test.parameter)
			same(t, "the change is about the driver", strings.Contains(f.Remedy.Change, "bind the DMA function"), len(f.Off) > 0 && strings.Contains(f.Off[0], "is not given"))
		})
	}
	// The DMA function of one tray does not serve the GPU of another.
	m := oneTray()
	m.tray("0009", "02:01.0", "0002", "91", "8")
	given(&m, "0000:03:00.0", "0008:03:00.0", "0009:06:00.0")
	found := Passthrough(m, No)
	same(t, "another tray's GPU", found[0].OK, Unknown)
	match(t, "another tray's GPU", found[0].Unread, []string{"beside another GPU"})
}

// One parameter has the entries of all findings, and what the command line has.
func TestTogether(t *testing.T) {
	m := host()
	m.put(port(0x1000, 0xc030, pci.PortDownstream, 0), "0000:12:02.0", "0000:11:00.0", "0000:10:01.0")
	m.put(Function{Vendor: nvidia, Device: 0x2330, Class: display, Driver: "vfio-pci"}, "0000:15:00.0", "0000:12:02.0", "0000:11:00.0", "0000:10:01.0")
	there, err := ParseConfigACS("xx000x0@0000:12:01.0;xx000x0@0000:70:00.0")
	if err != nil {
		t.Fatal(err)
	}
	const want = "pci=config_acs=1x111x1@0000:12:01.0;xx111x1@0000:12:02.0;xx000x0@0000:70:00.0" // __pci_config_acs goes by the first match
	same(t, "parameter", Together(Passthrough(m, No), there), want)
	same(t, "of nothing", Together(Passthrough(right(), No), there), "")
	// A port that two findings want differently has both values.
	both := []Finding{{Entries: []Entry{{translated, "0000:12:01.0"}}}, {Entries: []Entry{{isolated, "0000:12:01.0"}}}}
	same(t, "both", Together(both, nil), "pci=config_acs=1x111x1@0000:12:01.0")
}

// SPDX-License-Identifier: Apache-2.0

package p2pdma

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
	"github.com/gpurdma/gpurdma/placement"
)

func TestDecide(t *testing.T) {
	const gpu = "03:00.0"
	type row struct {
		name             string
		f                machinetest.Fixture
		provider, client string
		want             MapType
		supported        placement.Answer
		steps            int
		why              string // in the chain of reasons
	}
	const yes, no, unknown = placement.Yes, placement.No, placement.AnswerUnknown
	nehalem := func(set ...string) machinetest.Fixture {
		return machinetest.Fixture{Cpu: machinetest.Xeon, Tree: machinetest.Planted(set...)}
	}
	zen := func(set ...string) machinetest.Fixture { return machinetest.Fixture{Tree: machinetest.Planted(set...)} }
	old := func(release string, set ...string) machinetest.Fixture {
		return machinetest.Fixture{Release: release, Cpu: machinetest.Xeon, Tree: machinetest.Planted(set...)}
	}
	for _, c := range []row{
		// One bridge, or none.
		{"same function", nehalem(), gpu, gpu, MapBusAddress, yes, 0, "no port on the way redirects"},
		{"same switch", nehalem(), gpu, "04:00.0", MapBusAddress, yes, 4, "below the bridge 0000:01:00.0"},
		{"two functions", nehalem(), "04:00.0", "04:00.1", MapBusAddress, yes, 2, "0000:02:01.0"},
		{"nested switch", nehalem(), gpu, "07:00.0", MapBusAddress, yes, 6, "0000:01:00.0"},
		{"bridge above", nehalem(), gpu, "01:00.0", MapBusAddress, yes, 2, "0000:01:00.0"},
		{"root ports", nehalem(), "08:00.0", "09:00.0", MapNotSupported, no, 4, "0000:00:00.0 (8086:29c0), is not on the kernel's list"},
		{"root ports, Zen", zen(), "08:00.0", "09:00.0", MapThroughHostBridge, yes, 4, "AuthenticAMD family 0x17"},
		{"switch and root port", zen(), gpu, "09:00.0", MapThroughHostBridge, yes, 6, "no common bridge"},
		{"host bridges, Zen", zen(), gpu, "81:00.0", MapThroughHostBridge, yes, 6, "no common bridge"},
		{"virtual function", zen(), "81:00.0", "81:00.4", MapBusAddress, yes, 2, "0000:80:01.0"},
		{"behind VMD", nehalem(), "10000:01:00.0", gpu, MapNotSupported, no, 6, "pci10000:00, known by 10000:00:01.0"},
		{"not PCI", zen(), gpu, "", MapNotSupported, no, -1, "on no PCI bus"},
		{"missing", zen(), gpu, "0a:00.0", MapUnknown, unknown, -1, "0000:0a:00.0"},

		// ACS: which bits, which ports.
		{"request redirect", nehalem("ACS2", "acs=0x04"), gpu, "04:00.0", MapNotSupported, no, 4, "ACS redirect at 0000:02:00.0 (request redirect)"},
		{"completion redirect", nehalem("ACS3", "acs=0x08"), gpu, "04:00.0", MapNotSupported, no, 4, "0000:02:01.0 (completion redirect)"},
		{"egress control", nehalem("ACS3", "acs=0x20"), gpu, "04:00.0", MapNotSupported, no, 4, "(egress control)"},
		{"what an IOMMU brings", zen("ACS2", "acs=0x1d"), gpu, "04:00.0", MapThroughHostBridge, yes, 4, "0000:02:00.0 (request redirect, completion redirect)"},
		{"other bits", nehalem("ACS2", "acs=0x53"), gpu, "04:00.0", MapBusAddress, yes, 4, "no port"},
		{"client", nehalem("ACS4", "acs=0x04"), gpu, "04:00.0", MapNotSupported, no, 4, "0000:04:00.0"},
		{"provider", nehalem("ACS4", "acs=0x04"), "04:00.0", gpu, MapNotSupported, no, 4, "0000:04:00.0"},
		{"itself", nehalem("ACS4", "acs=0x04"), "04:00.0", "04:00.0", MapNotSupported, no, 0, "0000:04:00.0"},
		{"common bridge", nehalem("ACS3", "acs=0x04"), "04:00.0", "04:00.1", MapNotSupported, no, 2, "0000:02:01.0"},
		{"above the common bridge", nehalem("ACS1", "acs=0x04"), gpu, "04:00.0", MapBusAddress, yes, 4, "no port"},
		{"other branch", nehalem("ACS3", "acs=0x1d"), gpu, "07:00.0", MapBusAddress, yes, 6, "no port"},
		{"no common bridge", zen("ACS2", "acs=0x1d"), gpu, "09:00.0", MapThroughHostBridge, yes, 6, "over the root"},

		// Files that cannot be read.
		{"truncated", nehalem("ACS2", "config=64"), gpu, "04:00.0", MapUnknown, unknown, 4, "run as root"},
		{"truncated, Zen", zen("ACS2", "config=64"), gpu, "04:00.0", MapUnknown, yes, 4, "by bus address or through the host bridge; which of the two is not known"},
		{"truncated beside a redirect", zen("ACS2", "config=64", "ACS3", "acs=0x04"), gpu, "04:00.0", MapThroughHostBridge, yes, 4, "0000:02:01.0"},
		{"truncated beside a redirect, no", nehalem("ACS2", "config=64", "ACS3", "acs=0x04"), gpu, "04:00.0", MapNotSupported, no, 4, "0000:02:01.0"},
		{"truncated elsewhere", nehalem("ACS1", "config=64"), gpu, "04:00.0", MapBusAddress, yes, 4, "no port"},
		{"cut in the middle", nehalem("ACS2", "acs=0x04 config=512"), gpu, "04:00.0", MapUnknown, unknown, 4, "0000:02:00.0"},
		{"no ECAM", nehalem("ACS2", "acs=0x04 config=256"), gpu, "04:00.0", MapBusAddress, yes, 4, "no port"},

		// Processors.
		{"before Zen", machinetest.Fixture{Cpu: machinetest.Bulldoz, Tree: machinetest.Planted()}, "08:00.0", "09:00.0", MapNotSupported, no, 4, "not on the kernel's list"},
		{"Hygon", machinetest.Fixture{Cpu: machinetest.Hygon, Tree: machinetest.Planted()}, "08:00.0", "09:00.0", MapNotSupported, no, 4, "not on the kernel's list"},
		{"no x86", machinetest.Fixture{Cpu: machinetest.Grace, Tree: machinetest.Planted()}, "08:00.0", "09:00.0", MapNotSupported, no, 4, "not on the kernel's list"},
		{"no cpuinfo", machinetest.Fixture{Cpu: "-", Tree: machinetest.Planted()}, "08:00.0", "09:00.0", MapUnknown, unknown, 4, "the processor is not known"},
		{"empty cpuinfo", machinetest.Fixture{Cpu: "\n", Tree: machinetest.Planted()}, "08:00.0", "09:00.0", MapUnknown, unknown, 4, "the processor is not known"},
		{"no family", machinetest.Fixture{Cpu: "vendor_id : AuthenticAMD\n", Tree: machinetest.Planted()}, "08:00.0", "09:00.0", MapUnknown, unknown, 4, "the processor is not known"},
		{"no cpuinfo, but the list", machinetest.Fixture{Cpu: "-", Tree: machinetest.Planted("HOST", "0x09a2")}, "08:00.0", "09:00.0", MapThroughHostBridge, yes, 4, "is on the kernel's list"},

		// The list.
		{"listed", nehalem("HOST", "0x09a2"), gpu, "81:00.0", MapThroughHostBridge, yes, 6, "0000:80:01.0 (8086:09a2), is on the kernel's list"},
		{"same bridge only, same", nehalem("HOST", "0x2f00"), "08:00.0", "09:00.0", MapThroughHostBridge, yes, 4, "is on the kernel's list"},
		{"same bridge only, other", nehalem("HOST", "0x2f00"), gpu, "81:00.0", MapNotSupported, no, 6, "stays below it only"},
		{"one of two", nehalem("pci0000:80/0000:80:01.0 vendor=0x8086 device=HOST", "pci0000:80/0000:80:01.0 vendor=0x8086 device=0x2030"), gpu, "81:00.0", MapNotSupported, no, 6, "is not on the kernel's list"},
		{"first is no root port", nehalem("HOST", "0x09a2", "TYPE80", "type=5"), gpu, "81:00.0", MapNotSupported, no, 6, "neither function 00.0 nor a root port"},
		{"first is no root port, in a copy of some functions", nehalem("HOST", "0x09a2", "TYPE80", "type=5"), gpu, "81:00.0", MapUnknown, unknown, 6, "the copy has not all functions of pci0000:80"},
		{"first cannot be read", nehalem("HOST", "0x09a2", "TYPE80", "config=64"), gpu, "81:00.0", MapUnknown, unknown, 6, "whether 0000:80:01.0"},
		{"new entry, new kernel", old("7.2.0", "HOST", "0x0b25"), "08:00.0", "09:00.0", MapThroughHostBridge, yes, 4, "Sapphire Rapids"},
		{"new entry, 6.12", old("6.12.1", "HOST", "0x0b25"), "08:00.0", "09:00.0", MapNotSupported, no, 4, "is not on the list of 6.12.1"},
		{"new entry, between", old("6.18.1", "HOST", "0x0b25"), "08:00.0", "09:00.0", MapUnknown, unknown, 4, "is not known"},
		{"new entry, 6.12 of RHEL", old("6.12.0-55.el10.x86_64", "HOST", "0x0b25"), "08:00.0", "09:00.0", MapUnknown, unknown, 4, "is not known"},
		{"old entry, 6.1", old("6.1.0-56-amd64", "HOST", "0x2033"), "08:00.0", "09:00.0", MapThroughHostBridge, yes, 4, "Skylake-E"},
		{"no entry, newer kernel", old("7.9.0"), "08:00.0", "09:00.0", MapUnknown, unknown, 4, "that of 7.9.0 is not known"},
		{"Google, any device", nehalem("0x8086 device=HOST", "0x1ae0 device=0x1234"), "08:00.0", "09:00.0", MapThroughHostBridge, yes, 4, "Google"},

		// The kernel.
		{"without P2PDMA", machinetest.Fixture{Config: machinetest.WithoutP2P, Tree: machinetest.Planted()}, gpu, "04:00.0", MapNotSupported, no, -1, "built without CONFIG_PCI_P2PDMA"},
		{"no configuration", machinetest.Fixture{Config: "-", Tree: machinetest.Planted()}, gpu, "04:00.0", MapUnknown, unknown, 4, "no configuration was found"},
		{"no configuration, and no way", machinetest.Fixture{Config: "-", Cpu: machinetest.Xeon, Tree: machinetest.Planted()}, "08:00.0", "09:00.0", MapNotSupported, no, 4, "is not on the kernel's list"},
		{"too old", machinetest.Fixture{Release: "5.15.0-100-generic", Tree: machinetest.Planted()}, gpu, "04:00.0", MapUnknown, unknown, 4, "before 6.1"},
		{"no version", machinetest.Fixture{Release: "custom", Tree: machinetest.Planted()}, gpu, "04:00.0", MapUnknown, unknown, 4, `"custom"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.HasSuffix(c.name, "in a copy of some functions") {
				c.f.Files = map[string]string{"sys/class/mem/null/dev": "1:3\n"} // a whole sysfs
			}
			d := Decide(c.f.Open(t), machinetest.Addr(t, c.provider), machinetest.Client(t, c.client))
			if d.Type != c.want || d.Supported != c.supported || d.Steps != c.steps {
				t.Errorf("%v, supported %v, %d steps; want %v, %v, %d: %v", d.Type, d.Supported, d.Steps, c.want, c.supported, c.steps, d)
			}
			if !strings.Contains(strings.Join(d.Why, "; "), c.why) {
				t.Errorf("the reasons %q do not have %q", d.Why, c.why)
			}
			if d.Supported != unknown {
				wantDistance := -1
				if d.Supported == yes {
					wantDistance = c.steps
				}
				if got, ok := d.Distance(); got != wantDistance || !ok {
					t.Errorf("distance %d, %v; want %d", got, ok, wantDistance)
				}
			} else if _, ok := d.Distance(); ok {
				t.Error("a distance, and nothing is known")
			}
		})
	}
}

// Redirects lists the ports that have to change, in the kernel's order.
func TestRedirectList(t *testing.T) {
	m := machinetest.Fixture{Tree: machinetest.Planted("ACS1", "acs=0x1d", "ACS2", "acs=0x1d", "ACS3", "acs=0x1d", "ACS4", "acs=0x05")}.Open(t)
	for pair, want := range map[[2]string]string{
		{"03:00.0", "04:00.0"}: "[0000:02:00.0 0000:04:00.0 0000:02:01.0]",
		{"04:00.0", "03:00.0"}: "[0000:04:00.0 0000:02:01.0 0000:02:00.0]",
		{"04:00.1", "04:00.0"}: "[0000:02:01.0 0000:04:00.0]",
	} {
		var got []string
		for _, r := range Decide(m, machinetest.Addr(t, pair[0]), machinetest.Client(t, pair[1])).Redirects {
			got = append(got, r.PCI.String())
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%v: %v, want %s", pair, got, want)
		}
	}
}

func TestNoECAMIsNoted(t *testing.T) {
	m := machinetest.Fixture{Tree: machinetest.Planted("ACS2", "acs=0x1d config=256")}.Open(t)
	d := Decide(m, machinetest.Addr(t, "03:00.0"), machinetest.Client(t, "04:00.0"))
	if len(d.Notes) != 1 || !strings.Contains(d.Notes[0], "0000:02:00.0") {
		t.Errorf("%q", d.Notes)
	}
}

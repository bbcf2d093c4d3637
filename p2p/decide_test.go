// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/gpurdma/gpurdma/placement"
)

// A GPU and a NIC of two functions in a switch; a nested switch with another
// NIC; a GPU and a NIC on root ports; a NIC below a second host bridge, with a
// virtual function beside it.
const tree = `
pci0000:00/0000:00:00.0 vendor=0x8086 device=HOST class=0x060000 config=256
pci0000:00/0000:00:01.0 class=0x060400 type=4 ACS1
pci0000:00/0000:00:01.0/0000:01:00.0 class=0x060400 type=5
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0 class=0x060400 type=6 ACS2
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0 class=0x060400 type=6 ACS3
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0 ACS4
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.1
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:02.0 class=0x060400 type=6
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:02.0/0000:05:00.0 class=0x060400 type=5
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:02.0/0000:05:00.0/0000:06:00.0 class=0x060400 type=6
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:02.0/0000:05:00.0/0000:06:00.0/0000:07:00.0
pci0000:00/0000:00:02.0 class=0x060400 type=4
pci0000:00/0000:00:02.0/0000:08:00.0
pci0000:00/0000:00:03.0 class=0x060400 type=4
pci0000:00/0000:00:03.0/0000:09:00.0
pci0000:80/0000:80:01.0 vendor=0x8086 device=HOST class=0x060400 TYPE80
pci0000:80/0000:80:01.0/0000:81:00.0
pci0000:80/0000:80:01.0/0000:81:00.4
pci0000:80/0000:80:05.0/pci10000:00/10000:00:01.0 class=0x060400 type=4
pci0000:80/0000:80:05.0/pci10000:00/10000:00:01.0/10000:01:00.0
`

// planted fills the places of tree in: "ACS2 acs=0x1d".
func planted(set ...string) string {
	pairs := []string{"ACS1", "", "ACS2", "", "ACS3", "", "ACS4", "", "HOST", "0x29c0", "TYPE80", "type=4"}
	for i := 0; i+1 < len(set); i += 2 {
		pairs = append([]string{set[i], set[i+1]}, pairs...)
	}
	return strings.NewReplacer(pairs...).Replace(tree)
}

func TestDecide(t *testing.T) {
	const gpu = "03:00.0"
	type row struct {
		name             string
		f                fixture
		provider, client string
		want             MapType
		supported        placement.Answer
		steps            int
		why              string // in the chain of reasons
	}
	const yes, no, unknown = placement.Yes, placement.No, placement.AnswerUnknown
	nehalem := func(set ...string) fixture { return fixture{cpu: xeon, tree: planted(set...)} }
	zen := func(set ...string) fixture { return fixture{tree: planted(set...)} }
	old := func(release string, set ...string) fixture {
		return fixture{release: release, cpu: xeon, tree: planted(set...)}
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

		// What cannot be read.
		{"truncated", nehalem("ACS2", "config=64"), gpu, "04:00.0", MapUnknown, unknown, 4, "run as root"},
		{"truncated, Zen", zen("ACS2", "config=64"), gpu, "04:00.0", MapUnknown, yes, 4, "by bus address or through the host bridge"},
		{"truncated beside a redirect", zen("ACS2", "config=64", "ACS3", "acs=0x04"), gpu, "04:00.0", MapThroughHostBridge, yes, 4, "0000:02:01.0"},
		{"truncated beside a redirect, no", nehalem("ACS2", "config=64", "ACS3", "acs=0x04"), gpu, "04:00.0", MapNotSupported, no, 4, "0000:02:01.0"},
		{"truncated elsewhere", nehalem("ACS1", "config=64"), gpu, "04:00.0", MapBusAddress, yes, 4, "no port"},
		{"cut in the middle", nehalem("ACS2", "acs=0x04 config=512"), gpu, "04:00.0", MapUnknown, unknown, 4, "0000:02:00.0"},
		{"no ECAM", nehalem("ACS2", "acs=0x04 config=256"), gpu, "04:00.0", MapBusAddress, yes, 4, "no port"},

		// Processors.
		{"before Zen", fixture{cpu: bulldoz, tree: planted()}, "08:00.0", "09:00.0", MapNotSupported, no, 4, "not on the kernel's list"},
		{"Hygon", fixture{cpu: hygon, tree: planted()}, "08:00.0", "09:00.0", MapNotSupported, no, 4, "not on the kernel's list"},
		{"no x86", fixture{cpu: grace, tree: planted()}, "08:00.0", "09:00.0", MapNotSupported, no, 4, "not on the kernel's list"},
		{"no cpuinfo", fixture{cpu: "-", tree: planted()}, "08:00.0", "09:00.0", MapUnknown, unknown, 4, "the processor is not known"},
		{"empty cpuinfo", fixture{cpu: "\n", tree: planted()}, "08:00.0", "09:00.0", MapUnknown, unknown, 4, "the processor is not known"},
		{"no family", fixture{cpu: "vendor_id : AuthenticAMD\n", tree: planted()}, "08:00.0", "09:00.0", MapUnknown, unknown, 4, "the processor is not known"},
		{"no cpuinfo, but the list", fixture{cpu: "-", tree: planted("HOST", "0x09a2")}, "08:00.0", "09:00.0", MapThroughHostBridge, yes, 4, "is on the kernel's list"},

		// The list.
		{"listed", nehalem("HOST", "0x09a2"), gpu, "81:00.0", MapThroughHostBridge, yes, 6, "0000:80:01.0 (8086:09a2), is on the kernel's list"},
		{"same bridge only, same", nehalem("HOST", "0x2f00"), "08:00.0", "09:00.0", MapThroughHostBridge, yes, 4, "is on the kernel's list"},
		{"same bridge only, other", nehalem("HOST", "0x2f00"), gpu, "81:00.0", MapNotSupported, no, 6, "stays below it only"},
		{"one of two", nehalem("pci0000:80/0000:80:01.0 vendor=0x8086 device=HOST", "pci0000:80/0000:80:01.0 vendor=0x8086 device=0x2030"), gpu, "81:00.0", MapNotSupported, no, 6, "is not on the kernel's list"},
		{"first is no root port", nehalem("HOST", "0x09a2", "TYPE80", "type=5"), gpu, "81:00.0", MapNotSupported, no, 6, "neither function 00.0 nor a root port"},
		{"first cannot be read", nehalem("HOST", "0x09a2", "TYPE80", "config=64"), gpu, "81:00.0", MapUnknown, unknown, 6, "whether 0000:80:01.0"},
		{"new entry, new kernel", old("7.2.0", "HOST", "0x0b25"), "08:00.0", "09:00.0", MapThroughHostBridge, yes, 4, "Sapphire Rapids"},
		{"new entry, 6.12", old("6.12.1", "HOST", "0x0b25"), "08:00.0", "09:00.0", MapNotSupported, no, 4, "is not on the list of 6.12.1"},
		{"new entry, between", old("6.18.1", "HOST", "0x0b25"), "08:00.0", "09:00.0", MapUnknown, unknown, 4, "is not known"},
		{"new entry, 6.12 of RHEL", old("6.12.0-55.el10.x86_64", "HOST", "0x0b25"), "08:00.0", "09:00.0", MapUnknown, unknown, 4, "is not known"},
		{"old entry, 6.1", old("6.1.0-56-amd64", "HOST", "0x2033"), "08:00.0", "09:00.0", MapThroughHostBridge, yes, 4, "Skylake-E"},
		{"no entry, newer kernel", old("7.9.0"), "08:00.0", "09:00.0", MapUnknown, unknown, 4, "that of 7.9.0 is not known"},
		{"Google, any device", nehalem("0x8086 device=HOST", "0x1ae0 device=0x1234"), "08:00.0", "09:00.0", MapThroughHostBridge, yes, 4, "Google"},

		// The kernel.
		{"without P2PDMA", fixture{config: withoutP2P, tree: planted()}, gpu, "04:00.0", MapNotSupported, no, -1, "built without CONFIG_PCI_P2PDMA"},
		{"no configuration", fixture{config: "-", tree: planted()}, gpu, "04:00.0", MapUnknown, unknown, 4, "no configuration was found"},
		{"no configuration, and no way", fixture{config: "-", cpu: xeon, tree: planted()}, "08:00.0", "09:00.0", MapNotSupported, no, 4, "is not on the kernel's list"},
		{"too old", fixture{release: "5.15.0-100-generic", tree: planted()}, gpu, "04:00.0", MapUnknown, unknown, 4, "before 6.1"},
		{"no version", fixture{release: "custom", tree: planted()}, gpu, "04:00.0", MapUnknown, unknown, 4, `"custom"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := c.f.open(t).Decide(addr(t, c.provider), client(t, c.client))
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

// The list names what has to change, in the order in which the kernel does.
func TestRedirectList(t *testing.T) {
	m := fixture{tree: planted("ACS1", "acs=0x1d", "ACS2", "acs=0x1d", "ACS3", "acs=0x1d", "ACS4", "acs=0x05")}.open(t)
	for pair, want := range map[[2]string]string{
		{"03:00.0", "04:00.0"}: "[0000:02:00.0 0000:04:00.0 0000:02:01.0]",
		{"04:00.0", "03:00.0"}: "[0000:04:00.0 0000:02:01.0 0000:02:00.0]",
		{"04:00.1", "04:00.0"}: "[0000:02:01.0 0000:04:00.0]",
	} {
		var got []string
		for _, r := range m.Decide(addr(t, pair[0]), client(t, pair[1])).Redirects {
			got = append(got, r.PCI.String())
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%v: %v, want %s", pair, got, want)
		}
	}
}

func TestNoECAMIsNoted(t *testing.T) {
	m := fixture{tree: planted("ACS2", "acs=0x1d config=256")}.open(t)
	d := m.Decide(addr(t, "03:00.0"), client(t, "04:00.0"))
	if len(d.Notes) != 1 || !strings.Contains(d.Notes[0], "0000:02:00.0") {
		t.Errorf("%q", d.Notes)
	}
}

// Many ask at once; the race detector is what this test is for.
func TestConcurrent(t *testing.T) {
	m := fixture{cpu: xeon, tree: planted("ACS2", "acs=0x1d")}.open(t)
	gpu := addr(t, "03:00.0")
	nics := []string{"04:00.0", "04:00.1", "07:00.0", "09:00.0", "81:00.0"}
	var wg sync.WaitGroup
	for i := range 4 * len(nics) {
		nic := addr(t, nics[i%len(nics)])
		wg.Go(func() {
			if p := m.Predict(Exporter{Class: ClassNVIDIA, PCI: &gpu}, Importer{PCI: &nic}); p.Decision.Steps < 4 {
				t.Errorf("%v: %v", nic, p)
			}
		})
	}
	wg.Wait()
}

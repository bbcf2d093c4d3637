// SPDX-License-Identifier: Apache-2.0

package lspci

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// known is all that package p2p knows of a function, in one line.
func known(m *machine.Machine, a pciaddr.Addr) string {
	f, err := m.Function(a)
	if err != nil {
		return "error"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s", f.Bus)
	for _, up := range slices.Backward(f.Upstream) {
		fmt.Fprintf(&b, "/%v", up)
	}
	fmt.Fprintf(&b, " %04x:%04x %06x %s %q", f.Vendor, f.Device, f.Class, f.Driver, f.Port)
	fmt.Fprintf(&b, " node %d group %s", f.NUMANode, f.Group)
	if f.GroupErr != nil {
		b.WriteString("?")
	}
	if f.IOMMUErr == nil {
		fmt.Fprintf(&b, " iommu %q", f.IOMMU)
	}
	fmt.Fprintf(&b, " %s x%s of %s x%s", f.Speed, f.Width, f.MaxSpeed, f.MaxWidth)
	switch {
	case f.ACSErr != nil:
		b.WriteString(" acs ?")
	case f.ACS.Present:
		fmt.Fprintf(&b, " acs %#x of %#x", uint16(f.ACS.Ctrl), uint16(f.ACS.Cap))
	default:
		b.WriteString(" no acs")
	}
	for _, bar := range f.BARs {
		fmt.Fprintf(&b, " %d:%#x+%#x", bar.Index, bar.Start, bar.Size)
	}
	if f.PF != nil {
		fmt.Fprintf(&b, " of %v", *f.PF)
	}
	return b.String()
}

const (
	fast = "32.0 GT/s PCIe x16 of 32.0 GT/s PCIe x16"
	none = " x of  x" // no link that is known
)

// Package p2p reads what the lines say.
func TestFunctions(t *testing.T) {
	for _, c := range []struct{ text, address, want string }{
		{"dgx.txt", "0000:15:01.0", `pci0000:15 8086:352a 060400 pcieport "root port" node 0 group 27 ` + fast + ` acs 0x1d of 0x5f`},
		{"dgx.txt", "0000:16:00.0", `pci0000:15/0000:15:01.0 1000:c030 060400 pcieport "upstream port" node 0 group 27 ` + fast + ` no acs`},
		{"dgx.txt", "0000:17:02.0", `pci0000:15/0000:15:01.0/0000:16:00.0 1000:c030 060400 pcieport "downstream port" node 0 group 30 16.0 GT/s PCIe x4 of 16.0 GT/s PCIe x4 acs 0x1d of 0x5f`},
		{"dgx.txt", "0000:99:01.0", `pci0000:97/0000:97:01.0/0000:98:00.0 1000:c030 060400 pcieport "downstream port" node 1 group 81 ` + fast + ` acs 0x0 of 0x5f`},
		{"dgx.txt", "0000:18:00.0", `pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0 15b3:1021 020700 mlx5_core "endpoint" node 0 group 31 ` + fast + ` no acs 0:0x21fffe000000+0x2000000`},
		{"dgx.txt", "0000:9b:00.0", `pci0000:97/0000:97:01.0/0000:98:00.0/0000:99:01.0 10de:2330 030200 nvidia "endpoint" node 1 group 81 2.5 GT/s PCIe x16 of 32.0 GT/s PCIe x16 acs 0x0 of 0x0 0:0x2b7042000000+0x1000000 2:0x2b4000000000+0x2000000000 4:0x2b7040000000+0x2000000`},
		{"dgx.txt", "0000:15:00.0", `pci0000:15 8086:09a2 088000  "" node 0 group  iommu "" ` + none + ` acs ?`}, // no line of its IOMMU group: it has none
		{"sriov.txt", "0000:00:00.0", `pci0000:00 1022:14a4 060000  "" node 0 group  iommu "" ` + none + ` no acs`},
		{"sriov.txt", "0000:01:1f.6", `pci0000:00/0000:00:01.1 15b3:101e 020000 mlx5_core "endpoint" node 0 group 30 ` + fast + ` no acs 0:0x2bfffa000000+0x100000 of 0000:01:00.0`},
		// A bus that no bridge leads to is of virtual functions, below the bridge of the physical one.
		{"sriov.txt", "0000:02:00.0", `pci0000:00/0000:00:01.1 15b3:101e 020000 vfio-pci "endpoint" node 0 group 31 ` + fast + ` no acs 0:0x2bfffa200000+0x100000 of 0000:01:00.0`},
		{"domains.txt", "0009:01:00.0", `pci0009:00/0009:00:00.0 10de:2342 030200 nvidia "endpoint" node 0 group 3 ` + fast + ` no acs 0:0x661002000000+0x1000000 2:0x662000000000+0x2000000000`},
		{"domains.txt", "0000:01:00.0", `pci0000:00/0000:00:00.0 15b3:1021 020700 mlx5_core "endpoint" node 0 group 1 ` + fast + ` no acs 0:0x661002000000+0x2000000`},
		// lspci before 3.7.0 prints no IOMMU group of any function: it is not known.
		{"old.txt", "0000:05:01.0", `pci0000:00/0000:00:02.0/0000:04:00.0 10b5:9716 060400 pcieport "downstream port" node 0 group ? 8.0 GT/s PCIe x4 of 8.0 GT/s PCIe x4 acs 0x1d of 0x7f`},
		{"old.txt", "0000:06:00.0", `pci0000:00/0000:00:02.0/0000:04:00.0/0000:05:01.0 10de:1db4 030200 nvidia "endpoint" node 0 group ? 8.0 GT/s PCIe x16 of 8.0 GT/s PCIe x16 no acs 1:0x387fe0000000+0x10000000`},
		// Without root, without -vv, and without -v.
		{"unprivileged.txt", "0000:17:00.0", `pci0000:15/0000:15:01.0/0000:16:00.0 1000:c030 060400 pcieport "" node 0 group 28 ` + none + ` acs ?`},
		{"unprivileged.txt", "0000:19:00.0", `pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0 10de:2330 030200 nvidia "" node 0 group 32 ` + none + ` acs ? 0:0x217042000000+0x1000000 2:0x214000000000+0x2000000000 4:0x217040000000+0x2000000`},
		{"brief.txt", "0000:17:00.0", `pci0000:15/0000:15:01.0/0000:16:00.0 1000:c030 060400 pcieport "downstream port" node 0 group 28 ` + none + ` acs ?`},
		{"terse.txt", "0000:15:01.0", `pci0000:15 8086:352a 060400 ? "" node -1 group ? ` + none + ` acs ?`},
		{"terse.txt", "0000:18:00.0", "error"}, // nothing says what it is below
		{"guest.txt", "0000:10:1c.0", "error"},
		{"names.txt", "0000:19:00.0", "error"}, // no vendor
	} {
		m := machine.Open(write(t, machineOf(t, fixture(t, c.text), "")))
		got := known(m, addr(t, c.address))
		if got != c.want {
			t.Errorf("%s, %s:\n%s, want\n%s", c.text, c.address, got, c.want)
		}
	}
}

// A file that lspci prints nothing of is there and cannot be read.
func TestUnreadFiles(t *testing.T) {
	never := "power/runtime_status d3cold_allowed p2pmem dma_mask_bits vpd aer_dev_fatal aer_dev_nonfatal aer_dev_correctable"
	gpu := " drm accel mem_info_vram_total mem_info_vis_vram_total"
	nic := " net infiniband/rdma-0000:18:00.0/fw_ver infiniband/rdma-0000:18:00.0/board_id infiniband/rdma-0000:18:00.0/node_type"
	links := " current_link_speed current_link_width max_link_speed max_link_width"
	for _, c := range []struct{ text, address, want string }{
		{"dgx.txt", "0000:17:00.0", never},
		{"dgx.txt", "0000:19:00.0", never + gpu},
		{"dgx.txt", "0000:15:00.0", links}, // no check looks at it but for its numbers
		{"unprivileged.txt", "0000:17:00.0", never + links},
		{"unprivileged.txt", "0000:19:00.0", never + gpu + links},
		{"brief.txt", "0000:19:00.0", never + gpu + links + " physfn resource"},
		{"terse.txt", "0000:19:00.0", never + gpu + links + " physfn resource config numa_node iommu_group subsystem_vendor subsystem_device"},
		{"names.txt", "0000:19:00.0", never + gpu + " vendor device subsystem_vendor subsystem_device"},
		{"guest.txt", "0000:10:1c.0", never + gpu + " numa_node iommu_group"},
	} {
		var got []string
		for name, e := range machineOf(t, fixture(t, c.text), "").of(c.address) {
			if e.Unreadable {
				got = append(got, name)
			}
		}
		want := strings.Fields(c.want)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s, %s: %q, want %q", c.text, c.address, got, want)
		}
	}
	m := machineOf(t, fixture(t, "dgx.txt"), "")
	for _, name := range strings.Fields(nic) {
		if !m.of("0000:18:00.0")[name].Unreadable && !m.Files[m.dirOf("0000:18:00.0")+"/"+name].Unreadable {
			t.Errorf("%s is not unread", name)
		}
	}
	if !m.Files["sys/kernel/iommu_groups/32/type"].Unreadable {
		t.Error("the type of an IOMMU group is not in the text")
	}
	for name := range m.Files {
		if !strings.HasPrefix(name, "sys/") {
			t.Errorf("%s: lspci prints nothing of it", name)
		}
	}
}

// ACS whose registers were not read is not an ACS that is turned off, and not one
// that is absent.
func TestACSIsUnread(t *testing.T) {
	for _, c := range []struct{ text, address string }{
		{"unprivileged.txt", "0000:17:00.0"}, {"unprivileged.txt", "0000:16:00.0"}, {"brief.txt", "0000:17:00.0"}, {"brief.txt", "0000:16:00.0"},
		{"terse.txt", "0000:17:00.0"}, {"dgx.txt", "0000:15:00.0"},
	} {
		root := write(t, machineOf(t, fixture(t, c.text), ""))
		config, err := pci.ReadConfig(sysfs.New(root+"/sys"), addr(t, c.address))
		if err == nil {
			_, err = config.ACS()
		}
		if err == nil {
			t.Errorf("%s, %s: ACS is known", c.text, c.address)
		}
	}
}

// A function that is switched off answers with ones.
func TestFunctionThatDoesNotAnswer(t *testing.T) {
	text := "0000:00:00.0 Host bridge [0600]: Intel Corporation Device [8086:1237]\n\tStatus: Cap- 66MHz-\n\n" +
		"0000:00:01.0 3D controller [0302]: NVIDIA Corporation GM108M [10de:1341] (rev ff) (prog-if ff)\n\t!!! Unknown header type 7f\n\tKernel driver in use: nvidia\n\n"
	root := write(t, machineOf(t, text, ""))
	if _, err := pci.ReadConfig(sysfs.New(root+"/sys"), addr(t, "0000:00:01.0")); !errors.Is(err, pci.ErrNoAnswer) {
		t.Errorf("%v, want %v", err, pci.ErrNoAnswer)
	}
}

// The function by which the kernel knows a host bridge is the first of its bus. If
// the text does not have 00.0, another one may be the first.
func TestHostBridgeThatIsNotThere(t *testing.T) {
	text := fixture(t, "dgx.txt")
	for _, c := range []struct{ text, want string }{
		{text, "the host bridge of pci0000:15, known by 0000:15:00.0"},
		{without(t, text, "0000:15:00.0"), "the host bridge cannot be read"},
	} {
		m := machine.Open(write(t, machineOf(t, c.text, "")))
		nic := addr(t, "0000:9a:00.0")
		if d := p2pdma.Decide(m, addr(t, "0000:19:00.0"), &nic); !strings.Contains(d.String(), c.want) {
			t.Errorf("%v, want %q", d, c.want)
		}
	}
}

// Bridges that are not set up lead to no bus.
func TestBridgesThatAreNotSetUp(t *testing.T) {
	text := fixture(t, "dgx.txt")
	whole := machineOf(t, text, "")
	for _, to := range []string{"secondary=00", "secondary=17", "secondary=15"} {
		changed := strings.Replace(text, "primary=17, secondary=1a", "primary=17, "+to, 1)
		m := machineOf(t, changed, "")
		for _, address := range whole.addresses() {
			want := whole.dirOf(address)
			if address == "0000:1a:00.0" {
				want = "sys/devices/pci0000:1a/" + unplaced + "/" + address + "/" + address
			}
			if got := m.dirOf(address); got != want {
				t.Errorf("%s: %s is %s, want %s", to, address, got, want)
			}
		}
	}
}

// A function at the place of a virtual one, with registers of its own, is none; nor
// are there any where the physical function has turned them off.
func TestVirtualFunctions(t *testing.T) {
	text := fixture(t, "sriov.txt")
	for _, c := range []struct{ old, new, want string }{
		{"", "", "0000:01:00.0"},
		{"Region 0: Memory at 2bfffa000000 (64-bit, prefetchable) [virtual]", "Region 0: Memory at 2bfffa000000 (64-bit, prefetchable)", ""},
		{"IOVCtl:\tEnable+", "IOVCtl:\tEnable-", "?"},
		{"VF offset: 254, stride: 1", "VF offset: 254, stride", "?"},
		{"Number of VFs: 3", "Number of VFs: 0", "?"},
		{"VF offset: 254, stride: 1", "VF offset: 252, stride: 2", "0000:01:00.0"},
		{"VF offset: 254, stride: 1", "VF offset: 253, stride: 2", "?"},
		{"VF offset: 254, stride: 1", "VF offset: 255, stride: 1", "?"},
		{"VF offset: 254, stride: 1", "VF offset: 251, stride: 1", "?"},
		{"VF offset: 254, stride: 1", "VF offset: 254, stride: 0", "0000:01:00.0"},
		{"VF offset: 254, stride: 1", "VF offset: 253, stride: 0", "?"},
	} {
		m := machineOf(t, strings.Replace(text, c.old, c.new, 1), "")
		e, there := m.of("0000:01:1f.6")["physfn"]
		got := path.Base(e.Link)
		switch {
		case !there:
			got = ""
		case e.Unreadable:
			got = "?"
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.new, got, c.want)
		}
		if _, there := m.of("0000:01:00.0")["physfn"]; there {
			t.Error("the physical function has one")
		}
	}
}

// without is a text without one function.
func without(t testing.TB, text, address string) string {
	t.Helper()
	at := strings.Index(text, "\n"+address+" ")
	if strings.HasPrefix(text, address) {
		at = -1
	}
	end := strings.Index(text[at+1:], "\n\n")
	if end < 0 {
		t.Fatalf("%s is not in the text", address)
	}
	return text[:at+1] + text[at+1+end+2:]
}

// Which functions stand for an RDMA device.
func TestRDMADevices(t *testing.T) {
	for _, c := range []struct {
		head, driver string
		want         bool
	}{
		{"Infiniband controller [0207]: Mellanox Technologies MT2910 [15b3:1021]", "mlx5_core", true},
		{"Ethernet controller [0200]: Mellanox Technologies MT2910 [15b3:1021]", "mlx5_core", true},
		{"Ethernet controller [0200]: Mellanox Technologies MT2910 [15b3:1021]", "vfio-pci", false}, // a guest's
		{"Ethernet controller [0200]: Mellanox Technologies MT2910 [15b3:1021]", "-", false},        // no driver is bound
		{"Ethernet controller [0200]: Mellanox Technologies MT2910 [15b3:1021]", "", true},          // -v would print the driver
		{"Infiniband controller: Mellanox Technologies MT2910", "", true},
		{"Ethernet controller: Mellanox Technologies MT2910", "", false},
		{"Ethernet controller [0200]: Amazon.com, Inc. Elastic Fabric Adapter (EFA) [1d0f:efa2]", "", true},
		{"Ethernet controller [0200]: Amazon.com, Inc. Elastic Network Adapter (ENA) [1d0f:ec20]", "", false},
		{"Ethernet controller [0200]: Broadcom Inc. and subsidiaries BCM57508 [14e4:1750]", "bnxt_en", true},
		{"Ethernet controller [0200]: Intel Corporation Ethernet Controller E810-C [8086:1592]", "ice", true},
		{"Ethernet controller [0200]: Intel Corporation I350 [8086:1521]", "igb", false},
		{"Ethernet controller [0200]: Microsoft Corporation Device [1414:00ba]", "mana", true},
		{"Ethernet controller [0200]: Pensando Systems DSC Ethernet Controller [1dd8:1002]", "ionic", true},
		{"DMA controller [0801]: Mellanox Technologies MT43244 [15b3:c2d5]", "mlx5_core", false},
	} {
		text := "0000:00:00.0 " + c.head + "\n"
		switch c.driver {
		case "":
		case "-":
			text += "\tStatus: Cap- 66MHz-\n\n"
		default:
			text += "\tStatus: Cap- 66MHz-\n\tKernel driver in use: " + c.driver + "\n\n"
		}
		m := machineOf(t, text, "")
		link := m.Files["sys/class/infiniband/rdma-0000:00:00.0"]
		if got := link.Link != ""; got != c.want {
			t.Errorf("%s, driver %q: %v, want %v", c.head, c.driver, got, c.want)
		}
		if !c.want {
			continue
		}
		nics, err := drivers.NICs(machine.Open(write(t, m)))
		if err != nil || len(nics) != 1 || nics[0].Name != "rdma-0000:00:00.0" || nics[0].Importer.PCI == nil || nics[0].Importer.Kind != drivers.KindUnknown {
			t.Errorf("%s: %+v, %v", c.head, nics, err)
		}
	}
}

// No pair is direct by the text alone, whatever is said of the kernel.
func TestNothingIsDirect(t *testing.T) {
	for _, name := range []string{"dgx.txt", "sriov.txt", "domains.txt", "guest.txt", "unprivileged.txt", "brief.txt", "terse.txt", "names.txt", "old.txt"} {
		root := write(t, machineOf(t, fixture(t, name), ""))
		for _, release := range []string{"", "6.1.0", "6.12.1", "7.3.0"} {
			m := machine.Source{Root: root, Release: release}.Open()
			gpus, _ := drivers.GPUs(m)
			nics, _ := drivers.NICs(m)
			if len(nics) == 0 || len(gpus) == 0 && name != "names.txt" {
				t.Errorf("%s: %d GPUs, %d NICs", name, len(gpus), len(nics))
			}
			for _, g := range gpus {
				for _, n := range nics {
					if p := p2p.Judge(m, g, n); p.Verdict.Outcome() != chain.OutcomeUnknown && p.Verdict.Outcome() != chain.Broken && g.Exporter.Class != drivers.ClassSystem {
						t.Errorf("%s, Linux %q: %s -> %s: %v", name, release, g.Name, n.Name, p.Prediction)
					}
				}
			}
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"strconv"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// The inventory of another machine has nothing of this machine.
func TestSource(t *testing.T) {
	root := testenv.Tree{Functions: machinetest.Planted()}.Write(t)
	m := machine.Source{Sys: root + "/sys"}.Open()
	if k := m.Kernel; k.Release != "" || k.P2PDMA != placement.AnswerUnknown || m.CPU.Known {
		t.Errorf("%+v, %+v", k, m.CPU)
	}
	m = machine.Source{Sys: root + "/sys", Proc: root + "/proc"}.Open()
	if k := m.Kernel; k.Release != "7.2.12+deb13-amd64" || k.P2PDMA != placement.AnswerUnknown || !m.CPU.Known {
		t.Errorf("%+v, %+v", k, m.CPU)
	}
	config := root + "/boot/config-7.2.12+deb13-amd64"
	m = machine.Source{Sys: root + "/sys", Release: "6.12.1", Config: config}.Open()
	if k := m.Kernel; k.Release != "6.12.1" || k.P2PDMA != placement.Yes || k.Source != config {
		t.Errorf("%+v", k)
	}
	for _, bad := range []string{root + "/none", root + "/proc/cpuinfo"} {
		if k := (machine.Source{Root: root, Config: bad}).Open().Kernel; k.P2PDMA != placement.AnswerUnknown || !strings.Contains(k.Source, bad) {
			t.Errorf("%s: %+v", bad, k)
		}
	}
}

func TestLetters(t *testing.T) {
	set := func(text string) string {
		for _, f := range []string{"0000:03:00.0", "0000:09:00.0"} {
			text = strings.Replace(text, "/"+f, "/"+f+" numa_node=0", 1)
		}
		return strings.Replace(text, "/0000:81:00.0", "/0000:81:00.0 numa_node=1", 1)
	}
	m := machinetest.Fixture{Tree: set(machinetest.Planted())}.Open(t)
	for _, c := range []struct{ a, b, nccl, nvml string }{
		{"03:00.0", "03:00.0", "LOC", "X"},
		{"03:00.0", "04:00.0", "PIX", "PIX"},
		{"03:00.0", "07:00.0", "PXB", "PXB"},
		{"04:00.0", "04:00.1", "PIX", "PIX"},
		{"81:00.0", "81:00.4", "PHB", "PIX"}, // NCCL does not see the port that both are behind
		{"03:00.0", "09:00.0", "PHB", "PHB"},
		{"03:00.0", "81:00.0", "SYS", "SYS"},
		{"04:00.0", "81:00.4", "PHB", "NODE"}, // no NUMA
		{"04:00.0", "81:00.0", "SYS", ""},
		{"03:00.0", "0a:00.0", "", ""},
	} {
		if l := m.Letters(machinetest.Addr(t, c.a), machinetest.Addr(t, c.b)); l.NCCL != c.nccl || l.NVML != c.nvml {
			t.Errorf("%s to %s: %+v, want %s, %s", c.a, c.b, l, c.nccl, c.nvml)
		}
		if l, back := m.Letters(machinetest.Addr(t, c.a), machinetest.Addr(t, c.b)), m.Letters(machinetest.Addr(t, c.b), machinetest.Addr(t, c.a)); l != back {
			t.Errorf("%s to %s is %+v, and back %+v", c.a, c.b, l, back)
		}
	}
}

// Broadcom's switches in two levels are one to NCCL, and two to NVML.
func TestLettersOfBroadcom(t *testing.T) {
	tree := func(top, sub string) string {
		const root = "pci0000:00/0000:00:01.0"
		lines := []string{root + " class=0x060400 type=4 vendor=0x8086 device=0x352a",
			root + "/0000:01:00.0 class=0x060400 type=5 " + top, root + "/0000:01:00.0/0000:02:00.0 class=0x060400 type=6 " + top,
			root + "/0000:01:00.0/0000:02:01.0 class=0x060400 type=6 " + top}
		for i, bus := range []string{"3", "6"} {
			up := root + "/0000:01:00.0/0000:02:0" + strconv.Itoa(i) + ".0/0000:0" + bus + ":00.0"
			down := up + "/0000:0" + string(bus[0]+1) + ":00.0"
			lines = append(lines, up+" class=0x060400 type=5 "+sub, down+" class=0x060400 type=6 "+sub,
				down+"/0000:0"+string(bus[0]+2)+":00.0 class=0x030200 vendor=0x10de device=0x2330")
		}
		return strings.Join(lines, "\n")
	}
	id := func(device, subDevice string) string {
		return "vendor=0x1000 device=" + device + " subsystem_vendor=0x1000 subsystem_device=" + subDevice
	}
	for name, c := range map[string]struct{ top, sub, nccl string }{
		"fourth generation":     {id("0xc010", "0xa096"), id("0xc010", "0xa096"), "PIX"},
		"fifth":                 {id("0xc030", "0x0104"), id("0xc030", "0x1104"), "PIX"},
		"fifth, the same twice": {id("0xc030", "0x0104"), id("0xc030", "0x0104"), "PXB"},
		"two generations":       {id("0xc010", "0xa096"), id("0xc030", "0x1104"), "PXB"},
		"another subsystem":     {id("0xc010", "0x0096"), id("0xc010", "0x0096"), "PXB"},
		"no subsystem":          {"vendor=0x1000 device=0xc010", "vendor=0x1000 device=0xc010", "PXB"},
		"not known":             {id("0xc010", "odd"), id("0xc010", "0xa096"), ""},
	} {
		m := machinetest.Fixture{Tree: tree(c.top, c.sub)}.Open(t)
		if l := m.Letters(machinetest.Addr(t, "05:00.0"), machinetest.Addr(t, "08:00.0")); l.NCCL != c.nccl || l.NVML != "PXB" {
			t.Errorf("%s: %+v, want %q, PXB", name, l, c.nccl)
		}
	}
}

func TestFunction(t *testing.T) {
	m := machinetest.Fixture{
		Tree: `
pci0000:00/0000:00:01.0 class=0x060400 type=4 acs=0x1d
pci0000:00/0000:00:01.0/0000:01:00.0 type=0 driver:amdgpu numa_node=1 current_link_speed=16.0_GT/s_PCIe current_link_width=8 max_link_speed=32.0_GT/s_PCIe max_link_width=16
pci0000:00/0000:00:02.0 class=0x060400 config=64 current_link_speed=Unknown current_link_width=0
`,
		Files: map[string]string{"sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/resource": "0x8000000000 0x80ffffffff 0x14220c\n"},
	}.Open(t)
	port, err := m.Function(machinetest.Addr(t, "00:01.0"))
	if err != nil || port.Port != "root port" || !port.Bridge || port.ACS.Redirects() == 0 || port.Bus != "pci0000:00" || len(port.Upstream) != 0 {
		t.Errorf("%+v, %v", port, err)
	}
	gpu, err := m.Function(machinetest.Addr(t, "01:00.0"))
	if err != nil || gpu.Port != "endpoint" || gpu.Bridge || gpu.Driver != "amdgpu" || gpu.NUMANode != 1 || len(gpu.Upstream) != 1 ||
		len(gpu.BARs) != 1 || gpu.BARs[0].Size != 4<<30 || gpu.Speed != "16.0 GT/s PCIe" || gpu.Width != "8" || gpu.MaxWidth != "16" {
		t.Errorf("%+v, %v", gpu, err)
	}
	short, err := m.Function(machinetest.Addr(t, "00:02.0"))
	if err != nil || short.ACSErr == nil || short.Port != "" || short.Speed != "" || short.Width != "" || short.NUMANode != -1 {
		t.Errorf("%+v, %v", short, err)
	}
	if _, err := m.Function(machinetest.Addr(t, "0a:00.0")); err == nil {
		t.Error("a function that is not there")
	}
}

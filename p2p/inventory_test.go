// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"strconv"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
)

func TestInventory(t *testing.T) {
	m := fixture{
		tree: `
pci0000:00/0000:00:02.0 class=0x030000 driver:virtio-pci
pci0000:00/0000:00:03.0 class=0x020000 driver:mlx5_core rdma:mlx5_0
pci0000:00/0000:00:04.0 class=0x120000 driver:habanalabs
pci0000:00/0000:00:05.0 class=0x050000 driver:softgpu behaviour=xe
pci0000:00/0000:00:06.0 class=0x050000
pci0000:00/0000:00:07.0 class=0x030200 vendor=odd
pci0000:00/0000:00:08.0 class=odd
`,
		links: map[string]string{
			"sys/devices/pci0000:00/0000:00:02.0/virtio3/driver":   "sys/bus/virtio/drivers/virtio_gpu",
			"sys/class/drm/card0":                                  "sys/devices/pci0000:00/0000:00:02.0/drm/card0",
			"sys/devices/pci0000:00/0000:00:02.0/drm/card0/device": "sys/devices/pci0000:00/0000:00:02.0",
			"sys/class/drm/card1":                                  "sys/devices/faux/vgem/drm/card1",
			"sys/devices/faux/vgem/drm/card1/device":               "sys/devices/faux/vgem",
			"sys/class/drm/renderD128":                             "sys/devices/faux/vgem/drm/renderD128",
			"sys/devices/faux/vgem/drm/renderD128/device":          "sys/devices/faux/vgem",
			"sys/class/drm/card2":                                  "sys/devices/faux/vkms/drm/card2",
			"sys/devices/faux/vkms/drm/card2/device":               "sys/devices/faux/vkms",
			"sys/devices/faux/vkms/driver":                         "sys/bus/faux/drivers/faux_driver",
			"sys/class/infiniband/rxe0":                            "sys/devices/virtual/infiniband/rxe0",
		},
		files: map[string]string{"sys/module/mlx5_ib/taint": "\n"},
	}.open(t)
	gpus, err := m.GPUs()
	if err == nil || !strings.Contains(err.Error(), "0000:00:07.0") || !strings.Contains(err.Error(), "0000:00:08.0") {
		t.Errorf("a GPU that cannot be read: %v", err)
	}
	var got []string
	for _, g := range gpus {
		got = append(got, g.Name+" "+g.Exporter.Driver+" "+g.Exporter.Class.String())
	}
	want := "0000:00:02.0 virtio_gpu system, 0000:00:04.0 habanalabs habanalabs, 0000:00:05.0 softgpu xe, vgem vgem system, vkms vkms system"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("GPUs %s\nwant %s", s, want)
	}
	nics, err := m.NICs()
	if err != nil || len(nics) != 2 || nics[0].Name != "mlx5_0" || nics[0].Importer.Kind != Dynamic || nics[1].Importer.PCI != nil {
		t.Errorf("NICs %+v, %v", nics, err)
	}
}

func TestInventoryOfNothing(t *testing.T) {
	m := fixture{files: map[string]string{"sys/kernel/x": ""}}.open(t)
	gpus, err1 := m.GPUs()
	nics, err2 := m.NICs()
	if len(gpus)+len(nics) != 0 || err1 != nil || err2 != nil {
		t.Error(gpus, nics, err1, err2)
	}
	m = Open(t.TempDir())
	_, err1 = m.GPUs()
	_, err2 = m.NICs()
	if err1 == nil || err2 == nil {
		t.Error("no sysfs, and nobody says so")
	}
}

// Of another machine nothing of this one is taken.
func TestSource(t *testing.T) {
	root := testenv.Tree{Functions: planted()}.Write(t)
	m := Source{Sys: root + "/sys"}.Open()
	if k := m.Kernel; k.Release != "" || k.P2PDMA != placement.AnswerUnknown || m.CPU.known {
		t.Errorf("%+v, %+v", k, m.CPU)
	}
	m = Source{Sys: root + "/sys", Proc: root + "/proc"}.Open()
	if k := m.Kernel; k.Release != "7.2.12+deb13-amd64" || k.P2PDMA != placement.AnswerUnknown || !m.CPU.known {
		t.Errorf("%+v, %+v", k, m.CPU)
	}
	config := root + "/boot/config-7.2.12+deb13-amd64"
	m = Source{Sys: root + "/sys", Release: "6.12.1", Config: config}.Open()
	if k := m.Kernel; k.Release != "6.12.1" || k.P2PDMA != placement.Yes || k.Source != config {
		t.Errorf("%+v", k)
	}
	for _, bad := range []string{root + "/none", root + "/proc/cpuinfo"} {
		if k := (Source{Root: root, Config: bad}).Open().Kernel; k.P2PDMA != placement.AnswerUnknown || !strings.Contains(k.Source, bad) {
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
	m := fixture{tree: set(planted())}.open(t)
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
		if l := m.Letters(addr(t, c.a), addr(t, c.b)); l.NCCL != c.nccl || l.NVML != c.nvml {
			t.Errorf("%s to %s: %+v, want %s, %s", c.a, c.b, l, c.nccl, c.nvml)
		}
		if l, back := m.Letters(addr(t, c.a), addr(t, c.b)), m.Letters(addr(t, c.b), addr(t, c.a)); l != back {
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
		m := fixture{tree: tree(c.top, c.sub)}.open(t)
		if l := m.Letters(addr(t, "05:00.0"), addr(t, "08:00.0")); l.NCCL != c.nccl || l.NVML != "PXB" {
			t.Errorf("%s: %+v, want %q, PXB", name, l, c.nccl)
		}
	}
}

func TestFunction(t *testing.T) {
	m := fixture{
		tree: `
pci0000:00/0000:00:01.0 class=0x060400 type=4 acs=0x1d
pci0000:00/0000:00:01.0/0000:01:00.0 type=0 driver:amdgpu numa_node=1 current_link_speed=16.0_GT/s_PCIe current_link_width=8 max_link_speed=32.0_GT/s_PCIe max_link_width=16
pci0000:00/0000:00:02.0 class=0x060400 config=64 current_link_speed=Unknown current_link_width=0
`,
		files: map[string]string{"sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/resource": "0x8000000000 0x80ffffffff 0x14220c\n"},
	}.open(t)
	port, err := m.Function(addr(t, "00:01.0"))
	if err != nil || port.Port != "root port" || !port.Bridge || port.ACS.Redirects() == 0 || port.Bus != "pci0000:00" || len(port.Upstream) != 0 {
		t.Errorf("%+v, %v", port, err)
	}
	gpu, err := m.Function(addr(t, "01:00.0"))
	if err != nil || gpu.Port != "endpoint" || gpu.Bridge || gpu.Driver != "amdgpu" || gpu.NUMANode != 1 || len(gpu.Upstream) != 1 ||
		len(gpu.BARs) != 1 || gpu.BARs[0].Size != 4<<30 || gpu.Speed != "16.0 GT/s PCIe" || gpu.Width != "8" || gpu.MaxWidth != "16" {
		t.Errorf("%+v, %v", gpu, err)
	}
	short, err := m.Function(addr(t, "00:02.0"))
	if err != nil || short.ACSErr == nil || short.Port != "" || short.Speed != "" || short.Width != "" || short.NUMANode != -1 {
		t.Errorf("%+v, %v", short, err)
	}
	if _, err := m.Function(addr(t, "0a:00.0")); err == nil {
		t.Error("a function that is not there")
	}
}

// The display of a server's board is no GPU that counts, where the driver's
// ways are known.
func TestDisplaysOfServers(t *testing.T) {
	for _, c := range []struct {
		driver, release, taint string
		want                   Class
	}{
		{"ast", "7.2.1", "", ClassSystem}, {"ast", "6.12.1", "", ClassSystem}, {"ast", "6.1.1", "", ClassUnknown}, {"ast", "7.2.1", "O", ClassUnknown},
		{"mgag200", "6.1.1", "", ClassSystem}, {"bochs-drm", "7.2.1", "", ClassSystem}, {"qxl", "6.1.1", "", ClassSystem}, {"cirrus", "6.1.1", "", ClassSystem}, {"novel-drm", "7.2.1", "", ClassUnknown},
	} {
		m := fixture{release: c.release, tree: "pci0000:00/0000:00:04.0 class=0x030000 driver:" + c.driver, files: map[string]string{"sys/module/" + c.driver + "/taint": c.taint + "\n"}}.open(t)
		if gpus, err := m.GPUs(); err != nil || len(gpus) != 1 || gpus[0].Exporter.Class != c.want {
			t.Errorf("%+v: %+v, %v", c, gpus, err)
		}
	}
}

// A guest's emulated VGA is no GPU, whoever drives it.
func TestEmulatedDisplays(t *testing.T) {
	for _, id := range []string{"vendor=0x1234 device=0x1111", "vendor=0x1013 device=0x00b8", "vendor=0x1b36 device=0x0100", "vendor=0x1af4 device=0x1050"} {
		m := fixture{tree: "pci0000:00/0000:00:01.0 class=0x030000 " + id}.open(t)
		if gpus, err := m.GPUs(); err != nil || len(gpus) != 1 || gpus[0].Exporter.Class != ClassSystem {
			t.Errorf("%s: %+v, %v", id, gpus, err)
		}
	}
}

// A board's display counts by no driver, as with "nomodeset", nor by one that
// knows nothing of PCI.
func TestDisplaysWithoutTheirDriver(t *testing.T) {
	m := fixture{
		release: "5.15.0-91-generic",
		tree:    "pci0000:00/0000:00:04.0 class=0x030000 vendor=0x1a03 device=0x2000\npci0000:00/0000:00:05.0 class=0x030000 vendor=0x10de device=0x2330\n",
		links: map[string]string{
			"sys/class/drm/card0": "sys/devices/platform/simple-framebuffer.0/drm/card0",
			"sys/devices/platform/simple-framebuffer.0/drm/card0/device": "sys/devices/platform/simple-framebuffer.0",
			"sys/devices/platform/simple-framebuffer.0/driver":           "sys/bus/platform/drivers/simple-framebuffer",
		},
	}.open(t)
	gpus, err := m.GPUs()
	var got []string
	for _, g := range gpus {
		got = append(got, g.Name+" "+g.Exporter.Class.String())
	}
	if s := strings.Join(got, ", "); err != nil || s != "0000:00:04.0 system, 0000:00:05.0 unknown, simple-framebuffer.0 system" {
		t.Error(s, err)
	}
}

// NVIDIA's gate asks for a bridge on some chipsets, and is open on others; its
// proprietary modules export nothing.
func TestNVIDIAGate(t *testing.T) {
	const gpu = "pci0000:00/0000:00:04.0 class=0x030200 driver:nvidia"
	port := func(vendor, device string) string {
		return gpu + "\npci0000:00/0000:00:01.0 class=0x060400 type=4 vendor=" + vendor + " device=" + device
	}
	below := strings.ReplaceAll(port("0x10de", "0x22b1"), "00/0000:00:04.0", "00/0000:00:01.0/0000:00:04.0")
	bare, guest := xeon+"flags\t\t: fpu\n", xeon+"flags\t\t: fpu hypervisor\n"
	for _, c := range []struct {
		cpu, params, taint string
		class              Class
		gate               Gate
		tree               string
		vendor             string // of the machine
	}{
		{bare, "0", "OE", ClassNVIDIA, GateOpen, gpu, ""},
		{guest, "0", "OE", ClassNVIDIA, GateOpen, gpu, ""},
		{guest, "1", "OE", ClassNVIDIA, GateOpen, gpu, ""},
		{guest, "2", "OE", ClassNVIDIA, GateClosed, gpu, ""},
		{grace, "0", "OE", ClassNVIDIA, GateOpen, gpu, ""},
		{grace, "0", "OE", ClassNVIDIA, GateBridge, port("0x10de", "0x22b2"), "Supermicro"},
		{grace, "0", "OE", ClassNVIDIA, GateBridge, port("0x1def", "0xe00e"), "Supermicro"},
		{grace, "0", "OE", ClassNVIDIA, GateBridge, port("0x1def", "0xe200"), "Supermicro"},
		{grace, "0", "OE", ClassNVIDIA, GateOpen, port("0x1def", "0xe20f"), "Supermicro"},
		{grace, "0", "OE", ClassNVIDIA, GateUnknown, port("0x1def", "0xe200"), "QEMU"},
		{grace, "1", "OE", ClassNVIDIA, GateOpen, port("0x1def", "0xe200"), "Supermicro"},
		{grace, "2", "OE", ClassNVIDIA, GateClosed, port("0x1def", "0xe200"), "Supermicro"},
		{grace, "0", "OE", ClassNVIDIA, GateUnknown, below, "Supermicro"},
		{grace, "2", "OE", ClassNVIDIA, GateUnknown, below, "Supermicro"},
		{"-", "0", "OE", ClassNVIDIA, GateUnknown, gpu, ""},
		{bare, "0", "POE", ClassUnknown, GateOpen, gpu, ""},
		{bare, "0", "", ClassUnknown, GateOpen, gpu, ""}, // it is never the kernel's own
		{bare, "2", "OE", ClassNVIDIA, GateClosed, gpu, ""},
		{bare, "?", "OE", ClassNVIDIA, GateUnknown, gpu, ""},
	} {
		// The first processor's lines, and the flags among them.
		cpu := strings.Replace(c.cpu, "\n\nflags", "\nflags", 1)
		files := map[string]string{"sys/module/nvidia/version": "580.95.05", "sys/module/nvidia/taint": c.taint, "proc/driver/nvidia/params": "GrdmaPciTopoCheckOverride: " + c.params + "\n"}
		if c.vendor != "" {
			files["sys/class/dmi/id/sys_vendor"], files["sys/class/dmi/id/product_name"] = c.vendor+"\n", "Server\n"
		}
		m := fixture{cpu: cpu, tree: c.tree, files: files}.open(t)
		if e, err := m.Exporter(addr(t, "00:04.0")); err != nil || e.Class != c.class || e.Gate != c.gate {
			t.Errorf("%+v: %+v, %v", c, e, err)
		}
	}
}

// Of which version the gate was read is what counts, and a version without one
// lets all attach.
func TestVersionsOfTheGate(t *testing.T) {
	const tree = "pci0000:00/0000:00:04.0 class=0x030200 driver:nvidia\npci0000:00/0000:00:01.0 class=0x060400 vendor=0x10de device=0x22b2"
	for _, c := range []struct {
		loaded, proc string
		want         Gate
		peer         PeerRule
	}{
		{"580.95.05", "", GateUnknown, PeerAtAttach}, {"570.124.06", "", GateOpen, PeerAtMap}, {"515.48.07", "", GateOpen, PeerAtMap}, {"610.1.2", "", GateUnread, PeerUnread}, {"510.39", "", GateUnread, PeerUnread}, {"?", "", GateUnread, PeerUnread}, {"", "", GateUnread, PeerUnread},
		{"", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build", GateOpen, PeerAtMap},
		{"999.1", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build", GateUnread, PeerUnread},
	} {
		files := map[string]string{"sys/module/nvidia/taint": "OE", "proc/driver/nvidia/version": c.proc, "proc/driver/nvidia/params": "GrdmaPciTopoCheckOverride: 0\n"}
		if c.loaded != "" {
			files["sys/module/nvidia/version"] = c.loaded
		}
		m := fixture{cpu: grace, tree: tree, files: files}.open(t)
		if e, err := m.Exporter(addr(t, "00:04.0")); err != nil || e.Gate != c.want || e.Peer != c.peer {
			t.Errorf("%+v: %+v, %v", c, e, err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

func TestInventory(t *testing.T) {
	m := machinetest.Fixture{
		Tree: `
pci0000:00/0000:00:02.0 class=0x030000 driver:virtio-pci
pci0000:00/0000:00:03.0 class=0x020000 driver:mlx5_core rdma:mlx5_0
pci0000:00/0000:00:04.0 class=0x120000 driver:habanalabs
pci0000:00/0000:00:05.0 class=0x050000 driver:softgpu behaviour=xe
pci0000:00/0000:00:06.0 class=0x050000
pci0000:00/0000:00:07.0 class=0x030200 vendor=odd
pci0000:00/0000:00:08.0 class=odd
`,
		Links: map[string]string{
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
		Files: map[string]string{"sys/module/mlx5_ib/taint": "\n"},
	}.Open(t)
	gpus, err := GPUs(m)
	if err == nil || !strings.Contains(err.Error(), "0000:00:07.0") || !strings.Contains(err.Error(), "0000:00:08.0") {
		t.Errorf("a GPU that cannot be read: %v", err)
	}
	var got []string
	for _, g := range gpus {
		got = append(got, g.Name+" "+g.Exporter.Driver+" "+g.Exporter.Class.String())
	}
	want := "0000:00:02.0 virtio_gpu system, 0000:00:04.0 habanalabs habanalabs, 0000:00:05.0 softgpu xe, 0000:00:07.0 ? unknown, vgem vgem system, vkms vkms system"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("GPUs %s\nwant %s", s, want)
	}
	nics, err := NICs(m)
	if err != nil || len(nics) != 2 || nics[0].Name != "mlx5_0" || nics[0].Importer.Kind != Dynamic || nics[1].Importer.PCI != nil {
		t.Errorf("NICs %+v, %v", nics, err)
	}
}

func TestInventoryOfNothing(t *testing.T) {
	m := machinetest.Fixture{Files: map[string]string{"sys/kernel/x": ""}}.Open(t)
	gpus, err1 := GPUs(m)
	nics, err2 := NICs(m)
	if len(gpus)+len(nics) != 0 || err1 != nil || err2 != nil {
		t.Error(gpus, nics, err1, err2)
	}
	m = machine.Open(t.TempDir())
	_, err1 = GPUs(m)
	_, err2 = NICs(m)
	if err1 == nil || err2 == nil {
		t.Error("no sysfs, and nobody says so")
	}
}

// The display on a server's board has no memory for a NIC, if the rules of its driver are
// known.
func TestDisplaysOfServers(t *testing.T) {
	for _, c := range []struct {
		driver, release, taint string
		want                   Class
	}{
		{"ast", "7.2.1", "", ClassSystem}, {"ast", "6.12.1", "", ClassSystem}, {"ast", "6.1.1", "", ClassUnknown}, {"ast", "7.2.1", "O", ClassUnknown},
		{"mgag200", "6.1.1", "", ClassSystem}, {"bochs-drm", "7.2.1", "", ClassSystem}, {"qxl", "6.1.1", "", ClassSystem}, {"cirrus", "6.1.1", "", ClassSystem}, {"novel-drm", "7.2.1", "", ClassUnknown},
	} {
		m := machinetest.Fixture{Release: c.release, Tree: "pci0000:00/0000:00:04.0 class=0x030000 driver:" + c.driver, Files: map[string]string{"sys/module/" + c.driver + "/taint": c.taint + "\n"}}.Open(t)
		if gpus, err := GPUs(m); err != nil || len(gpus) != 1 || gpus[0].Exporter.Class != c.want {
			t.Errorf("%+v: %+v, %v", c, gpus, err)
		}
	}
}

// A guest's emulated VGA has no memory for a NIC, with any driver.
func TestEmulatedDisplays(t *testing.T) {
	for _, id := range []string{"vendor=0x1234 device=0x1111", "vendor=0x1013 device=0x00b8", "vendor=0x1b36 device=0x0100", "vendor=0x1af4 device=0x1050", "vendor=0x1d0f device=0x1111", "vendor=0x15ad device=0x0405", "vendor=0x1414 device=0x5353", "vendor=0x19e5 device=0x1711", "vendor=0x126f device=0x0750"} {
		m := machinetest.Fixture{Tree: "pci0000:00/0000:00:01.0 class=0x030000 " + id}.Open(t)
		if gpus, err := GPUs(m); err != nil || len(gpus) != 1 || gpus[0].Exporter.Class != ClassSystem {
			t.Errorf("%s: %+v, %v", id, gpus, err)
		}
	}
}

// A board's display has no memory for a NIC without a driver, as with "nomodeset", and with
// a driver that does not use PCI.
func TestDisplaysWithoutTheirDriver(t *testing.T) {
	m := machinetest.Fixture{
		Release: "5.15.0-91-generic",
		Tree:    "pci0000:00/0000:00:04.0 class=0x030000 vendor=0x1a03 device=0x2000\npci0000:00/0000:00:05.0 class=0x030000 vendor=0x10de device=0x2330\n",
		Links: map[string]string{
			"sys/class/drm/card0": "sys/devices/platform/simple-framebuffer.0/drm/card0",
			"sys/devices/platform/simple-framebuffer.0/drm/card0/device": "sys/devices/platform/simple-framebuffer.0",
			"sys/devices/platform/simple-framebuffer.0/driver":           "sys/bus/platform/drivers/simple-framebuffer",
		},
	}.Open(t)
	gpus, err := GPUs(m)
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
	bare, guest := machinetest.Xeon+"flags\t\t: fpu\n", machinetest.Xeon+"flags\t\t: fpu hypervisor\n"
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
		{machinetest.Grace, "0", "OE", ClassNVIDIA, GateOpen, gpu, ""},
		{machinetest.Grace, "0", "OE", ClassNVIDIA, GateBridge, port("0x10de", "0x22b2"), "Supermicro"},
		{machinetest.Grace, "0", "OE", ClassNVIDIA, GateBridge, port("0x1def", "0xe00e"), "Supermicro"},
		{machinetest.Grace, "0", "OE", ClassNVIDIA, GateBridge, port("0x1def", "0xe200"), "Supermicro"},
		{machinetest.Grace, "0", "OE", ClassNVIDIA, GateOpen, port("0x1def", "0xe20f"), "Supermicro"},
		{machinetest.Grace, "0", "OE", ClassNVIDIA, GateUnknown, port("0x1def", "0xe200"), "QEMU"},
		{machinetest.Grace, "1", "OE", ClassNVIDIA, GateOpen, port("0x1def", "0xe200"), "Supermicro"},
		{machinetest.Grace, "2", "OE", ClassNVIDIA, GateClosed, port("0x1def", "0xe200"), "Supermicro"},
		{machinetest.Grace, "0", "OE", ClassNVIDIA, GateUnknown, below, "Supermicro"},
		{machinetest.Grace, "2", "OE", ClassNVIDIA, GateParameter, below, "Supermicro"},
		{"-", "0", "OE", ClassNVIDIA, GateUnknown, gpu, ""},
		{bare, "0", "POE", ClassUnknown, GateOpen, gpu, ""},
		{bare, "0", "", ClassUnknown, GateOpen, gpu, ""}, // it is never part of the kernel
		{bare, "2", "OE", ClassNVIDIA, GateClosed, gpu, ""},
		{bare, "?", "OE", ClassNVIDIA, GateParameter, gpu, ""},
		{bare, "7", "OE", ClassNVIDIA, GateParameter, gpu, ""},
	} {
		// The first processor's lines, and the flags among them.
		cpu := strings.Replace(c.cpu, "\n\nflags", "\nflags", 1)
		files := map[string]string{"sys/module/nvidia/version": "580.95.05", "sys/module/nvidia/taint": c.taint, "proc/driver/nvidia/params": "GrdmaPciTopoCheckOverride: " + c.params + "\n"}
		if c.vendor != "" {
			files["sys/class/dmi/id/sys_vendor"], files["sys/class/dmi/id/product_name"] = c.vendor+"\n", "Server\n"
		}
		m := machinetest.Fixture{Cpu: cpu, Tree: c.tree, Files: files}.Open(t)
		if e, err := ExporterOf(m, machinetest.Addr(t, "00:04.0")); err != nil || e.Class != c.class || e.Gate != c.gate {
			t.Errorf("%+v: %+v, %v", c, e, err)
		}
	}
}

// The gate is known for the versions that were read. A version without a gate lets all
// importers attach.
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
		m := machinetest.Fixture{Cpu: machinetest.Grace, Tree: tree, Files: files}.Open(t)
		if e, err := ExporterOf(m, machinetest.Addr(t, "00:04.0")); err != nil || e.Gate != c.want || e.Peer != c.peer {
			t.Errorf("%+v: %+v, %v", c, e, err)
		}
	}
}

// Of a function of which the class alone can be read it is known that it is a GPU, and no more: it
// is listed, no pair of it is direct, and the error says what is missing.
func TestGPUOfItsClassAlone(t *testing.T) {
	m := machinetest.Fixture{
		Tree:  "pci0000:00/0000:00:03.0 class=0x020000 driver:mlx5_core rdma:mlx5_0\npci0000:00/0000:00:07.0 class=0x030200 vendor=none device=none\n",
		Files: map[string]string{"sys/module/mlx5_ib/taint": "\n"},
	}.Open(t)
	gpus, err := GPUs(m)
	if len(gpus) != 1 || gpus[0].Name != "0000:00:07.0" || gpus[0].Exporter.Driver != UnknownDriver || err == nil || !strings.Contains(err.Error(), "0000:00:07.0") {
		t.Fatalf("%+v, %v", gpus, err)
	}
	nics, err := NICs(m)
	if err != nil || len(nics) != 1 {
		t.Fatal(nics, err)
	}
	if p := Predict(m, gpus[0].Exporter, nics[0].Importer); p.Outcome != chain.OutcomeUnknown || !strings.Contains(p.String(), "which driver the GPU has is not known") {
		t.Error(p)
	}
}

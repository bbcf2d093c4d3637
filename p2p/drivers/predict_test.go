// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"fmt"
	"maps"
	"path"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
)

func TestPredict(t *testing.T) {
	zen := machinetest.Fixture{Tree: machinetest.Planted()}.Open(t)
	other := machinetest.Fixture{Cpu: machinetest.Xeon, Tree: machinetest.Planted()}.Open(t)
	// 6.12 as others than Debian build it.
	moves612 := machinetest.Fixture{Release: "6.12.1", Config: machinetest.WithP2P + "CONFIG_DMABUF_MOVE_NOTIFY=y\n", Tree: machinetest.Planted()}.Open(t)
	pins612 := machinetest.Fixture{Release: "6.12.1", Config: machinetest.WithP2P + "# CONFIG_DMABUF_MOVE_NOTIFY is not set\n", Tree: machinetest.Planted()}.Open(t)
	debian612 := machinetest.Fixture{Release: "6.12.117+deb12-amd64", Config: machinetest.WithoutP2P, Tree: machinetest.Planted()}.Open(t)
	between := machinetest.Fixture{Release: "6.17.0", Config: machinetest.WithP2P, Tree: machinetest.Planted()}.Open(t)
	later := machinetest.Fixture{Release: "7.9.0", Tree: machinetest.Planted()}.Open(t)
	noDMABuf := machinetest.Fixture{Config: strings.Replace(machinetest.WithP2P, "CONFIG_DMA_SHARED_BUFFER=y", "# CONFIG_DMA_SHARED_BUFFER is not set", 1), Tree: machinetest.Planted()}.Open(t)
	symbols := machinetest.Fixture{Release: "6.12.1", Config: "-", Tree: machinetest.Planted(), Files: map[string]string{"proc/kallsyms": "0 T pci_p2pdma_distance_many\n"}}.Open(t)
	unread := machinetest.Fixture{Cpu: machinetest.Xeon, Tree: machinetest.Planted("ACS2", "config=64")}.Open(t)
	unreadZen := machinetest.Fixture{Tree: machinetest.Planted("ACS2", "config=64")}.Open(t)
	noConfig := machinetest.Fixture{Config: "-", Tree: machinetest.Planted()}.Open(t)
	arm := machinetest.Fixture{Cpu: machinetest.Grace, Tree: machinetest.Planted()}.Open(t)

	old := machinetest.Fixture{Release: "6.1.1", Config: machinetest.WithP2P, Tree: machinetest.Planted()}.Open(t)

	const peer = true
	for _, c := range []struct {
		m     *machine.Machine
		e     Exporter
		nic   string
		kind  Kind
		peer  bool
		want  string // outcome, errno and stage
		addr  Address
		words string
	}{
		// amdgpu and xe.
		{zen, Exporter{Class: ClassAMDGPU}, machinetest.InSwitch, Dynamic, peer, "direct", AddressPhysical, "below the bridge"},
		{zen, Exporter{Class: ClassAMDGPU}, machinetest.InSwitch, Pinned, peer, "direct", AddressPhysical, "pins"},
		{zen, Exporter{Class: ClassXe}, machinetest.AtRoot, Revocable, peer, "direct", AddressPhysical, "pins"},
		{zen, Exporter{Class: ClassXe}, machinetest.InSwitch, Static, false, "staged", AddressPhysical, "static importer"},
		{zen, Exporter{Class: ClassXe}, machinetest.InSwitch, Dynamic, false, "staged", AddressPhysical, "does not want"},
		{zen, Exporter{Class: ClassXe}, machinetest.Nowhere, Dynamic, peer, "staged", AddressPhysical, "on no PCI bus"},
		{zen, Exporter{Class: ClassXe, VRAMOnly: true}, machinetest.Nowhere, Dynamic, peer, "refused EOPNOTSUPP attach", 0, "VRAM only"},
		{zen, Exporter{Class: ClassXe, VRAMOnly: true}, machinetest.InSwitch, Dynamic, peer, "direct", AddressPhysical, ""},
		{other, Exporter{Class: ClassAMDGPU}, machinetest.AtRoot, Dynamic, peer, "staged", AddressPhysical, "not on the kernel's list"},
		{zen, Exporter{Class: ClassAMDGPU, Pin: PinInSystem}, machinetest.InSwitch, Pinned, peer, "staged", AddressPhysical, "pins in system memory"},
		{zen, Exporter{Class: ClassAMDGPU, Pin: PinInSystem}, machinetest.InSwitch, Dynamic, peer, "direct", AddressPhysical, ""},
		{zen, Exporter{Class: ClassAMDGPU, Pin: PinUnknown}, machinetest.InSwitch, Pinned, peer, "unknown", 0, "where this driver pins"},
		{zen, Exporter{Class: ClassXe, Pin: PinInSystem, VRAMOnly: true}, machinetest.InSwitch, Pinned, peer, "unknown", 0, "VRAM only"},
		{zen, Exporter{Class: ClassAMDGPU, Power: machine.PowerSuspended}, machinetest.InSwitch, Dynamic, peer, "unknown", 0, "suspended"},
		{zen, Exporter{Class: ClassAMDGPU, Power: machine.PowerUnknown}, machinetest.InSwitch, Dynamic, peer, "unknown", 0, "could not be read"},
		{zen, Exporter{Class: ClassXe, Power: machine.PowerSuspended}, machinetest.InSwitch, Dynamic, peer, "direct", AddressPhysical, ""},
		{zen, Exporter{Class: ClassAMDGPU, OutOfTree: true}, machinetest.InSwitch, Dynamic, peer, "unknown", 0, "kernel's own driver"},
		{moves612, Exporter{Class: ClassAMDGPU}, machinetest.InSwitch, Dynamic, peer, "direct", AddressPhysical, ""},
		{moves612, Exporter{Class: ClassAMDGPU}, machinetest.InSwitch, Pinned, peer, "staged", AddressPhysical, "pins in system memory"},
		{pins612, Exporter{Class: ClassAMDGPU}, machinetest.InSwitch, Dynamic, peer, "staged", AddressPhysical, "CONFIG_DMABUF_MOVE_NOTIFY"},
		{symbols, Exporter{Class: ClassAMDGPU}, machinetest.InSwitch, Dynamic, peer, "unknown", 0, "CONFIG_DMABUF_MOVE_NOTIFY"},
		{symbols, Exporter{Class: ClassAMDGPU}, machinetest.InSwitch, Pinned, peer, "staged", AddressPhysical, "pins"},
		{debian612, Exporter{Class: ClassAMDGPU}, machinetest.InSwitch, Dynamic, peer, "staged", AddressPhysical, "built without CONFIG_PCI_P2PDMA"},
		{between, Exporter{Class: ClassAMDGPU}, machinetest.InSwitch, Dynamic, peer, "unknown", 0, "6.17.0 was not read"},
		{noDMABuf, Exporter{Class: ClassNVIDIA, Gate: GateOpen}, machinetest.InSwitch, Dynamic, peer, "refused errno 0 export", 0, "CONFIG_DMA_SHARED_BUFFER"},
		{later, Exporter{Class: ClassAMDGPU}, machinetest.InSwitch, Pinned, peer, "unknown", 0, "after 7.3 were not read"},
		{later, Exporter{Class: ClassVFIO}, machinetest.InSwitch, Dynamic, peer, "unknown", 0, "after 7.3 were not read"},
		{later, Exporter{Class: ClassNVIDIA, Gate: GateOpen}, machinetest.InSwitch, Dynamic, peer, "unknown", 0, "after 7.3 were not read"},
		{between, Exporter{Class: ClassAMDGPU}, machinetest.InSwitch, Pinned, peer, "unknown", 0, "where this driver pins"},
		{unread, Exporter{Class: ClassAMDGPU}, machinetest.InSwitch, Dynamic, peer, "unknown", 0, "run as root"},
		{unread, Exporter{Class: ClassAMDGPU, Pin: PinInSystem}, machinetest.InSwitch, Pinned, peer, "staged", AddressPhysical, "pins"},
		{unreadZen, Exporter{Class: ClassAMDGPU}, machinetest.InSwitch, Dynamic, peer, "direct", AddressPhysical, "by bus address or through"},
		{noConfig, Exporter{Class: ClassAMDGPU}, machinetest.InSwitch, Dynamic, peer, "unknown", 0, "no configuration"},

		// i915.
		{zen, Exporter{Class: ClassI915}, machinetest.InSwitch, Dynamic, peer, "staged", AddressPhysical, "for any importer"},
		{noConfig, Exporter{Class: ClassI915}, machinetest.Nowhere, Static, false, "staged", AddressPhysical, "for any importer"},
		{zen, Exporter{Class: ClassI915, VRAMOnly: true}, machinetest.InSwitch, Dynamic, peer, "refused EOPNOTSUPP attach", 0, ""},
		{zen, Exporter{Class: ClassI915, OutOfTree: true}, machinetest.InSwitch, Dynamic, peer, "unknown", 0, "kernel's own driver"},

		// NVIDIA.
		{zen, Exporter{Class: ClassNVIDIA, Gate: GateBridge, OutOfTree: true}, machinetest.InSwitch, Static, false, "direct", AddressPhysical, "below the bridge 0000:01:00.0"},
		{zen, Exporter{Class: ClassNVIDIA, Gate: GateBridge}, machinetest.AtRoot, Dynamic, peer, "refused ENOTSUPP attach", 0, "no bridge is above both"},
		{zen, Exporter{Class: ClassNVIDIA, Gate: GateBridge}, machinetest.Nowhere, Dynamic, peer, "refused ENOTSUPP attach", 0, "no PCI bus"},
		{zen, Exporter{Class: ClassNVIDIA, Gate: GateOpen}, machinetest.Nowhere, Dynamic, peer, "direct", AddressPhysical, "any importer"},
		{other, Exporter{Class: ClassNVIDIA, Gate: GateOpen}, machinetest.AtRoot, Dynamic, peer, "direct", AddressPhysical, ""},
		{zen, Exporter{Class: ClassNVIDIA, Gate: GateUnread}, machinetest.InSwitch, Dynamic, peer, "unknown", 0, "was not read"},
		{zen, Exporter{Class: ClassNVIDIA, Gate: GateParameter}, machinetest.InSwitch, Dynamic, peer, "unknown", 0, "GrdmaPciTopoCheckOverride"},
		{zen, Exporter{Class: ClassNVIDIA, Gate: GateClosed}, machinetest.InSwitch, Dynamic, peer, "refused ENOTSUPP attach", 0, "closed by a parameter"},
		{zen, Exporter{Class: ClassNVIDIA}, machinetest.InSwitch, Dynamic, peer, "direct", AddressPhysical, ""},
		{zen, Exporter{Class: ClassNVIDIA}, machinetest.AtRoot, Dynamic, peer, "unknown", 0, "not known"},
		{zen, Exporter{Class: ClassNVIDIA}, machinetest.Nowhere, Dynamic, peer, "unknown", 0, "not known"},
		{zen, Exporter{Class: ClassNVIDIA, Gate: GateBridge}, "0a:00.0", Dynamic, peer, "unknown", 0, "0000:0a:00.0"},
		{zen, Exporter{Class: ClassNVIDIA, Gate: GateOpen, Peer: PeerAtAttach}, machinetest.InSwitch, Dynamic, peer, "direct", AddressPhysical, ""},
		{zen, Exporter{Class: ClassNVIDIA, Gate: GateOpen, Peer: PeerAtAttach}, machinetest.InSwitch, Static, false, "direct", AddressPhysical, ""},
		{zen, Exporter{Class: ClassNVIDIA, Gate: GateOpen, Peer: PeerAtAttach}, machinetest.InSwitch, Pinned, false, "refused ENOTSUPP attach", 0, "only importers attach that want it"},
		{zen, Exporter{Class: ClassNVIDIA, Peer: PeerAtAttach}, machinetest.AtRoot, Dynamic, false, "refused ENOTSUPP attach", 0, "only importers attach that want it"},
		{zen, Exporter{Class: ClassNVIDIA, Gate: GateOpen, Peer: PeerAtMap}, machinetest.InSwitch, Dynamic, false, "unknown", 0, "not known of this version"},
		{debian612, Exporter{Class: ClassNVIDIA, Gate: GateOpen, Peer: PeerAtMap}, machinetest.InSwitch, Dynamic, false, "refused ENOMEM map", 0, "maps nothing"},
		{debian612, Exporter{Class: ClassNVIDIA, Gate: GateOpen, Peer: PeerAtAttach}, machinetest.InSwitch, Dynamic, false, "refused ENOTSUPP attach", 0, ""},
		{zen, Exporter{Class: ClassNVIDIA, Gate: GateOpen}, machinetest.InSwitch, Dynamic, false, "unknown", 0, "was not read"},
		{zen, Exporter{Class: ClassNVIDIA, Gate: GateOpen, Peer: PeerAtMap, Driver: "softgpu"}, machinetest.InSwitch, Dynamic, false, "refused ENOMEM map", 0, "maps nothing"},
		{arm, Exporter{Class: ClassNVIDIA, Gate: GateOpen, Peer: PeerAtAttach}, machinetest.InSwitch, Dynamic, false, "unknown", 0, "with pages"},
		{noConfig, Exporter{Class: ClassNVIDIACoherent}, machinetest.Nowhere, Static, false, "direct", AddressPhysical, "pages"},

		// vfio-pci.
		{zen, Exporter{Class: ClassVFIO}, machinetest.InSwitch, Dynamic, peer, "direct", AddressBus, ""},
		{zen, Exporter{Class: ClassVFIO}, machinetest.AtRoot, Revocable, peer, "direct", AddressPhysical, "all host bridges"},
		{zen, Exporter{Class: ClassVFIO}, machinetest.InSwitch, Pinned, peer, "refused EOPNOTSUPP attach", 0, "revoke a registration"},
		{zen, Exporter{Class: ClassVFIO}, machinetest.InSwitch, Dynamic, false, "refused EOPNOTSUPP attach", 0, "peer to peer"},
		{zen, Exporter{Class: ClassVFIO}, machinetest.InSwitch, Static, false, "refused EOPNOTSUPP attach", 0, "peer to peer"},
		{zen, Exporter{Class: ClassVFIO}, machinetest.Nowhere, Dynamic, peer, "refused EINVAL map", 0, "no PCI bus"},
		{other, Exporter{Class: ClassVFIO}, machinetest.AtRoot, Dynamic, peer, "refused EINVAL map", 0, "not on the kernel's list"},
		{unread, Exporter{Class: ClassVFIO}, machinetest.InSwitch, Dynamic, peer, "unknown", 0, "run as root"},
		{unreadZen, Exporter{Class: ClassVFIO}, machinetest.InSwitch, Dynamic, peer, "direct", AddressUnknown, ""},
		{debian612, Exporter{Class: ClassVFIO}, machinetest.InSwitch, Pinned, peer, "refused EINVAL map", 0, "attach maps the buffer"},
		{moves612, Exporter{Class: ClassVFIO}, machinetest.InSwitch, Dynamic, peer, "unknown", 0, "was not read"},
		{between, Exporter{Class: ClassVFIO}, machinetest.InSwitch, Pinned, peer, "unknown", 0, "was not read"},

		// Kinds that are not known.
		{zen, Exporter{Class: ClassAMDGPU}, machinetest.InSwitch, KindUnknown, peer, "unknown", 0, "imports dma-bufs at all"},
		{zen, Exporter{Class: ClassNVIDIA, Gate: GateOpen}, machinetest.AtRoot, KindUnknown, peer, "unknown", 0, "imports dma-bufs at all"},
		{zen, Exporter{Class: ClassAMDGPU, Pin: PinInSystem}, machinetest.InSwitch, KindUnknown, peer, "unknown", 0, "imports dma-bufs at all"},
		{zen, Exporter{Class: ClassVFIO}, machinetest.InSwitch, KindUnknown, peer, "unknown", 0, "imports dma-bufs at all"},
		{zen, Exporter{Class: ClassVFIO}, machinetest.InSwitch, KindUnknown, false, "broken", 0, "peer to peer"},
		{debian612, Exporter{Class: ClassXe}, machinetest.InSwitch, KindUnknown, peer, "broken", 0, "CONFIG_PCI_P2PDMA"},

		// habanalabs.
		{zen, Exporter{Class: ClassHabana}, machinetest.InSwitch, Pinned, peer, "direct", AddressPhysical, ""},
		{zen, Exporter{Class: ClassHabana}, machinetest.InSwitch, Dynamic, false, "refused EPERM map", 0, "peer to peer"},
		{other, Exporter{Class: ClassHabana}, machinetest.AtRoot, Dynamic, peer, "refused EPERM map", 0, "not on the kernel's list"},
		{unread, Exporter{Class: ClassHabana}, machinetest.InSwitch, Dynamic, peer, "unknown", 0, "run as root"},
		{old, Exporter{Class: ClassHabana}, machinetest.InSwitch, Dynamic, peer, "unknown", 0, "was not read"},

		// Others.
		{noConfig, Exporter{Class: ClassStaged, Driver: "nouveau"}, machinetest.InSwitch, Dynamic, peer, "staged", AddressPhysical, "pins what it exports in system memory"},
		{noConfig, Exporter{Class: ClassStaged, Driver: "qaic"}, machinetest.Nowhere, KindUnknown, peer, "broken", 0, "qaic"},
		{zen, Exporter{Class: ClassStaged, Driver: "amdxdna", OutOfTree: true}, machinetest.InSwitch, Dynamic, peer, "unknown", 0, "kernel's own"},
		{noConfig, Exporter{Class: ClassSystem}, machinetest.InSwitch, Pinned, peer, "staged", AddressPhysical, "system memory only"},
		{zen, Exporter{Driver: "nouveau"}, machinetest.InSwitch, Pinned, peer, "unknown", 0, `"nouveau"`},
	} {
		name := fmt.Sprintf("%v %q %v %v", c.e.Class, c.nic, c.kind, c.peer)
		t.Run(name, func(t *testing.T) {
			gpu := machinetest.Addr(t, "03:00.0")
			if c.e.Class != ClassSystem {
				c.e.PCI = &gpu
			}
			p := Predict(c.m, c.e, Importer{PCI: machinetest.Client(t, c.nic), Kind: c.kind, PeerToPeer: c.peer})
			got := p.Outcome.String()
			if p.Outcome == chain.Refused {
				got += " " + errno.Name(p.Errno) + " " + string(p.Stage)
			}
			if got != c.want || p.Address != c.addr {
				t.Errorf("%s, %v; want %s, %v: %v %q", got, p.Address, c.want, c.addr, p, p.Notes)
			}
			if len(p.Why) == 0 || !strings.Contains(p.String(), c.words) {
				t.Errorf("%q does not say %q", p, c.words)
			}
			if (p.Outcome == chain.Refused) != (p.Stage != "") || (p.Errno != 0) != (p.Stage != "" && p.Stage != chain.StageExport) {
				t.Errorf("%+v", p)
			}
		})
	}
}

// The IOMMU decides the kind of addresses that an importer gets, except for bus
// addresses.
func TestAddresses(t *testing.T) {
	for domain, want := range map[string]map[Class]Address{
		"":          {ClassAMDGPU: AddressPhysical, ClassVFIO: AddressBus, ClassI915: AddressPhysical},
		"identity":  {ClassAMDGPU: AddressPhysical, ClassVFIO: AddressBus, ClassI915: AddressPhysical},
		"DMA":       {ClassAMDGPU: AddressIOVA, ClassVFIO: AddressBus, ClassI915: AddressIOVA},
		"DMA-FQ":    {ClassAMDGPU: AddressIOVA, ClassVFIO: AddressBus, ClassI915: AddressIOVA},
		"unmanaged": {ClassAMDGPU: AddressUnknown, ClassVFIO: AddressBus, ClassI915: AddressUnknown},
	} {
		m := machinetest.Fixture{Tree: machinetest.Planted()}.Open(t)
		if domain != "" {
			writeGroup(t, m, machinetest.InSwitch, domain)
		}
		gpu := machinetest.Addr(t, "03:00.0")
		for class, want := range want {
			p := Predict(m, Exporter{Class: class, PCI: &gpu}, Importer{PCI: machinetest.Client(t, machinetest.InSwitch), Kind: Dynamic, PeerToPeer: true})
			// In an IOMMU domain that is not the kernel's own, the addresses are not known.
			open := domain == "unmanaged" && class == ClassAMDGPU
			if p.Address != want || p.Outcome == chain.Refused || (p.Outcome == chain.OutcomeUnknown) != open {
				t.Errorf("domain %q, %v: %v, want %v: %v", domain, class, p.Address, want, p)
			}
			long := strings.Contains(strings.Join(p.Notes, ""), "iommu=pt")
			if long != (class == ClassAMDGPU && want == AddressIOVA) {
				t.Errorf("domain %q, %v: notes %q", domain, class, p.Notes)
			}
		}
	}
}

func TestBeyondTheDMAMask(t *testing.T) {
	bar := "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0/resource"
	mask := "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0/dma_mask_bits"
	for bits, want := range map[string]chain.Outcome{"32": chain.Broken, "35": chain.Broken, "36": chain.Direct, "64": chain.Direct, "none": chain.OutcomeUnknown} {
		m := machinetest.Fixture{Tree: machinetest.Planted(), Files: map[string]string{
			bar:  "0x0000000000000000 0x0000000000000000 0x0000000000000000\n0x0000000800000000 0x0000000fffffffff 0x000000000014220c\n",
			mask: bits + "\n",
		}}.Open(t)
		gpu := machinetest.Addr(t, "03:00.0")
		if p := Predict(m, Exporter{Class: ClassXe, PCI: &gpu}, Importer{PCI: machinetest.Client(t, machinetest.InSwitch), Kind: Dynamic, PeerToPeer: true}); p.Outcome != want {
			t.Errorf("%s bits: %v", bits, p)
		}
	}
}

func TestNVIDIADoesNotAsk(t *testing.T) {
	m := machinetest.Fixture{Cpu: machinetest.Xeon, Tree: machinetest.Planted("ACS2", "acs=0x1d")}.Open(t)
	gpu := machinetest.Addr(t, "03:00.0")
	p := Predict(m, Exporter{Class: ClassNVIDIA, PCI: &gpu, Gate: GateBridge}, Importer{PCI: machinetest.Client(t, machinetest.InSwitch), Kind: Dynamic, PeerToPeer: true})
	if p.Outcome != chain.Direct || len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "ACS redirect at 0000:02:00.0") {
		t.Errorf("%v %q", p, p.Notes)
	}
}

// NVIDIA's driver maps its memory in an IOMMU that translates only up to Linux 6.11, and only if
// a parameter says so. Otherwise it gives the NIC bus addresses. They reach the GPU if the
// traffic does not pass the IOMMU. Without an IOMMU that translates none of this matters.
func TestNVIDIAAddresses(t *testing.T) {
	const on, off, odd, other = "DmaRemapPeerMmio: 1", "DmaRemapPeerMmio: 0", "DmaRemapPeerMmio: ?", "Other: 1"
	const near, far, older = machinetest.InSwitch, machinetest.AtRoot, "6.8.0-60-generic"
	const redirects = "acs=0x1d"
	for _, c := range []struct {
		release, params, nic, acs string
		want                      chain.Outcome
		addr                      Address
	}{
		{older, on, near, "", chain.Direct, AddressIOVA},
		{older, on, far, "", chain.Direct, AddressIOVA},
		{older, off, near, "", chain.Direct, AddressBus},
		{older, off, near, redirects, chain.Lost, 0},
		{older, off, near, "config=64", chain.OutcomeUnknown, 0},
		{older, off, far, "", chain.Lost, 0},
		{older, odd, near, "", chain.OutcomeUnknown, 0},
		{older, other, near, "", chain.OutcomeUnknown, 0},
		{older, "", near, "", chain.OutcomeUnknown, 0},
		{"6.12.1", on, near, "", chain.Direct, AddressBus},
		{"6.12.1", on, near, redirects, chain.Lost, 0},
		{"6.12.1", on, near, "config=64", chain.OutcomeUnknown, 0},
		{"6.12.1", on, far, "", chain.Lost, 0},
		{"6.12.1", odd, far, "", chain.Lost, 0},
		{"6.12.1", "", near, "", chain.Direct, AddressBus},
		{"6.12.1", off, far, "", chain.Lost, 0},
		{"7.0.0-30-generic", on, far, "", chain.Lost, 0},
		{"5.14.0-570.12.1.el9_6.x86_64", on, far, "", chain.OutcomeUnknown, 0},
		{"5.14.0-570.12.1.el9_6.x86_64", off, far, "", chain.Lost, 0},
		{"odd", on, far, "", chain.OutcomeUnknown, 0},
	} {
		for _, domain := range []string{"DMA", "DMA-FQ", "identity", "unmanaged"} {
			tree := machinetest.Planted()
			if c.acs != "" {
				tree = machinetest.Planted("ACS2", c.acs, "ACS3", c.acs)
			}
			files := map[string]string{"sys/module/nvidia/version": "570.172.08\n"}
			if c.params != "" {
				files["proc/driver/nvidia/params"] = c.params + "\n"
			}
			m := machinetest.Fixture{Release: c.release, Tree: tree, Files: files}.Open(t)
			writeGroup(t, m, c.nic, domain)
			want, addr := c.want, c.addr
			if domain == "identity" {
				want, addr = chain.Direct, AddressPhysical
			} else if domain == "unmanaged" {
				want, addr = chain.OutcomeUnknown, AddressUnknown
			}
			gpu := machinetest.Addr(t, "03:00.0")
			p := Predict(m, Exporter{Class: ClassNVIDIA, PCI: &gpu, Gate: GateOpen, Driver: "nvidia"}, Importer{PCI: machinetest.Client(t, c.nic), Kind: Dynamic, PeerToPeer: true})
			if p.Outcome != want || p.Address != addr {
				t.Errorf("%+v, %s: %v, %v; want %v, %v", c, domain, p, p.Address, want, addr)
			}
		}
	}
}

// whole are files with one more, which shows that sysfs was copied whole.
func whole(files map[string]string) map[string]string {
	out := map[string]string{"sys/class/mem/null/dev": "1:3\n"}
	maps.Copy(out, files)
	return out
}

// Where a copy has no power directory, whether the GPU sleeps is not known.
func TestPowerNotCopied(t *testing.T) {
	for _, c := range []struct {
		files map[string]string
		want  machine.Power
	}{
		{nil, machine.PowerUnknown},
		{whole(nil), machine.PowerAwake},
		{map[string]string{"sys/devices/pci0000:00/0000:00:02.0/0000:08:00.0/power/control": "on\n"}, machine.PowerAwake},
	} {
		m := machinetest.Fixture{Tree: strings.Replace(machinetest.Planted(), "/0000:08:00.0", "/0000:08:00.0 driver:amdgpu", 1), Files: c.files}.Open(t)
		if e, err := ExporterOf(m, machinetest.Addr(t, "08:00.0")); err != nil || e.Power != c.want {
			t.Errorf("%v: %v, %v, want %v", c.files, e.Power, err, c.want)
		}
	}
}

func TestExporter(t *testing.T) {
	const gpu = "sys/devices/pci0000:00/0000:00:02.0/0000:08:00.0/"
	type files = map[string]string
	for _, c := range []struct {
		driver string
		files  files
		want   Exporter
	}{
		{"amdgpu", files{"sys/module/amdgpu/initstate": "live", "sys/module/amdgpu/taint": "\n"}, Exporter{Class: ClassAMDGPU}},
		{"amdgpu", files{"sys/module/amdgpu/initstate": "live", "sys/module/amdgpu/taint": "OE\n"}, Exporter{Class: ClassAMDGPU, OutOfTree: true}},
		{"amdgpu", files{"sys/module/amdgpu/initstate": "live"}, Exporter{Class: ClassAMDGPU, OutOfTree: true}},
		{"amdgpu", nil, Exporter{Class: ClassAMDGPU, OutOfTree: true}},
		{"i915", files{"sys/module/i915/parameters/modeset": "1"}, Exporter{Class: ClassI915, OutOfTree: true}}, // neither file, and no list of built-in drivers
		{"i915", files{"sys/module/i915/parameters/modeset": "1", "lib/modules/7.2.12+deb13-amd64/modules.builtin": "kernel/drivers/gpu/drm/i915/i915.ko\n"}, Exporter{Class: ClassI915}},
		{"i915", files{"sys/module/i915/parameters/modeset": "1", "boot/config-7.2.12+deb13-amd64": machinetest.WithP2P + "CONFIG_DRM_I915=y\n"}, Exporter{Class: ClassI915}},
		{"i915", files{"sys/module/i915/parameters/modeset": "1", "boot/config-7.2.12+deb13-amd64": machinetest.WithP2P + "CONFIG_DRM_I915=m\n"}, Exporter{Class: ClassI915, OutOfTree: true}},
		{"amdgpu", files{"sys/module/amdgpu/taint": "\n", gpu + "power/runtime_status": "suspended\n"}, Exporter{Class: ClassAMDGPU, Power: machine.PowerSuspended}},
		{"amdgpu", files{"sys/module/amdgpu/taint": "\n", gpu + "power/runtime_status": "error\n"}, Exporter{Class: ClassAMDGPU, Power: machine.PowerUnknown}},
		{"nouveau", files{"sys/module/nouveau/taint": "\n"}, Exporter{Class: ClassStaged}},
		{"nvgrace-gpu-vfio-pci", files{"sys/module/nvgrace_gpu_vfio_pci/taint": "\n"}, Exporter{Class: ClassVFIO}},
		{"novel", files{"sys/module/novel/taint": "\n"}, Exporter{}},
		{"", nil, Exporter{OutOfTree: true}},
		{"vfio-pci", files{"sys/module/vfio_pci/taint": "\n"}, Exporter{Class: ClassVFIO}},
		{"nvidia", nil, Exporter{OutOfTree: true, Gate: GateUnread}}, // maybe the proprietary modules
		{"softgpu", nil, Exporter{Pin: PinUnknown}},
		{"softgpu", files{gpu + "behaviour": "strange\n"}, Exporter{Pin: PinUnknown}},
		{"softgpu", files{gpu + "behaviour": "amdgpu\n", gpu + "power/runtime_status": "suspended\n"}, Exporter{Class: ClassAMDGPU, Pin: PinUnknown, Power: machine.PowerSuspended}},
		{"softgpu", files{gpu + "behaviour": "nvidia\n", gpu + "pin_rule": "vram\n", "sys/module/softgpu/parameters/topology_gate": "Y\n"}, Exporter{Class: ClassNVIDIA, Pin: PinInVRAM, Gate: GateBridge, Peer: PeerAtAttach}},
		{"softgpu", files{gpu + "behaviour": "xe\n", gpu + "pin_rule": "system\n", "sys/module/softgpu/parameters/topology_gate": "N\n"}, Exporter{Class: ClassXe, Pin: PinInSystem, Gate: GateOpen, Peer: PeerAtMap}},
	} {
		tree := machinetest.Planted()
		if c.driver != "" {
			tree = strings.Replace(tree, "/0000:08:00.0", "/0000:08:00.0 driver:"+c.driver, 1)
		} else {
			tree += "\npci0000:00/0000:00:1f.0 class=0x060400 driver:pcieport\n"
		}
		m := machinetest.Fixture{Tree: tree, Files: whole(c.files)}.Open(t)
		got, err := ExporterOf(m, machinetest.Addr(t, "08:00.0"))
		if err != nil || got.PCI == nil || *got.PCI != machinetest.Addr(t, "08:00.0") || got.Driver != c.driver {
			t.Errorf("%s %v: %+v, %v", c.driver, c.files, got, err)
		}
		got.PCI, got.Driver = nil, ""
		if got != c.want {
			t.Errorf("%s %v: %+v, want %+v", c.driver, c.files, got, c.want)
		}
	}
	if _, err := ExporterOf((machinetest.Fixture{}).Open(t), machinetest.Addr(t, "08:00.0")); err == nil {
		t.Error("a function that is not there exports")
	}
}

func TestNames(t *testing.T) {
	for c := ClassUnknown; c <= ClassHabana; c++ {
		if back, err := ParseClass(c.String()); back != c || err != nil {
			t.Errorf("%v: %v, %v", c, back, err)
		}
	}
	if _, err := ParseClass("matrox"); err == nil {
		t.Error(`"matrox" is a class`)
	}
	for _, s := range []fmt.Stringer{Class(99), p2pdma.MapType(99), chain.Outcome(99), Address(99), Kind(99)} {
		if !strings.Contains(s.String(), "99") {
			t.Errorf("%T(99) is %q", s, s)
		}
	}
	p := Prediction{Outcome: chain.Refused, Errno: unix.EINVAL, Stage: chain.StageMap, Why: []string{"a", "b"}}
	if got := p.String(); got != "refused with EINVAL by map: a; b" {
		t.Error(got)
	}
}

// A function whose link to its driver was not copied has a driver that is not known.
func TestDriverThatWasNotCopied(t *testing.T) {
	const gpu = "sys/devices/pci0000:00/0000:00:02.0/0000:08:00.0/"
	port := machinetest.Planted() + "\npci0000:00/0000:00:1f.0 class=0x060400 driver:pcieport\n"
	for what, f := range map[string]machinetest.Fixture{
		"no function has a link to a driver": {Tree: machinetest.Planted()},
		"NVIDIA's driver lists the function": {Tree: port, Files: map[string]string{"proc/driver/nvidia/gpus/0000:08:00.0/information": "Model: NVIDIA H100\n"}},
		"the function has a DRM device":      {Tree: port, Files: map[string]string{gpu + "drm/card0/dev": "226:0\n"}},
	} {
		e, err := ExporterOf(f.Open(t), machinetest.Addr(t, "08:00.0"))
		if err != nil || e.Driver != UnknownDriver || e.Class != ClassUnknown {
			t.Errorf("%s: %+v, %v", what, e, err)
		}
	}
}

// writeGroup puts a function into an IOMMU group with a domain of this kind.
func writeGroup(t *testing.T, m *machine.Machine, function, kind string) {
	t.Helper()
	dir, err := m.Sys.Resolve("bus/pci/devices/" + machinetest.Addr(t, function).String())
	if err != nil {
		t.Fatal(err)
	}
	group := m.Sys.Path("kernel/iommu_groups/7")
	testenv.Link(t, group, m.Sys.Path(dir, "iommu_group"))
	testenv.Link(t, m.Sys.Path(dir), group+"/devices/"+path.Base(dir))
	testenv.WriteFile(t, group+"/type", kind+"\n")
}

// If a driver is known to import, and all kinds have the same outcome, its kind does not matter.
func TestImportsOfAnyKind(t *testing.T) {
	m := machinetest.Fixture{Tree: machinetest.Planted()}.Open(t)
	gpu := machinetest.Addr(t, "03:00.0")
	i := Importer{PCI: machinetest.Client(t, machinetest.InSwitch), PeerToPeer: true, Imports: true}
	if p := Predict(m, Exporter{Class: ClassNVIDIA, PCI: &gpu, Gate: GateOpen}, i); p.Outcome != chain.Direct {
		t.Error(p)
	}
	if p := Predict(m, Exporter{Class: ClassVFIO, PCI: &gpu}, i); p.Outcome != chain.OutcomeUnknown {
		t.Error(p)
	}
}

// A NIC's driver that is not the kernel's own may import, and not take addresses without
// pages.
func TestOutOfTreeImporter(t *testing.T) {
	m := machinetest.Fixture{Tree: machinetest.Planted()}.Open(t)
	gpu := machinetest.Addr(t, "03:00.0")
	for class, want := range map[Class]chain.Outcome{ClassAMDGPU: chain.OutcomeUnknown, ClassXe: chain.OutcomeUnknown, ClassVFIO: chain.OutcomeUnknown, ClassNVIDIA: chain.OutcomeUnknown, ClassNVIDIACoherent: chain.Direct} {
		e := Exporter{Class: class, PCI: &gpu, Gate: GateOpen, Peer: PeerAtAttach}
		i := Importer{PCI: machinetest.Client(t, machinetest.InSwitch), PeerToPeer: true, Imports: true, OutOfTree: true}
		if p := Predict(m, e, i); p.Outcome != want {
			t.Errorf("%v: %v", class, p)
		}
		// MLNX_OFED's mlx5 is known to want peer-to-peer, but its kind is not known.
		i.Driver = "mlx5_core"
		if p := Predict(m, e, i); (p.Outcome == chain.Direct) != (class != ClassVFIO) {
			t.Errorf("%v, mlx5: %v", class, p)
		}
	}
}

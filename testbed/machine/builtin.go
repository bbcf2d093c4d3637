// SPDX-License-Identifier: Apache-2.0

package machine

// graphics are the modules of the buffer exporters. Without a console on the
// emulated screen, the guest does not spend its time drawing one.
var graphics = []string{"drm_kms_helper fbdev_emulation=0", "vgem", "virtio-gpu", "?udmabuf"}

// rdma are the modules of the software RDMA device. rxe asks the kernel's
// crypto layer for crc32 by name, so no symbol names crc32_generic.
var rdma = []string{"?crc32_generic", "ib_uverbs", "rdma_ucm", "?ib_umad", "dummy numdummies=0", "rdma_rxe"}

func modules(lists ...[]string) []string {
	var all []string
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// rxeMTU leaves room for 4096 bytes of payload and rxe's headers.
const rxeMTU = 4200

// Builtin are the machines of an architecture that go by name. The first is the default.
func Builtin(arch string) []Machine {
	all := builtin(platforms[arch])
	for i := range all {
		if arch != DefaultArch {
			all[i].Arch = arch
		}
	}
	return all
}

func builtin(p platform) []Machine {
	gpu := Device{Driver: "virtio-gpu-pci", ID: "gpu0"}
	dummy := Interface{Name: "dummy0", Kind: "dummy", MTU: rxeMTU, Addresses: []string{"10.9.0.1/24"}}
	rxe0 := RDMA{Name: "rxe0", Kind: "rxe", Netdev: "dummy0"}

	return append([]Machine{
		{
			Name: "default",
			Doc:  "vgem, virtio-gpu, udmabuf and dma-heaps; rxe0 on a dummy interface",
			Nodes: []Node{{
				Name:       "vm",
				Devices:    []Device{gpu},
				Modules:    modules(graphics, rdma),
				Interfaces: []Interface{dummy},
				RDMA:       []RDMA{rxe0},
			}},
		},
		{
			Name: "two-nics",
			Doc:  "as default, with a second device rxe1 on an emulated e1000e, which has a PCI parent",
			Nodes: []Node{{
				Name:    "vm",
				Netdevs: []Device{{Driver: "user", ID: "n0", Props: map[string]string{"restrict": "on"}}},
				Devices: []Device{gpu, {Driver: "e1000e", ID: "nic0", Props: map[string]string{
					"netdev": "n0", "mac": "52:54:00:09:ff:01", "romfile": "",
				}}},
				Modules: modules(graphics, []string{"e1000e"}, rdma),
				Interfaces: []Interface{dummy,
					{Name: "eth0", MAC: "52:54:00:09:ff:01", MTU: rxeMTU, Addresses: []string{"10.9.2.1/24"}}},
				RDMA: []RDMA{rxe0, {Name: "rxe1", Kind: "rxe", Netdev: "eth0"}},
			}},
		},
		{
			Name:  "bare",
			Doc:   "no exporter module and no RDMA device, to see what tools say then",
			Nodes: []Node{{Name: "vm"}},
		},
		{
			Name: "pair",
			Doc:  "two machines on one cable, each with rxe0 on its end of it and a GPU of its own",
			Nodes: []Node{
				pairNode(p, "a", "10.9.1.1/24"),
				pairNode(p, "b", "10.9.1.2/24"),
			},
			Links: []Link{{Ends: [2]End{
				{Node: "a", Driver: "virtio-net-pci", Interface: "eth0"},
				{Node: "b", Driver: "virtio-net-pci", Interface: "eth0"},
			}}},
		},
	}, topologies(p)...)
}

// pairNode is a machine on whose processor's host bridge peer-to-peer may pass, where
// there is such a processor: the GPU and the network card are on no common switch.
func pairNode(p platform, name, address string) Node {
	b := newBoard(p)
	b.gpu("pcie.0", "addr", b.rootSlot())
	n := b.node
	n.Name, n.CPU, n.MemoryMiB = name, p.passing, 2048
	n.Devices = append(n.Devices, Device{Driver: "virtio-gpu-pci", ID: "virtiogpu"})
	n.Modules = modules(graphics, []string{"virtio_net"}, rdma)
	n.Interfaces = []Interface{{Name: "eth0", MTU: rxeMTU, Addresses: []string{address}}}
	n.RDMA = []RDMA{{Name: "rxe0", Kind: "rxe", Netdev: "eth0"}}
	return n
}

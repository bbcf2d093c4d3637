// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"strconv"
)

// acsRedirect makes ports that can do so redirect peer-to-peer traffic to the
// root, as they do by themselves only where there is an IOMMU. Of QEMU's ports
// pcie-root-port (1b36:000c) is the one that can.
const (
	acsRedirect   = "pci=config_acs=xx111xx@pci:1b36:000c"
	noACSRedirect = "pci=disable_acs_redir=pci:1b36:000c"

	// acsRemedy is the kernel argument that p2pcheck recommends on nested with an IOMMU.
	// It has bus numbers, which the machine's description does not have: a test compares
	// it with p2pcheck's output.
	acsRemedy = "pci=disable_acs_redir=0000:11:01.0;0000:11:02.0"
)

// topologies are the machines whose PCI buses matter. In each, gpuN can become
// a software GPU (softgpu), nicN carries the RDMA device rxeN, and eduN has a
// DMA engine (testimporter). GPUs, NICs and engines with one number lie
// together; the machines differ in the PCI path between them. rxe-soft is an RDMA
// device without a PCI parent.
func topologies(p platform) []Machine {
	return []Machine{
		newBoard(p).inSwitch(2).onRootPorts(0).
			machine("switch", "two GPUs, a NIC and a DMA engine below one switch; one more of each but the GPU on root ports"),
		newBoard(p).onRootPorts(2).
			machine("rootports", "two GPUs, a NIC and a DMA engine, each on a root port of its own"),
		newBoard(p).onRootPorts(1).onSecondBridge().
			machine("hostbridges", "a GPU, a NIC and a DMA engine on each of two host bridges, which are two NUMA nodes"),
		newBoard(p).inRedirectingSwitch().
			machine("switch-acs", "a GPU, a NIC and a DMA engine below one switch whose ports redirect to the root"),
		newBoard(p).inSwitch(1).onRootPorts(1).onSecondBridge().inRedirectingSwitch().
			machine("fabric", "a GPU, a NIC and a DMA engine in each of: 0 a switch, 1 root ports, 2 a second host bridge, 3 a redirecting switch"),
		newBoard(p).inNestedSwitches().behindOnePort().inRedirectingSwitch().controllers().
			machine("nested", "a GPU, a NIC and a DMA engine in each of: 0 a switch, 1 a switch below that, 2 one slot as its functions, 3 a redirecting switch; NVMe controllers, two with a memory buffer, one with virtual functions"),
	}
}

// board puts together the devices of one node.
type board struct {
	node Node
	// how many there are, for names and numbers that must differ
	gpus, nics, edus, nvmes, ports, slots, switches int
}

// firstSlot leaves the slots before it on the root bus to the devices that
// every machine of the test bed has.
const firstSlot = 0x10

func newBoard(p platform) *board {
	return &board{node: Node{Name: "vm", CPU: p.plain}}
}

func (b *board) machine(name, doc string) Machine {
	n := b.node
	n.Devices = append(n.Devices, Device{Driver: "virtio-gpu-pci", ID: "virtiogpu", Bus: "pcie.0"})
	n.Modules = modules(graphics, []string{"e1000e"}, rdma, n.Modules)
	n.Interfaces = append(n.Interfaces, Interface{Name: "dummy0", Kind: "dummy", MTU: rxeMTU, Addresses: []string{"10.9.0.1/24"}})
	n.RDMA = append(n.RDMA, RDMA{Name: "rxe-soft", Kind: "rxe", Netdev: "dummy0"})
	return Machine{Name: name, Doc: doc, Nodes: []Node{n}}
}

func (b *board) add(d Device, props ...string) {
	d.Props = map[string]string{}
	for i := 0; i < len(props); i += 2 {
		d.Props[props[i]] = props[i+1]
	}
	b.node.Devices = append(b.node.Devices, d)
}

// rootSlot is the next free slot of the root bus.
func (b *board) rootSlot() string {
	b.slots++
	return fmt.Sprintf("%#x", firstSlot+b.slots-1)
}

// port adds a port of a driver and returns the bus behind it.
func (b *board) port(driver, bus, addr string) string {
	b.ports++
	id, n := "port"+strconv.Itoa(b.ports), strconv.Itoa(b.ports)
	b.add(Device{Driver: driver, ID: id, Bus: bus}, "chassis", n, "slot", n, "addr", addr)
	return id
}

func (b *board) rootPort() string { return b.port("pcie-root-port", "pcie.0", b.rootSlot()) }

// upstream adds a switch without downstream ports below a port.
func (b *board) upstream(port string) string {
	b.switches++
	id := "switch" + strconv.Itoa(b.switches)
	b.add(Device{Driver: "x3130-upstream", ID: id, Bus: port}, "addr", "0")
	return id
}

// downs makes downstream ports, which have no ACS.
func (b *board) downs(upstream string) func() string {
	slot := 0
	return func() string { slot++; return b.port("xio3130-downstream", upstream, strconv.Itoa(slot)) }
}

// gpu adds a GPU that is a memory device, of any size.
func (b *board) gpu(bus string, props ...string) {
	n := strconv.Itoa(b.gpus)
	b.node.Objects = append(b.node.Objects, Device{Driver: "memory-backend-memfd", ID: "vram" + n,
		Props: map[string]string{"size": "64M", "share": "on"}})
	b.add(Device{Driver: "ivshmem-plain", ID: "gpu" + n, Bus: bus}, append(props, "memdev", "vram"+n)...)
	b.gpus++
}

// displayGPU adds one that is a display adapter: tools must not go by the PCI
// class alone. Its BAR has 32 bits, so that a large one cannot be below the
// same switch.
func (b *board) displayGPU(bus string) {
	b.add(Device{Driver: "bochs-display", ID: "gpu" + strconv.Itoa(b.gpus), Bus: bus}, "vgamem", "32M")
	b.gpus++
}

func (b *board) nic(bus string, props ...string) {
	n := strconv.Itoa(b.nics)
	mac := fmt.Sprintf("52:54:00:09:fe:%02x", b.nics)
	b.node.Netdevs = append(b.node.Netdevs, Device{Driver: "user", ID: "net" + n, Props: map[string]string{"restrict": "on"}})
	b.add(Device{Driver: "e1000e", ID: "nic" + n, Bus: bus}, append(props, "netdev", "net"+n, "mac", mac, "romfile", "")...)
	b.node.Interfaces = append(b.node.Interfaces, Interface{Name: "nic" + n, MAC: mac, MTU: rxeMTU, Addresses: []string{fmt.Sprintf("10.9.%d.1/24", 20+b.nics)}})
	b.node.RDMA = append(b.node.RDMA, RDMA{Name: "rxe" + n, Kind: "rxe", Netdev: "nic" + n})
	b.nics++
}

func (b *board) edu(bus string, props ...string) {
	b.add(Device{Driver: "edu", ID: "edu" + strconv.Itoa(b.edus), Bus: bus}, append(props, "dma_mask", "0xffffffffffffffff")...)
	b.edus++
}

// nvme adds a storage controller.
func (b *board) nvme(bus string, props ...string) {
	id := "nvme" + strconv.Itoa(b.nvmes)
	b.add(Device{Driver: "nvme", ID: id, Bus: bus}, append(props, "serial", id)...)
	b.nvmes++
}

// disk adds one with a disk.
func (b *board) disk(bus string) {
	id := "disk" + strconv.Itoa(b.nvmes)
	b.node.Drives = append(b.node.Drives, Drive{ID: id, Size: "16M"})
	b.nvme(bus, "drive", id)
}

// inSwitch adds GPUs, a NIC and an engine below one switch whose ports have no
// ACS.
func (b *board) inSwitch(gpus int) *board {
	down := b.downs(b.upstream(b.rootPort()))
	for range gpus {
		b.gpu(down())
	}
	b.nic(down())
	b.edu(down())
	return b
}

// inRedirectingSwitch is the same with ports that have ACS and redirect.
func (b *board) inRedirectingSwitch() *board {
	bus := b.upstream(b.rootPort())
	b.gpu(b.port("pcie-root-port", bus, "1"))
	b.nic(b.port("pcie-root-port", bus, "2"))
	b.edu(b.port("pcie-root-port", bus, "3"))
	b.node.KernelArgs = append(b.node.KernelArgs, acsRedirect)
	return b
}

// controllers adds NVMe controllers to the redirecting switch: one with a memory
// buffer, one with a disk.
func (b *board) controllers() *board {
	bus := "switch" + strconv.Itoa(b.switches)
	b.nvme(b.port("pcie-root-port", bus, "4"), "cmb_size_mb", "4")
	b.disk(b.port("pcie-root-port", bus, "5"))
	return b
}

// onRootPorts gives each device a root port of its own.
func (b *board) onRootPorts(gpus int) *board {
	for i := range gpus {
		if i == 0 {
			b.gpu(b.rootPort())
		} else {
			b.displayGPU(b.rootPort())
		}
	}
	b.nic(b.rootPort())
	b.edu(b.rootPort())
	return b
}

// onSecondBridge adds a host bridge that is the second NUMA node's, with each
// device on a root port of its own.
func (b *board) onSecondBridge() *board {
	b.node.NUMA = 2
	b.add(Device{Driver: "pxb-pcie", ID: "bridge1", Bus: "pcie.0"}, "bus_nr", "0x80", "numa_node", "1", "addr", b.rootSlot())
	b.displayGPU(b.port("pcie-root-port", "bridge1", "0"))
	b.nic(b.port("pcie-root-port", "bridge1", "1"))
	b.edu(b.port("pcie-root-port", "bridge1", "2"))
	return b
}

// inNestedSwitches adds a GPU, a NIC and an engine below a switch and below
// another one that is below that, with NVMe controllers: 0 and 1 in the inner
// switch, with a memory buffer and with a disk; 2 in the outer one, with virtual
// functions; 3 on a root port, with a disk.
func (b *board) inNestedSwitches() *board {
	outer := b.downs(b.upstream(b.rootPort()))
	for _, down := range []func() string{outer, b.downs(b.upstream(outer()))} {
		b.gpu(down())
		b.nic(down())
		b.edu(down())
		if b.gpus == 2 {
			b.nvme(down(), "cmb_size_mb", "4")
			b.disk(down())
		}
	}
	b.node.Devices = append(b.node.Devices, Device{Driver: "nvme-subsys", ID: "subsystem"})
	b.nvme(outer(), "subsys", "subsystem", "sriov_max_vfs", "2", "sriov_vq_flexible", "4", "sriov_vi_flexible", "2")
	b.disk(b.rootPort())
	b.node.Modules = append(b.node.Modules, "nvme")
	return b
}

// behindOnePort makes a GPU, a NIC and an engine the functions of one slot.
func (b *board) behindOnePort() *board {
	bus := b.rootPort()
	b.gpu(bus, "addr", "0.0", "multifunction", "on")
	b.nic(bus, "addr", "0.1")
	b.edu(bus, "addr", "0.2")
	return b
}

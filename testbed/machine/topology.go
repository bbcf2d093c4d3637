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
)

// topologies are the machines whose PCI buses matter. In each, gpuN can become
// a software GPU (softgpu), nicN carries the RDMA device rxeN, and eduN has a
// DMA engine (testimporter). GPUs, NICs and engines with one number lie
// together: what a machine is about is the way between them. rxe-soft is an
// RDMA device without a PCI parent.
func topologies() []Machine {
	return []Machine{
		newBoard().inSwitch(2).onRootPorts(0).
			machine("switch", "two GPUs, a NIC and a DMA engine below one switch; one more of each but the GPU on root ports"),
		newBoard().onRootPorts(2).
			machine("rootports", "two GPUs, a NIC and a DMA engine, each on a root port of its own"),
		newBoard().onRootPorts(1).onSecondBridge().
			machine("hostbridges", "a GPU, a NIC and a DMA engine on each of two host bridges, which are two NUMA nodes"),
		newBoard().inRedirectingSwitch().
			machine("switch-acs", "a GPU, a NIC and a DMA engine below one switch whose ports redirect to the root"),
		newBoard().inSwitch(1).onRootPorts(1).onSecondBridge().inRedirectingSwitch().
			machine("fabric", "a GPU, a NIC and a DMA engine in each of: 0 a switch, 1 root ports, 2 a second host bridge, 3 a redirecting switch"),
	}
}

// board puts together the devices of one node.
type board struct {
	node Node
	// how many there are, for names and numbers that must differ
	gpus, nics, edus, ports, slots, switches int
}

// firstSlot leaves the slots before it on the root bus to the devices that
// every machine of the test bed has.
const firstSlot = 0x10

func newBoard() *board {
	return &board{node: Node{Name: "vm", CPU: "max"}}
}

func (b *board) machine(name, doc string) Machine {
	n := b.node
	n.Devices = append(n.Devices, Device{Driver: "virtio-gpu-pci", ID: "virtiogpu", Bus: "pcie.0"})
	n.Modules = modules(graphics, []string{"e1000e"}, rdma)
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

// upstream adds a switch without downstream ports.
func (b *board) upstream() string {
	b.switches++
	id := "switch" + strconv.Itoa(b.switches)
	b.add(Device{Driver: "x3130-upstream", ID: id, Bus: b.rootPort()}, "addr", "0")
	return id
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

func (b *board) nic(bus string) {
	n := strconv.Itoa(b.nics)
	mac := fmt.Sprintf("52:54:00:09:fe:%02x", b.nics)
	b.node.Netdevs = append(b.node.Netdevs, Device{Driver: "user", ID: "net" + n, Props: map[string]string{"restrict": "on"}})
	b.add(Device{Driver: "e1000e", ID: "nic" + n, Bus: bus}, "netdev", "net"+n, "mac", mac, "romfile", "")
	b.node.Interfaces = append(b.node.Interfaces, Interface{Name: "nic" + n, MAC: mac, MTU: rxeMTU, Addresses: []string{fmt.Sprintf("10.9.%d.1/24", 20+b.nics)}})
	b.node.RDMA = append(b.node.RDMA, RDMA{Name: "rxe" + n, Kind: "rxe", Netdev: "nic" + n})
	b.nics++
}

func (b *board) edu(bus string) {
	b.add(Device{Driver: "edu", ID: "edu" + strconv.Itoa(b.edus), Bus: bus}, "dma_mask", "0xffffffffffffffff")
	b.edus++
}

// inSwitch adds GPUs, a NIC and an engine below one switch whose ports have no
// ACS.
func (b *board) inSwitch(gpus int) *board {
	bus, slot := b.upstream(), 0
	down := func() string { slot++; return b.port("xio3130-downstream", bus, strconv.Itoa(slot)) }
	for range gpus {
		b.gpu(down())
	}
	b.nic(down())
	b.edu(down())
	return b
}

// inRedirectingSwitch is the same with ports that have ACS and redirect.
func (b *board) inRedirectingSwitch() *board {
	bus := b.upstream()
	b.gpu(b.port("pcie-root-port", bus, "1"))
	b.nic(b.port("pcie-root-port", bus, "2"))
	b.edu(b.port("pcie-root-port", bus, "3"))
	b.node.KernelArgs = append(b.node.KernelArgs, acsRedirect)
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

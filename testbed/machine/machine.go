// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
)

// Machine is one or more nodes and the links between them.
type Machine struct {
	Name  string
	Doc   string `json:",omitempty"` // one line for people
	Arch  string `json:",omitempty"` // of the processors, as Debian names it; empty: DefaultArch
	Nodes []Node
	Links []Link `json:",omitempty"`
}

// Node is one virtual machine.
type Node struct {
	Name       string
	Kernel     string   `json:",omitempty"` // series; empty: the run's
	CPU        string   `json:",omitempty"` // QEMU's model; empty: max, or host under KVM
	CPUs       int      `json:",omitempty"` // 0: 2
	MemoryMiB  int      `json:",omitempty"` // 0: the platform's, 3072 or more
	NUMA       int      `json:",omitempty"` // nodes, sharing processors and memory; 0: 1
	IOMMU      string   `json:",omitempty"` // "", "pt" or "translate": the platform's emulated IOMMU and its mode
	KernelArgs []string `json:",omitempty"`

	Objects []Device `json:",omitempty"` // QEMU -object, such as memory backends
	Netdevs []Device `json:",omitempty"` // QEMU -netdev
	Drives  []Drive  `json:",omitempty"` // disks for devices that have a drive
	Devices []Device `json:",omitempty"` // QEMU -device, in order: a bus before what is on it

	// Modules are loaded with what they need, in this order. An entry may
	// have parameters ("name key=value"); a leading "?" allows a kernel
	// that has no such module.
	Modules    []string    `json:",omitempty"`
	Interfaces []Interface `json:",omitempty"`
	RDMA       []RDMA      `json:",omitempty"`
}

// Device is a QEMU option of the form driver,id=...,bus=...,key=value.
type Device struct {
	Driver string
	ID     string            `json:",omitempty"`
	Bus    string            `json:",omitempty"`
	Props  map[string]string `json:",omitempty"`
}

// Drive is a disk of zeros. Its contents are lost when the machine ends.
type Drive struct {
	ID   string
	Size string // "16M"
}

// Interface is a network interface that the guest's init sets up.
type Interface struct {
	Name      string
	Kind      string   `json:",omitempty"` // "dummy" or "veth": created; "": found by MAC
	Peer      string   `json:",omitempty"` // the other end of a veth
	MAC       string   `json:",omitempty"`
	MTU       int      `json:",omitempty"`
	Addresses []string `json:",omitempty"` // CIDR notation
}

// RDMA is a software RDMA device on a network interface.
type RDMA struct {
	Name   string
	Kind   string // rxe
	Netdev string
}

// Link is a cable between two nodes.
type Link struct {
	Ends [2]End
}

// End is the network card at one end of a link. The node's Interfaces may
// name it to give it addresses.
type End struct {
	Node      string
	Driver    string // virtio-net-pci or e1000e
	Bus       string `json:",omitempty"`
	Interface string
}

// Load returns the named machine of an architecture, or the one a .json file describes, which
// is of that architecture if it does not say. Variations may follow a name, each after a
// plus: switch+EPYC+iommu.
func Load(arch, name string) (Machine, error) {
	if _, ok := platforms[arch]; !ok {
		return Machine{}, fmt.Errorf("no machines of architecture %q: there are %s", arch, strings.Join(Architectures(), ", "))
	}
	if !strings.HasSuffix(name, ".json") {
		variations := strings.Split(name, "+")
		for _, m := range Builtin(arch) {
			if m.Name != variations[0] {
				continue
			}
			var err error
			for _, v := range variations[1:] {
				if m, err = m.vary(v); err != nil {
					return Machine{}, err
				}
			}
			return m, m.Validate()
		}
		return Machine{}, fmt.Errorf("no machine %q: there are %s, each with variations such as +EPYC+iommu, and files ending in .json",
			variations[0], strings.Join(Names(), ", "))
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return Machine{}, err
	}
	var m Machine
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return Machine{}, fmt.Errorf("%s: %w", name, err)
	}
	if m.Arch == "" && arch != DefaultArch {
		m.Arch = arch
	}
	if err := m.Validate(); err != nil {
		return Machine{}, fmt.Errorf("%s: %w", name, err)
	}
	if m.arch() != arch {
		return Machine{}, fmt.Errorf("%s: the machine is of %s, not of %s", name, m.arch(), arch)
	}
	return m, nil
}

// Names lists the built-in machines.
func Names() []string {
	var names []string
	for _, m := range Builtin(DefaultArch) {
		names = append(names, m.Name)
	}
	sort.Strings(names)
	return names
}

// Validate reports what cannot be built.
func (m Machine) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("machine %q: "+format, append([]any{m.Name}, args...)...))
	}
	if _, ok := platforms[m.arch()]; !ok {
		bad("no architecture %q: there are %s", m.Arch, strings.Join(Architectures(), ", "))
	}
	if len(m.Nodes) == 0 {
		bad("no nodes")
	}
	nodes := map[string]bool{}
	for _, n := range m.Nodes {
		if n.Name == "" || nodes[n.Name] {
			bad("node name %q is empty or used twice", n.Name)
		}
		nodes[n.Name] = true
		if n.CPUs < 0 || n.MemoryMiB < 0 {
			bad("node %s: negative CPUs or memory", n.Name)
		}
		if n.NUMA < 0 || n.NUMA > maxNUMA {
			bad("node %s: %d NUMA nodes; at most %d", n.Name, n.NUMA, maxNUMA)
		}
		switch n.IOMMU {
		case "", "pt", "translate":
		default:
			bad("node %s: IOMMU %q is not \"\", \"pt\" or \"translate\"", n.Name, n.IOMMU)
		}
		for _, d := range append(append(append([]Device{}, n.Objects...), n.Netdevs...), n.Devices...) {
			if d.Driver == "" {
				bad("node %s: a device without a driver", n.Name)
			}
		}
		for _, d := range n.Drives {
			if d.ID == "" || d.Size == "" {
				bad("node %s: a drive without ID or size", n.Name)
			}
		}
		names := map[string]bool{}
		for _, i := range n.Interfaces {
			if i.Name == "" || len(i.Name) > 15 {
				bad("node %s: interface name %q: 1 to 15 characters", n.Name, i.Name)
			}
			switch i.Kind {
			case "", "dummy", "veth":
			default:
				bad("node %s: interface kind %q is not dummy, veth or empty", n.Name, i.Kind)
			}
			if (i.Kind == "veth") != (i.Peer != "") {
				bad("node %s: interface %s: a veth, and only a veth, has a peer", n.Name, i.Name)
			}
			names[i.Name], names[i.Peer] = true, true
		}
		for _, r := range n.RDMA {
			if !names[r.Netdev] {
				bad("node %s: RDMA device %s is on the unknown interface %q", n.Name, r.Name, r.Netdev)
			}
		}
	}
	for _, l := range m.Links {
		for _, e := range l.Ends {
			if !nodes[e.Node] {
				bad("link to unknown node %q", e.Node)
			}
			if e.Driver == "" || e.Interface == "" {
				bad("link at node %s: driver and interface are needed", e.Node)
			}
		}
	}
	return errors.Join(errs...)
}

// Node returns a node by name.
func (m Machine) Node(name string) (Node, bool) {
	for _, n := range m.Nodes {
		if n.Name == name {
			return n, true
		}
	}
	return Node{}, false
}

// Guest returns what the node's init has to set up: the node's interfaces
// with those at the ends of links, found by their MAC.
func (m Machine) Guest(node Node) []Interface {
	ifs := append([]Interface{}, node.Interfaces...)
	for li, l := range m.Links {
		for ei, e := range l.Ends {
			if e.Node != node.Name {
				continue
			}
			found := false
			for i := range ifs {
				if ifs[i].Name == e.Interface {
					ifs[i].MAC, found = linkMAC(li, ei), true
				}
			}
			if !found {
				ifs = append(ifs, Interface{Name: e.Interface, MAC: linkMAC(li, ei)})
			}
		}
	}
	return ifs
}

// linkMAC is the address of one end of a link, in QEMU's own range.
func linkMAC(link, end int) string {
	return fmt.Sprintf("52:54:00:09:%02x:%02x", link, end+1)
}

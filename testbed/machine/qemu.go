// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// DefaultCPUs is how many processors a node has if its description does not say.
const (
	DefaultCPUs = 2
)

// maxNUMA is more nodes than any topology has a use for.
const maxNUMA = 8

// emulatedCPU is everything that QEMU emulates, but for what only costs time: it
// copies byte by byte for ERMS and FSRM, and walks five levels of tables with LA57.
const emulatedCPU = "max,-erms,-fsrm,-la57"

// QEMU returns the options that describe the node's hardware. accel is kvm, tcg,
// or icount: tcg with clocks that count the instructions executed, one a
// nanosecond, by all of the node's processors in turns. linkFDs are the
// file descriptors, in QEMU's numbering, of this node's link ends, in the
// order of LinkEnds.
func (m Machine) QEMU(node Node, accel string, linkFDs []int) ([]string, error) {
	args := []string{"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"}

	p := m.platform()
	board := p.board
	if node.IOMMU != "" {
		board += p.iommuBoard
	}
	args = append(append(args, "-machine", board), p.firmware...)

	cpu := node.CPU
	switch accel {
	case "kvm":
		args = append(args, "-accel", "kvm")
		if cpu == "" {
			cpu = "host"
		}
	case "tcg", "icount":
		if accel == "tcg" {
			args = append(args, "-accel", "tcg,thread=multi")
		} else {
			args = append(args, "-accel", "tcg,thread=single", "-icount", "shift=0")
		}
		if cpu == "" {
			cpu = p.emulated
		}
	default:
		return nil, fmt.Errorf("unknown accelerator %q: kvm, tcg or icount", accel)
	}
	smp := strconv.Itoa(or(node.CPUs, DefaultCPUs))
	if node.NUMA > 1 {
		smp += fmt.Sprintf(",sockets=%d", min(node.NUMA, or(node.CPUs, DefaultCPUs))) // the kernel warns of a socket in two nodes
	}
	memory := or(node.MemoryMiB, p.memoryMiB)
	args = append(args, "-cpu", cpu, "-smp", smp, "-m", fmt.Sprintf("%dM", memory))
	args = append(args, node.numa(memory)...)

	if node.IOMMU != "" {
		// Before every device that is to be behind it.
		args = append(args, p.iommu...)
	}
	for _, d := range node.Objects {
		args = append(args, "-object", d.option())
	}
	for _, d := range node.Netdevs {
		args = append(args, "-netdev", d.option())
	}
	for _, d := range node.Drives {
		args = append(args, "-drive", fmt.Sprintf("if=none,id=%s,driver=null-co,size=%s,read-zeroes=on,snapshot=on", d.ID, d.Size))
	}
	for _, d := range node.Devices {
		args = append(args, "-device", d.option())
	}
	ends := m.LinkEnds(node)
	if len(ends) != len(linkFDs) {
		return nil, fmt.Errorf("node %s has %d link ends, got %d file descriptors", node.Name, len(ends), len(linkFDs))
	}
	for i, e := range ends {
		id := fmt.Sprintf("link%d", e.Link)
		args = append(args, "-netdev", fmt.Sprintf("socket,id=%s,fd=%d", id, linkFDs[i]))
		d := Device{Driver: e.Driver, Bus: e.Bus, Props: map[string]string{
			"netdev": id, "mac": linkMAC(e.Link, e.End), "romfile": "",
		}}
		args = append(args, "-device", d.option())
	}
	return args, nil
}

// numa splits the processors, and memory in MiB, between NUMA nodes. The last node gets the
// remainders. If there are fewer processors than nodes, the last nodes have memory only.
func (n Node) numa(memory int) []string {
	var args []string
	cpus := or(n.CPUs, DefaultCPUs)
	each := max(cpus/max(n.NUMA, 1), 1)
	for i := range n.NUMA {
		size, own := memory/n.NUMA, ""
		last := (i+1)*each - 1
		if i == n.NUMA-1 {
			size, last = memory-i*size, cpus-1
		}
		if i*each <= last && last < cpus {
			own = fmt.Sprintf("cpus=%d-%d,", i*each, last)
		}
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-ram,id=numa%d,size=%dM", i, size),
			"-numa", fmt.Sprintf("node,nodeid=%d,%smemdev=numa%d", i, own, i))
	}
	return args
}

// LinkEnd is one end of a link at a node.
type LinkEnd struct {
	Link, End int
	Driver    string
	Bus       string
}

// LinkEnds lists the link ends at a node.
func (m Machine) LinkEnds(node Node) []LinkEnd {
	var ends []LinkEnd
	for li, l := range m.Links {
		for ei, e := range l.Ends {
			if e.Node == node.Name {
				ends = append(ends, LinkEnd{Link: li, End: ei, Driver: e.Driver, Bus: e.Bus})
			}
		}
	}
	return ends
}

// Cmdline are the kernel arguments that a node's description asks for.
func (m Machine) Cmdline(node Node) []string {
	return append(slices.Clone(m.platform().iommuArgs[node.IOMMU]), node.KernelArgs...)
}

// option renders the device as QEMU wants it. A comma inside a value is
// doubled, which is QEMU's way to quote it.
func (d Device) option() string {
	var b strings.Builder
	b.WriteString(d.Driver)
	prop := func(k, v string) {
		fmt.Fprintf(&b, ",%s=%s", k, strings.ReplaceAll(v, ",", ",,"))
	}
	if d.ID != "" {
		prop("id", d.ID)
	}
	if d.Bus != "" {
		prop("bus", d.Bus)
	}
	keys := make([]string, 0, len(d.Props))
	for k := range d.Props {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		prop(k, d.Props[k])
	}
	return b.String()
}

func or(n, fallback int) int {
	if n != 0 {
		return n
	}
	return fallback
}

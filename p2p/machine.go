// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"sync"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// Addr is a PCI function's address. Package ibvfd's devices have one.
type Addr = pci.Addr

// ParseAddr reads "0000:03:00.0", and "03:00.0" as of domain 0.
func ParseAddr(s string) (Addr, error) { return pci.ParseAddr(s) }

// Machine is what decides about peer-to-peer on one machine: this one, or
// another whose files lie below a directory. Each file is read once, when it
// is first needed: for a changed machine, Open another. It is safe for
// concurrent use.
type Machine struct {
	Kernel Kernel
	CPU    CPU

	root    string // "/", or where the copy of another machine is
	sys     sysfs.FS
	proc    procfs.FS
	process int
	config  kernelConfig // nil if none was found
	virtual virtual
	*cache

	// What Remedy asks about: a machine like this one, but for these.
	noRedirects bool // no port redirects
	trustsAll   bool // all host bridges pass peer-to-peer
}

// cache is what was read. Machines that differ in suppositions share it.
type cache struct {
	mu    sync.Mutex
	nodes map[Addr]*node
	hosts map[string]*host

	classes map[Addr]uint64 // as [Machine.GPUs] saw them last

	chipset chipset
}

// Open reads kernel and processor of the machine whose sys, proc, boot and
// lib/modules are below root; "" is this machine. What cannot be read is
// unknown, and is no error.
func Open(root string) *Machine { return Source{Root: root}.Open() }

// node is a function and what the walk wants of it.
type node struct {
	addr Addr
	up   []Addr // the bridges above, nearest first
	err  error  // why nothing is known of it

	acs    pci.ACS
	acsErr error // why its ACS is not known
	noECAM bool  // a PCI Express function of which the kernel cannot read all

	host  *host // read when it is asked for
	place *place

	chip    *chip // of a switch, read when it is asked for
	chipErr error
}

// node reads a function, once.
func (m *Machine) node(a Addr) *node {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.nodes[a]; n != nil {
		return n
	}
	n := &node{addr: a}
	m.nodes[a] = n
	if n.up, n.err = pci.Upstream(m.sys, a); n.err != nil {
		n.acsErr = n.err // a port of which nothing is known is none that does not redirect
		return n
	}
	c, err := pci.ReadConfig(m.sys, a)
	if err != nil {
		n.acsErr = err
		return n
	}
	n.acs, n.acsErr = c.ACS()
	n.noECAM = c.Unreachable()
	return n
}

// host is a host bridge as the kernel's list sees it.
type host struct {
	bus    string // "pci0000:00"
	err    error
	empty  bool // no function to go by
	first  pci.Function
	root   bool  // first is a root port
	rootOf error // why that is not known
}

// hostOf reads the host bridge above a function, once.
func (m *Machine) hostOf(n *node) *host {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n.host != nil {
		return n.host
	}
	bus, first, ok, err := pci.RootBus(m.sys, n.addr)
	if n.host = m.hosts[bus]; n.host == nil {
		n.host = &host{bus: bus, empty: !ok, err: err}
		if ok && err == nil {
			m.readHost(n.host, first)
		}
		m.hosts[bus] = n.host
	}
	return n.host
}

func (m *Machine) readHost(h *host, first Addr) {
	if h.first, h.err = pci.ReadFunction(m.sys, first); h.err != nil {
		return
	}
	c, err := pci.ReadConfig(m.sys, first)
	if err != nil {
		h.rootOf = err
		return
	}
	h.root, h.rootOf = c.RootPort()
}

// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"sync"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Machine has the facts that decide about peer-to-peer on one machine: this one, or
// another one whose files are below a directory. It reads a file when a method first needs
// it, and keeps most facts that it has read: after the machine has changed, call Open again.
// Read, Link, There and KernelLog read anew at each call. Several goroutines may use a
// Machine at once, unless one of them changes its fields. A copy of a Machine shares the
// facts that were read.
type Machine struct {
	Kernel Kernel
	CPU    CPU

	Root    string // "/", or where the copy of another machine is
	Sys     sysfs.FS
	Proc    procfs.FS
	PID     int    // Source.Process; 0 is this process
	Config  Config // nil if none was found
	Virtual Fact   // whether the machine is a hypervisor's guest
	*cache

	// Suppositions for remedies: rules judge the machine as if these facts were so.
	NoRedirects bool // no port redirects
	TrustsAll   bool // all host bridges pass peer-to-peer
	PassesDMA   bool // the IOMMU passes all DMA through
}

// cache has the facts that were read. Machines that differ only in suppositions share it.
type cache struct {
	Mu    sync.Mutex
	Nodes map[pciaddr.Addr]*Node
	hosts map[string]*HostBridge

	Classes map[pciaddr.Addr]uint64 // of PCI functions, as drivers.GPUs read them last

	Chipset chipset

	memo sync.Map // what Once has read, by key
}

// Open returns the machine whose sys, proc, boot and lib/modules are below root; "" is
// this machine. It reads the facts about kernel and processor. A fact that cannot be read
// is unknown, which is no error.
func Open(root string) *Machine { return Source{Root: root}.Open() }

// Node is a PCI function, with the facts that the walk through the tree needs. The caller must
// not change it: all callers of Machine.Node share it.
type Node struct {
	Addr pciaddr.Addr
	Up   []pciaddr.Addr // the bridges above, nearest first
	Err  error          // why nothing is known of it

	ACS    pci.ACS
	ACSErr error // why its ACS is not known
	NoECAM bool  // a PCI Express function whose extended configuration space the kernel cannot read

	host  *HostBridge // read on first use
	place *place

	chip    *chip // of a switch, read on first use
	chipErr error
}

// Node returns a function with the facts of Node, which it reads once. It never returns nil: a
// function that cannot be read has Err.
func (m *Machine) Node(a pciaddr.Addr) *Node {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	if n := m.Nodes[a]; n != nil {
		return n
	}
	n := &Node{Addr: a}
	m.Nodes[a] = n
	if n.Up, n.Err = pci.Upstream(m.Sys, a); n.Err != nil {
		n.ACSErr = n.Err // do not assume that an unreadable port does not redirect
		return n
	}
	c, err := pci.ReadConfig(m.Sys, a)
	if err != nil {
		n.ACSErr = err
		return n
	}
	n.ACS, n.ACSErr = c.ACS()
	n.NoECAM = c.Unreachable()
	return n
}

// HostBridge has the facts about a host bridge that the kernel compares with its list.
type HostBridge struct {
	Bus    string // "pci0000:00"
	Err    error
	Empty  bool // the bus has no function
	Picked bool // the copy has only some functions, so that First may not be the first of the machine
	First  pci.Function
	Root   bool  // First is a root port
	RootOf error // why Root is not known
}

// HostBridge returns the host bridge above a function, which it reads once. The caller must not
// change it.
func (m *Machine) HostBridge(n *Node) *HostBridge {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	if n.host != nil {
		return n.host
	}
	bus, first, ok, err := pci.RootBus(m.Sys, n.Addr)
	if n.host = m.hosts[bus]; n.host == nil {
		n.host = &HostBridge{Bus: bus, Empty: !ok, Err: err, Picked: !m.WholeSys()}
		if ok && err == nil {
			m.readHost(n.host, first)
		}
		m.hosts[bus] = n.host
	}
	return n.host
}

func (m *Machine) readHost(h *HostBridge, first pciaddr.Addr) {
	if h.First, h.Err = pci.ReadFunction(m.Sys, first); h.Err != nil {
		return
	}
	c, err := pci.ReadConfig(m.Sys, first)
	if err != nil {
		h.RootOf = err
		return
	}
	h.Root, h.RootOf = c.RootPort()
}

// Silent reports whether a function answers every read of its configuration space with
// ones, as a device does that no longer responds.
func (m *Machine) Silent(a pciaddr.Addr) bool {
	return errors.Is(m.Node(a).ACSErr, pci.ErrNoAnswer)
}

// Once calls read the first time that a caller uses this key, and returns the same result
// each time. read must depend on the machine's files alone. All callers of a key must use the
// same type, and must not change the result.
func Once[T any](m *Machine, key string, read func() T) T {
	v, _ := m.memo.LoadOrStore(key, sync.OnceValue(read))
	return v.(func() T)()
}

// OnceValues is Once for a function with two results.
func OnceValues[T, U any](m *Machine, key string, read func() (T, U)) (T, U) {
	v, _ := m.memo.LoadOrStore(key, sync.OnceValues(read))
	return v.(func() (T, U))()
}

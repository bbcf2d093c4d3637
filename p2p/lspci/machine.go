// SPDX-License-Identifier: Apache-2.0

package lspci

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/gpurdma/gpurdma/internal/files"
)

// Entry is a file of a machine. The zero value is an empty file.
type Entry struct {
	Data []byte
	// Link is the target of a symbolic link, relative to the link's directory; "" for other files.
	Link string
	Dir  bool
	// Unreadable says that the machine may have the file, and that the text does not
	// have its contents.
	Unreadable bool
}

// Machine has the files of a machine that lspci's output describes.
type Machine struct {
	// Files are those of the machine, by their names below its root, without the
	// first slash.
	Files map[string]Entry
	// Notes say which facts are not known, and which command prints them.
	Notes []string
}

// Tree returns the files as a tree in memory. It returns an error if two names contradict each other: one a file, and the other below it.
func (m *Machine) Tree() (*files.Tree, error) {
	t := files.NewTree()
	for name, e := range m.Files {
		var err error
		switch {
		case e.Unreadable:
			err = t.AddUnreadable(name)
		case e.Link != "":
			err = t.AddLink(name, e.Link)
		case e.Dir:
			err = t.AddDir(name)
		default:
			err = t.AddFile(name, e.Data)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return t, nil
}

// unprinted are files whose contents lspci does not print. If they were missing, a rule would
// draw a wrong conclusion about the function.
var unprinted = []string{
	"power/runtime_status", "d3cold_allowed", "p2pmem", "dma_mask_bits", "vpd",
	"aer_dev_fatal", "aer_dev_nonfatal", "aer_dev_correctable",
}

// unprintedOf are those of functions that can be GPUs, and of network functions.
var (
	unprintedOfDisplay = []string{"drm", "accel", "mem_info_vram_total", "mem_info_vis_vram_total"}
	unprintedOfNetwork = []string{"net"}
)

// unprintedOfRDMA are files of an RDMA device.
var unprintedOfRDMA = []string{"fw_ver", "board_id", "node_type"}

// Machine makes the files of the machine. tree may be nil. Machine returns ErrFormat if the bridges in the text, or
// in the text and the tree, contradict each other.
func (t *Text) Machine(tree *Tree) (*Machine, error) {
	p, err := t.places(tree)
	if err != nil {
		return nil, err
	}
	m := &maker{places: p, Machine: &Machine{Files: map[string]Entry{}}}
	for _, f := range t.functions {
		m.nodes = m.nodes || f.numa != ""
		m.groups = m.groups || f.group != ""
	}
	for _, dir := range []string{"sys/bus", "sys/class", "sys/kernel"} {
		m.Files[dir] = Entry{Dir: true}
	}
	for _, f := range t.functions {
		m.function(f)
	}
	m.hosts()
	m.Notes = m.notes()
	return m.Machine, nil
}

// maker makes a machine of a text.
type maker struct {
	*places
	*Machine
	nodes, groups bool // the text has those of some function
	rdma          int  // functions that stand for an RDMA device
}

// put writes an attribute of one line.
func (m *maker) put(name, text string) { m.Files[name] = Entry{Data: []byte(text + "\n")} }

func (m *maker) unread(name string) { m.Files[name] = Entry{Unreadable: true} }

// link makes a link to a name below the root.
func (m *maker) link(name, target string) {
	relative, err := filepath.Rel("/"+path.Dir(name), "/"+target)
	if err != nil {
		relative = target // both begin with a slash: there is a way
	}
	m.Files[name] = Entry{Link: relative}
}

// known puts a file, or marks it as unread where the text does not have it.
func (m *maker) known(name, text string, ok bool) {
	if ok {
		m.put(name, text)
	} else {
		m.unread(name)
	}
}

func (m *maker) function(f *function) {
	dir := m.dirs[f.addr]
	at := func(name string) string { return path.Join(dir, name) }
	m.link(path.Join("sys/bus/pci/devices", f.addr.String()), dir)
	m.known(at("vendor"), "0x"+f.vendor, f.vendor != "")
	m.known(at("device"), "0x"+f.device, f.device != "")
	m.class(at("class"), f)
	m.subsystem(at, f)
	config := f.config()
	if config != nil {
		m.Files[at("config")] = Entry{Data: config}
	} else {
		m.unread(at("config"))
	}
	resource, ok := f.resource()
	m.known(at("resource"), strings.TrimSuffix(resource, "\n"), ok)
	// If lspci prints the NUMA node or the group of another function, this function has none. If it prints
	// none at all, the version of lspci may not print them.
	printed := f.whole() && (f.registers || f.brief)
	switch {
	case f.numa != "" && !f.unknown:
		m.put(at("numa_node"), f.numa)
	case printed && m.nodes:
		m.put(at("numa_node"), "-1")
	default:
		m.unread(at("numa_node"))
	}
	switch {
	case f.group != "" && !f.unknown:
		group := "sys/kernel/iommu_groups/" + f.group
		m.unread(path.Join(group, "type"))
		m.link(at("iommu_group"), group)
		m.link(path.Join(group, "devices", f.addr.String()), dir)
	case !printed || !m.groups:
		m.unread(at("iommu_group"))
	}
	if driver := f.boundTo(); driver != "" {
		m.link(at("driver"), path.Join("sys/bus/pci/drivers", driver))
	}
	m.physical(at("physfn"), f)
	m.speeds(at, f, len(config) == spaceSize)
	if matters(f.class) {
		for _, name := range unprinted {
			m.unread(at(name))
		}
	}
	if display(f.class) || f.class == "" {
		for _, name := range unprintedOfDisplay {
			m.unread(at(name))
		}
	}
	if network(f.class) || f.class == "" {
		for _, name := range unprintedOfNetwork {
			m.unread(at(name))
		}
	}
	if f.rdma() {
		m.device(dir, f)
	}
}

// class writes the class with the programming interface. lspci prints the interface only if it is not 0
// or has a name.
func (m *maker) class(name string, f *function) {
	interfaces := f.progIF
	if interfaces == "" {
		interfaces = "00"
	}
	m.known(name, "0x"+f.class+interfaces, f.class != "")
}

func (m *maker) subsystem(at func(string) string, f *function) {
	switch {
	case f.subVendor != "":
		m.put(at("subsystem_vendor"), "0x"+f.subVendor)
		m.put(at("subsystem_device"), "0x"+f.subDevice)
	case !f.registers && !f.brief || !f.whole() || f.vendor == "":
		m.unread(at("subsystem_vendor"))
		m.unread(at("subsystem_device"))
	}
}

// physical links a virtual function to its physical function. A function that has a list of virtual
// functions, or registers of its own, is not a virtual function.
func (m *maker) physical(name string, f *function) {
	pf, ok := m.pf[f.addr]
	switch {
	case ok:
		m.link(name, m.dirs[pf])
	case f.caps.sriov == nil && !f.registered() && (network(f.class) || display(f.class) || f.class == ""):
		m.unread(name)
	}
}

// speeds are of the function's link. A conventional function has none.
func (m *maker) speeds(at func(string) string, f *function, conventional bool) {
	if conventional {
		return
	}
	var e express
	if f.caps.express != nil && !f.caps.broken && !f.unknown {
		e = *f.caps.express
	}
	for _, s := range []struct{ name, rate string }{{"current_link_speed", e.speed}, {"max_link_speed", e.maxSpeed}} {
		text, ok := rates[s.rate]
		m.known(at(s.name), text, ok)
	}
	m.known(at("current_link_width"), e.width, e.width != "")
	m.known(at("max_link_width"), e.maxWidth, e.maxWidth != "")
}

// device is the RDMA device that a network function stands for.
func (m *maker) device(dir string, f *function) {
	m.rdma++
	name := path.Join(dir, "infiniband", f.rdmaName())
	m.Files[name] = Entry{Dir: true}
	for _, file := range unprintedOfRDMA {
		m.unread(path.Join(name, file))
	}
	m.link(path.Join(name, "device"), dir)
	m.link(path.Join("sys/class/infiniband", f.rdmaName()), name)
}

// hosts marks the function by which the kernel recognizes a host bridge as unread if the text does not
// have it. Without the mark, package p2p would take another function for it.
func (m *maker) hosts() {
	for b := range m.roots {
		if _, below := m.above[b]; below {
			continue
		}
		first := fmt.Sprintf("%04x:%02x:00.0", b.domain, b.number)
		dir := path.Join("sys/devices", rootName(b), first)
		if _, there := m.Files[path.Join(dir, "config")]; !there {
			m.Files[dir] = Entry{Dir: true}
		}
	}
}

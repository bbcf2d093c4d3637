// SPDX-License-Identifier: Apache-2.0

package proofs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// bootID is the file with the identity of a boot.
const bootID = "proc/sys/kernel/random/boot_id"

// always are modules that take part in each registration.
var always = []string{"ib_core", "ib_uverbs", "nvidia_peermem"}

// Values of facts that have none. A fact that was not read may have any value.
const (
	absent  = "not there"
	notRead = "not read"
)

// Circumstances are the facts of a machine on which the proof of a pair depends. The key is the file that
// has the fact, or the fact's name.
type Circumstances map[string]string

// Observe reads the circumstances of a pair. A Machine keeps facts that it has read, so that the caller
// opens m directly before.
func Observe(m *machine.Machine, p p2p.Pair) Circumstances {
	out := Circumstances{
		"the kernel's release": m.Kernel.Release, "CONFIG_PCI_P2PDMA": m.Kernel.P2PDMA.String(), "move_notify": m.Kernel.MoveNotify.String(), // also those that were supposed
	}
	read := func(parts ...string) {
		r := m.Read(path.Join(parts...))
		switch {
		case r.Err == nil:
			out[r.Where] = strings.ToValidUTF8(r.Text, "?")
		case errors.Is(r.Err, fs.ErrNotExist):
			out[r.Where] = absent
		default:
			out[r.Where] = notRead
		}
	}
	for _, module := range modules(p) {
		for _, file := range []string{"srcversion", "version", "taint"} {
			read("sys/module", module, file)
		}
		const id = "notes/.note.gnu.build-id"
		if r := m.Read("sys/module", module, id); r.Err == nil {
			out[r.Where] = fmt.Sprintf("%x", r.Text)
		} else {
			read("sys/module", module, id)
		}
	}
	read("proc/driver/nvidia/params")
	read("sys/class/infiniband", p.NIC.Name, "fw_ver")
	read("sys/class/infiniband", p.NIC.Name, "node_guid")
	for _, end := range []*pciaddr.Addr{p.GPU.Exporter.PCI, p.NIC.Importer.PCI} {
		if end == nil {
			continue
		}
		dir := path.Join("sys/bus/pci/devices", end.String())
		read(dir, "vendor")
		read(dir, "device")
		read(dir, "resource")
		read(dir, "iommu_group/type")
		for _, a := range append([]pciaddr.Addr{*end}, m.Node(*end).Up...) {
			out["ACS of "+a.String()] = acsOf(m, a)
		}
	}
	if gpu := p.GPU.Exporter; gpu.PCI != nil && gpu.Class == drivers.ClassAMDGPU {
		read("sys/bus/pci/devices", gpu.PCI.String(), runtimeStatus) // one that sleeps is no peer
	}
	if nic := p.NIC.Importer.PCI; nic != nil {
		out["ATS and ordering of "+nic.String()] = orderOf(m, *nic)
	}
	return out
}

// acsOf is the ACS control of a function.
func acsOf(m *machine.Machine, a pciaddr.Addr) string {
	switch n := m.Node(a); {
	case n.ACSErr != nil || n.NoECAM:
		return notRead
	case !n.ACS.Present:
		return absent
	default:
		return fmt.Sprintf("%#x", uint16(n.ACS.Ctrl))
	}
}

// orderOf is how a NIC sends its requests.
func orderOf(m *machine.Machine, nic pciaddr.Addr) string {
	ats, relaxed, err := p2p.Sends(m, nic)
	if err != nil {
		return notRead
	}
	return fmt.Sprintf("ATS %v, relaxed ordering %v", ats, relaxed)
}

// modules are those of the two drivers, and those that serve every registration.
func modules(p p2p.Pair) []string {
	out := slices.Clone(always)
	for _, driver := range []string{p.GPU.Exporter.Driver, p.NIC.Importer.Driver, p.NIC.SoftwareKind, drivers.RdmaDrivers[p.NIC.Importer.Driver].Module} {
		if driver != "" && driver != drivers.UnknownDriver {
			out = append(out, machine.ModuleOf(driver))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// runtimeStatus is the file that says whether a GPU sleeps.
const runtimeStatus = "power/runtime_status"

// ChangedSince names a fact that has changed; "" if there is none. A fact that could not be read,
// before or now, counts as unchanged, and a fact that before does not have as changed.
func (c Circumstances) ChangedSince(before Circumstances) string {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if was, is := before[name], c[name]; was != is && was != notRead && is != notRead {
			return name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if _, was := before[name]; !was {
			return name
		}
	}
	return ""
}

// ChangedDuring names a fact that has changed while a pair was tried; "" if there is none. It ignores
// that a GPU was asleep before, because the trial itself wakes the GPU.
func (c Circumstances) ChangedDuring(before Circumstances) string {
	awake := maps.Clone(before)
	for name := range awake {
		if strings.HasSuffix(name, "/"+runtimeStatus) {
			awake[name] = c[name]
		}
	}
	return c.ChangedSince(awake)
}

// changed says why a record does not cover a pair any more; "" if it does.
func (r Record) changed(m *machine.Machine, p p2p.Pair) string {
	now := Observe(m, p)
	if name := now.ChangedSince(r.Circumstances); name != "" {
		if _, was := r.Circumstances[name]; !was {
			return name + " was no part of it"
		}
		return name + " has changed since"
	}
	unread := slices.Contains(slices.Collect(maps.Values(now)), notRead)
	for i, is := range linksOf(p.Verdict) {
		was := r.Links[i].State
		unknown := chain.Unknown.String()
		switch {
		case was == is.State, was == unknown && is.State != chain.Breaks.String(), is.State == unknown && unread:
		default:
			return "the link " + is.Link + " is another than it was: " + was + " then, " + is.State + " now"
		}
	}
	return ""
}

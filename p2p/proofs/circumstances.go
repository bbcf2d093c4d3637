// SPDX-License-Identifier: Apache-2.0

package proofs

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// bootID is the file with the identity of a boot.
const bootID = "proc/sys/kernel/random/boot_id"

// always are modules that take part in each registration.
var always = []string{"ib_core", "ib_uverbs", "nvidia_peermem"}

// circumstances are the facts of a machine on which the proof of a pair depends, each by the file
// that has it. A file that is not there has no fact.
func circumstances(m *machine.Machine, p p2p.Pair) map[string]string {
	out := map[string]string{}
	read := func(parts ...string) {
		if r := m.Read(path.Join(parts...)); r.Err == nil {
			out[r.Where] = strings.TrimSpace(r.Text)
		}
	}
	out["the kernel's release"] = m.Kernel.Release // as it is supposed to be
	for _, module := range modules(p) {
		for _, file := range []string{"srcversion", "version", "taint"} {
			read("sys/module", module, file)
		}
		if r := m.Read("sys/module", module, "notes/.note.gnu.build-id"); r.Err == nil {
			out[r.Where] = fmt.Sprintf("%x", r.Text)
		}
	}
	for _, a := range []*machine.Addr{p.GPU.Exporter.PCI, p.NIC.Importer.PCI} {
		if a == nil {
			continue
		}
		for _, file := range []string{"vendor", "device"} {
			read("sys/bus/pci/devices", a.String(), file)
		}
	}
	read("sys/class/infiniband", p.NIC.Name, "fw_ver")
	read("sys/class/infiniband", p.NIC.Name, "node_guid")
	return out
}

// modules are those of the two drivers, and those that serve every registration.
func modules(p p2p.Pair) []string {
	out := slices.Clone(always)
	for _, driver := range []string{p.GPU.Exporter.Driver, p.NIC.Importer.Driver, cmp.Or(p.NIC.SoftwareKind, "-")} {
		out = append(out, strings.ReplaceAll(driver, "-", "_"))
	}
	out = append(out, drivers.RdmaDrivers[p.NIC.Importer.Driver].Module)
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(s string) bool { return strings.Trim(s, "_") == "" })
}

// changed says why a record does not cover a pair any more; "" if it does.
func (r Record) changed(m *machine.Machine, p p2p.Pair) string {
	now := circumstances(m, p)
	for _, file := range slices.Sorted(maps.Keys(r.Circumstances)) {
		if now[file] != r.Circumstances[file] {
			return file + " has changed since"
		}
	}
	for _, file := range slices.Sorted(maps.Keys(now)) {
		if _, was := r.Circumstances[file]; !was {
			return file + " was not there then"
		}
	}
	for i, is := range linksOf(p.Verdict) {
		was := r.Links[i]
		if bothKnown(was.State, is.State) && was.State != is.State {
			return "the link " + is.Link + " is another than it was: " + was.State + " then, " + is.State + " now"
		}
		for _, file := range slices.Sorted(maps.Keys(is.Evidence)) {
			value, had := was.Evidence[file]
			if had && value != is.Evidence[file] && !unread(value) && !unread(is.Evidence[file]) {
				return file + " has changed since"
			}
		}
	}
	return ""
}

// bothKnown reports states that were both found out. What only one of two runs could read is no
// change of the machine.
func bothKnown(a, b string) bool {
	unknown := chain.Unknown.String()
	return a != unknown && b != unknown
}

// unread reports the evidence of a file that could not be read.
func unread(value string) bool { return value == "not read" || value == "" }

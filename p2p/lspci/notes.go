// SPDX-License-Identifier: Apache-2.0

package lspci

import (
	"fmt"
	"slices"
	"strings"
)

// notes say what the text does not have.
func (m *maker) notes() []string {
	notes := []string{"lspci prints no kernel, processor, module, IOMMU mode or power state: these are unknown, and no pair can be direct. `p2pcheck snapshot FILE` on the machine has them."}
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if m.rdma > 0 {
		add("lspci names no RDMA device. %s with an RDMA driver %s in for one, as rdma-ADDRESS: whether the kernel has it is not known.",
			plural(m.rdma, "network function"), verb(m.rdma, "stands", "stand"))
	}
	if m.noDomain {
		add("Addresses have no domain: 0000 is assumed. -D prints it.")
	}
	if n := m.count(func(f *function) bool { return f.vendor == "" }); n > 0 {
		add("%s %s no numbers of vendor and device: they are unread. Run `%s`.", plural(n, "function"), verb(n, "has", "have"), Command)
	}
	if n := m.count(func(f *function) bool { return f.class == "" }); n > 0 {
		add("%s %s a class that is not known: they are unread. Run `%s`.", plural(n, "function"), verb(n, "has", "have"), Command)
	}
	m.registerNotes(add)
	if m.cut {
		add("The text ends inside a line or a function: the rest of that is unread.")
	}
	if n := m.count(func(f *function) bool { return f.unknown }); n > 0 {
		add("%s %s foreign, missing or repeated lines: their registers are unread.", plural(n, "function"), verb(n, "has", "have"))
	}
	if buses := m.unplacedBuses(); len(buses) > 0 {
		add("The text does not say what leads to %s. `%s` does: add --lspci-tree FILE.", some3(buses), TreeCommand)
	}
	if m.tree != nil {
		missing := 0
		for a := range m.tree.functions {
			if m.byAddr[a] == nil {
				missing++
			}
		}
		if missing > 0 {
			add("%s of the tree %s not in the other text, which is a part only.", plural(missing, "function"), verb(missing, "is", "are"))
		}
	}
	return notes
}

// registerNotes are of configuration spaces.
func (m *maker) registerNotes(add func(string, ...any)) {
	if n := m.count(func(f *function) bool { return f.caps.denied }); n > 0 {
		add("%s %s “<access denied>”: ACS and the rest of the registers are unread. Run lspci as root: `%s`.", plural(n, "function"), verb(n, "has", "have"), Command)
	}
	if n := m.count(func(f *function) bool { return !f.registers && !f.silent }); n > 0 {
		add("%s %s no registers in the text: they are unread. Run `%s`.", plural(n, "function"), verb(n, "has", "have"), Command)
	}
	n := m.count(func(f *function) bool {
		e := f.caps.express
		return e != nil && e.kind != kindIntegrated && e.kind != kindCollector && f.registers && f.whole() && !f.caps.denied && f.caps.extended == 0
	})
	if n > 0 {
		add("%s of PCI Express %s no extended capabilities in the text: ACS is unread there.", plural(n, "function"), verb(n, "has", "have"))
	}
}

func (m *maker) count(is func(*function) bool) int {
	n := 0
	for _, f := range m.functions {
		if is(f) {
			n++
		}
	}
	return n
}

// unplacedBuses are the buses for which the text shows no bridge and no root above.
func (m *maker) unplacedBuses() []string {
	var out []string
	for _, f := range m.functions {
		name := fmt.Sprintf("bus %04x:%02x", f.addr.Domain, f.addr.Bus)
		if !m.placed(f.addr) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// some3 names the first three.
func some3(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func verb(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

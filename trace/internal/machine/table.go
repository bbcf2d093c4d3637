// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"sync"
	"time"

	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// Table is the machine's memory map. It is read again when it lacks an address, or when a BAR
// is no longer where it says: devices come and go, BARs are resized, memory is added.
type Table struct {
	sys, proc string
	given     bool // and not read from this machine

	mu   sync.Mutex
	m    *placement.Machine
	read time.Time
	seen map[string]time.Time // when a PCI function's BARs were last compared

	changed func(*placement.Machine) error // gives the new map to the programs
}

// New reads the memory map. sys and proc are the roots of sysfs and procfs.
func New(sys, proc string) *Table {
	return &Table{sys: sys, proc: proc, m: Read(sys, proc), read: time.Now()}
}

// Of returns a table of a given map, which it never reads from this machine.
func Of(m *placement.Machine) *Table { return &Table{m: m, given: true} }

// OnChange has fn called with each new map that Again reads. It must come before the table is
// shared between goroutines.
func (t *Table) OnChange(fn func(*placement.Machine) error) { t.changed = fn }

// Get returns the map that was read last.
func (t *Table) Get() *placement.Machine {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.m
}

// Windows are those of the map.
func (t *Table) Windows() []abi.Window { return Windows(t.Get()) }

// rereadAfter is how old the table must be to be read again.
const rereadAfter = time.Second

// Again reads the table once more, unless it is fresh.
func (t *Table) Again() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.given || time.Since(t.read) < rereadAfter {
		return false
	}
	t.m, t.read = Read(t.sys, t.proc), time.Now()
	if t.changed != nil {
		// If this fails, the programs count by the old table, and bytes outside its
		// windows stay KindOther.
		_ = t.changed(t.m)
	}
	return true
}

// Holds reports whether the table has the place and, if it is a BAR, whether the device still has
// the BAR there. It reads the BARs of a device no more often than the table is read.
func (t *Table) Holds(p placement.Place) bool {
	if p.Kind != placement.KindBAR || p.Device == "" {
		return p.Kind != placement.KindOther
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.given || time.Since(t.read) < rereadAfter || time.Since(t.seen[p.Device]) < rereadAfter {
		return true
	}
	if t.seen == nil {
		t.seen = map[string]time.Time{}
	}
	t.seen[p.Device] = time.Now()
	return slices.ContainsFunc(readBARs(sysfs.New(t.sys), p.Device), func(b placement.BAR) bool {
		return b.Index == p.BAR && b.Contains(placement.Range{Start: p.Low, Size: p.High - p.Low})
	})
}

// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/placement"
)

// machineTable is the machine's memory map, read again when an address is in
// none of it, or in a BAR that is not there any more: devices come and go, BARs are
// resized, memory is added.
type machineTable struct {
	sys, proc string

	mu   sync.Mutex
	m    *placement.Machine
	read time.Time
	seen map[string]time.Time // when a PCI function's BARs were last compared

	changed func(*placement.Machine) error // hands the programs the new table
}

func newMachineTable(sys, proc string) *machineTable {
	return &machineTable{sys: sys, proc: proc, m: ReadMachine(sys, proc), read: time.Now()}
}

func (t *machineTable) get() *placement.Machine {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.m
}

func (t *machineTable) windows() []wireWindow { return windowsOf(t.get()) }

// rereadAfter is how old the table must be to be read again.
const rereadAfter = time.Second

// again reads the table once more, unless it is fresh.
func (t *machineTable) again() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.read) < rereadAfter {
		return false
	}
	t.m, t.read = ReadMachine(t.sys, t.proc), time.Now()
	if t.changed != nil {
		// Without it the programs count by the old table, and what is in none
		// of its windows stays other.
		_ = t.changed(t.m)
	}
	return true
}

// holds reports whether the table has the place, and a BAR is where it says. That is
// looked up no more often than the table is read.
func (t *machineTable) holds(p placement.Place) bool {
	if p.Kind != placement.KindBAR || p.Device == "" {
		return p.Kind != placement.KindOther
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.read) < rereadAfter || time.Since(t.seen[p.Device]) < rereadAfter {
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

// Bits of iommu_domain.type, include/linux/iommu.h.
const (
	iommuPaging      = 1 << 0
	iommuPassThrough = 1 << 2
)

// translation says whether an IOMMU translates a device's addresses. The
// kernel's own objects are asked first, then sysfs.
func (t *machineTable) translation(r *wireRecord) placement.Translation {
	if r.Have&haveAttach == 0 || runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		return placement.TranslationUnknown
	}
	switch {
	case r.Have&(haveIOMMU|haveOtherDMA) == 0:
		return placement.Untranslated
	case r.Have&haveIOMMU != 0 && r.Have&haveIOMMUType != 0 && r.Dev.IOMMUType&iommuPaging != 0:
		return placement.Translated // up to 6.12, by operations of its own
	case r.Have&haveOtherDMA != 0:
		return placement.TranslationUnknown
	case r.Have&haveIOMMUType != 0 && r.Dev.IOMMUType&iommuPassThrough != 0:
		return placement.Untranslated
	}
	mode, err := sysfs.New(t.sys).ReadString(filepath.Join("bus", text(r.Dev.Bus[:]), "devices", text(r.Dev.Name[:]), "iommu_group/type"))
	switch {
	case err != nil:
		return placement.TranslationUnknown
	case mode == "identity":
		return placement.Untranslated
	case strings.HasPrefix(mode, "DMA"):
		return placement.Translated
	}
	return placement.TranslationUnknown
}

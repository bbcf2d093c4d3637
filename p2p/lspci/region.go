// SPDX-License-Identifier: Apache-2.0

package lspci

import (
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strings"
)

// region is a BAR.
type region struct {
	index       int
	start, size uint64
	flags       uint64
	// virtual says that the function itself has no such register: the kernel keeps
	// the place, as it does for virtual functions.
	virtual bool
}

// standardBARs is how many regions the kernel's file "resource" begins with:
// PCI_STD_NUM_BARS.
const standardBARs = 6

// Flags of a region: include/linux/ioport.h.
const (
	resourceIO       = 0x00000100 // IORESOURCE_IO
	resourceMemory   = 0x00000200 // IORESOURCE_MEM
	resourcePrefetch = 0x00002000 // IORESOURCE_PREFETCH
	resourceMemory64 = 0x00100000 // IORESOURCE_MEM_64
	resourceUnset    = 0x20000000 // IORESOURCE_UNSET
)

var (
	regionLine = regexp.MustCompile(`^Region ([0-5]): (\[virtual\] )?(I/O ports|Memory) at ([0-9a-f]{1,16}|<unassigned>|<ignored>)(?: \((32-bit|64-bit|low-1M), (non-)?prefetchable\))?((?: \[[a-z]+\])*) \[size=(\d{1,10})([KMGT]?)\]$`)
	sizeUnits  = map[string]int{"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
)

// region reads the line of a BAR.
func (f *function) region(text string) {
	m := regionLine.FindStringSubmatch(text)
	if m == nil {
		f.regionsUnread = true
		return
	}
	index, before, kind, at, width, slow, marks, digits, unit := m[1], m[2], m[3], m[4], m[5], m[6], m[7], m[8], m[9]
	r := region{index: int(number[uint8](index, 10)), size: number[uint64](digits, 10)}
	r.virtual = before != "" || strings.Contains(marks, "[virtual]")
	high, size := bits.Mul64(r.size, 1<<sizeUnits[unit])
	r.size = size
	if at[0] != '<' {
		r.start = number[uint64](at, 16)
	}
	_, over := bits.Add64(r.start, r.size, 0)
	for _, other := range f.regions {
		f.regionsUnread = f.regionsUnread || other.index == r.index
	}
	if high != 0 || over != 0 || r.size == 0 {
		f.regionsUnread = true
		return
	}
	if kind == "I/O ports" {
		r.flags = resourceIO
	} else {
		r.flags = resourceMemory
		if width == "64-bit" {
			r.flags |= resourceMemory64
		}
		if width != "" && slow == "" {
			r.flags |= resourcePrefetch
		}
	}
	if r.start == 0 {
		r.flags |= resourceUnset
	}
	f.regions = append(f.regions, r)
}

// resource is the kernel's file of the regions; false if not all of them are known.
func (f *function) resource() (string, bool) {
	// Regions stand in front of the capabilities.
	if !f.registers || f.regionsUnread || f.unknown || !f.ended && !f.caps.begun() {
		return "", false
	}
	var lines [standardBARs + 1]region // the ROM's is the last
	for _, r := range f.regions {
		lines[r.index] = r
	}
	var b strings.Builder
	for _, r := range lines {
		end := r.start
		if r.size > 0 {
			end += r.size - 1
		}
		fmt.Fprintf(&b, "0x%016x 0x%016x 0x%016x\n", r.start, end, r.flags)
	}
	return b.String(), true
}

// registered reports a function that has registers of its own for its regions, as no
// virtual function has.
func (f *function) registered() bool {
	if _, ok := f.resource(); !ok || len(f.regions) == 0 {
		return false
	}
	return !slices.ContainsFunc(f.regions, func(r region) bool { return r.virtual })
}

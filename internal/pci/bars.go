// SPDX-License-Identifier: Apache-2.0

package pci

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// BAR is a memory region of a function.
type BAR struct {
	Index int
	Start uint64 // physical address
	Size  uint64 // bytes
}

const (
	standardBARs   = 6     // PCI_STD_NUM_BARS: windows and the ROM follow
	resourceMemory = 0x200 // IORESOURCE_MEM of include/linux/ioport.h

	// ResourceUnset is of a BAR whose address means nothing: IORESOURCE_UNSET.
	ResourceUnset = 0x20000000
)

// BARs lists a function's memory BARs that have an address.
func BARs(s sysfs.FS, a Addr) ([]BAR, error) {
	placed, _, err := memoryBARs(s, a)
	return placed, err
}

// Unplaced reports a function none of whose memory BARs has an address, or not the
// largest of them: firmware and kernel found no room.
func Unplaced(s sysfs.FS, a Addr) (bool, error) {
	placed, without, err := memoryBARs(s, a)
	return err == nil && (len(placed) == 0 || largest(placed).Size < largest(without).Size), err
}

// memoryBARs are those with an address and those without.
func memoryBARs(s sysfs.FS, a Addr) (placed, without []BAR, err error) {
	text, err := s.ReadString(path.Join(functionPath(a), "resource"))
	if err != nil {
		return nil, nil, fmt.Errorf("PCI function %v: %w", a, err)
	}
	for i, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		if i >= standardBARs || len(f) != 3 {
			break
		}
		start, err1 := strconv.ParseUint(f[0], 0, 64)
		end, err2 := strconv.ParseUint(f[1], 0, 64)
		flags, err3 := strconv.ParseUint(f[2], 0, 64)
		if err1 != nil || err2 != nil || err3 != nil || flags&resourceMemory == 0 || end <= start {
			continue
		}
		b := BAR{Index: i, Start: start, Size: end - start + 1}
		if start == 0 || flags&ResourceUnset != 0 {
			without = append(without, b)
		} else {
			placed = append(placed, b)
		}
	}
	return placed, without, nil
}

func largest(bars []BAR) (best BAR) {
	for _, b := range bars {
		if b.Size > best.Size {
			best = b
		}
	}
	return best
}

// LargestBAR is where a GPU's memory is; false if the function has none.
func LargestBAR(s sysfs.FS, a Addr) (BAR, bool) {
	bars, err := BARs(s, a)
	best := largest(bars)
	return best, err == nil && best.Size > 0
}

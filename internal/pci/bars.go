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
)

// BARs lists a function's memory BARs that have an address.
func BARs(s sysfs.FS, a Addr) ([]BAR, error) {
	text, err := s.ReadString(path.Join(functionPath(a), "resource"))
	if err != nil {
		return nil, fmt.Errorf("PCI function %v: %w", a, err)
	}
	var out []BAR
	for i, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		if i >= standardBARs || len(f) != 3 {
			break
		}
		start, err1 := strconv.ParseUint(f[0], 0, 64)
		end, err2 := strconv.ParseUint(f[1], 0, 64)
		flags, err3 := strconv.ParseUint(f[2], 0, 64)
		if err1 == nil && err2 == nil && err3 == nil && flags&resourceMemory != 0 && start != 0 && end > start {
			out = append(out, BAR{Index: i, Start: start, Size: end - start + 1})
		}
	}
	return out, nil
}

// LargestBAR is where a GPU's memory is; false if the function has none.
func LargestBAR(s sysfs.FS, a Addr) (BAR, bool) {
	var best BAR
	bars, err := BARs(s, a)
	for _, b := range bars {
		if b.Size > best.Size {
			best = b
		}
	}
	return best, err == nil && best.Size > 0
}

// SPDX-License-Identifier: Apache-2.0

package pci

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// BAR is a memory region of a function.
type BAR struct {
	Index        int
	Start        uint64 // physical address
	Size         uint64 // bytes
	Prefetchable bool
}

const (
	standardBARs = 6 // PCI_STD_NUM_BARS: windows and the ROM follow

	// Of include/linux/ioport.h.
	resourceMemory   = 0x200
	resourcePrefetch = 0x2000
	resourceUnset    = 0x20000000 // the address means nothing
)

// Region is one of a function's BARs as the kernel's file has it, of whatever
// kind.
type Region struct {
	Index      int
	Start, End uint64 // the last address
	flags      uint64
}

// Memory is false for ports of I/O, and for a BAR that the function does not have.
func (r Region) Memory() bool { return r.flags&resourceMemory != 0 }

// Placed reports a region that has an address.
func (r Region) Placed() bool { return r.Start != 0 && r.flags&resourceUnset == 0 }

// memoryWindow is the least size of a BAR that shows a GPU's memory. Of the other BARs none is as large.
const memoryWindow = 256 << 20

// showsMemory reports a region that is the window of a GPU's memory.
func (r Region) showsMemory() bool {
	return r.Memory() && r.flags&resourcePrefetch != 0 && r.End > r.Start && r.End-r.Start+1 >= memoryWindow
}

// Regions reads a function's BARs. A file that is none of a function's is
// fs.ErrInvalid, and so is a part of one, unless it has the window of a GPU's memory.
func Regions(s sysfs.FS, a pciaddr.Addr) ([]Region, error) {
	text, err := files.ReadFile(s.Path(functionPath(a), "resource"))
	if err != nil {
		return nil, fmt.Errorf("PCI function %v: %w", a, err)
	}
	lines := strings.Split(strings.TrimRight(string(text), " \t\n\x00"), "\n")
	var out []Region
	for i, line := range lines[:min(len(lines), standardBARs)] {
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, fmt.Errorf("PCI function %v: %q is no region of resource: %w", a, line, fs.ErrInvalid)
		}
		r := Region{Index: i}
		var errs [3]error
		r.Start, errs[0] = strconv.ParseUint(f[0], 0, 64)
		r.End, errs[1] = strconv.ParseUint(f[1], 0, 64)
		r.flags, errs[2] = strconv.ParseUint(f[2], 0, 64)
		if errors.Join(errs[:]...) != nil {
			return nil, fmt.Errorf("PCI function %v: %q is no region of resource: %w", a, line, fs.ErrInvalid)
		}
		out = append(out, r)
	}
	// The ROM's line follows.
	part := len(lines) <= standardBARs
	if part && !(bytes.HasSuffix(text, []byte("\n")) && slices.ContainsFunc(out, Region.showsMemory)) {
		return nil, fmt.Errorf("PCI function %v: resource has %d lines, and none is of the memory's window: %w", a, len(lines), fs.ErrInvalid)
	}
	return out, nil
}

// BARs lists a function's memory BARs that have an address.
func BARs(s sysfs.FS, a pciaddr.Addr) ([]BAR, error) {
	placed, _, err := memoryBARs(s, a)
	return placed, err
}

// Unplaced reports a function none of whose memory BARs has an address, or not the
// largest of them: firmware and kernel found no room.
func Unplaced(s sysfs.FS, a pciaddr.Addr) (bool, error) {
	placed, without, err := memoryBARs(s, a)
	return err == nil && (len(placed) == 0 || largest(placed).Size < largest(without).Size), err
}

// memoryBARs are those with an address and those without.
func memoryBARs(s sysfs.FS, a pciaddr.Addr) (placed, without []BAR, err error) {
	all, err := Regions(s, a)
	for _, r := range all {
		if !r.Memory() || r.End <= r.Start {
			continue
		}
		b := BAR{Index: r.Index, Start: r.Start, Size: r.End - r.Start + 1, Prefetchable: r.flags&resourcePrefetch != 0}
		if r.Placed() {
			placed = append(placed, b)
		} else {
			without = append(without, b)
		}
	}
	return placed, without, err
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
func LargestBAR(s sysfs.FS, a pciaddr.Addr) (BAR, bool) {
	bars, err := BARs(s, a)
	best := largest(bars)
	return best, err == nil && best.Size > 0
}

// ResizeFile is the file of a BAR that the function offers in several sizes; of
// others there is none.
func ResizeFile(bar int) string { return fmt.Sprintf("resource%d_resize", bar) }

// BusAddress is the address of a memory BAR on the function's bus, as its register has it. It differs from
// [BAR.Start], which the processor uses, if the host bridge's window has an offset. It is false for a
// register of zero, which each virtual function has.
func (c Config) BusAddress(bar int) (uint64, bool) {
	if bar < 0 || bar >= standardBARs {
		return 0, false
	}
	half := func(i int) uint64 {
		low, err1 := c.u16(regBAR0 + 4*i)
		high, err2 := c.u16(regBAR0 + 4*i + 2)
		if err1 != nil || err2 != nil {
			return 0
		}
		return uint64(high)<<16 | uint64(low)
	}
	at := half(bar)
	if at&barIO != 0 {
		return 0, false
	}
	if at&barType == bar64 && bar+1 < standardBARs {
		at |= half(bar+1) << 32
	}
	at &^= barFlags
	return at, at != 0
}

// LargestSize is the largest size that such a file offers, in bytes. It has a bit
// for each, the lowest of which is 1 MiB.
func LargestSize(text string) (uint64, bool) {
	mask, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(text), "0x"), 16, 64)
	if err != nil {
		return 0, false
	}
	return largestOf(mask)
}

func largestOf(mask uint64) (uint64, bool) {
	const unit, most = 20, 43 // 1 MiB to 8 EiB
	top := bits.Len64(mask) - 1
	if top < 0 || top > most {
		return 0, false
	}
	return 1 << (unit + top), true
}

// LargestSize is the largest size that a BAR can have by the function's own word,
// its capability; 0 if the BAR has one size.
func (c Config) LargestSize(bar int) (uint64, error) {
	at, err := c.extended(extCapIDReBAR)
	if err != nil || at == 0 {
		return 0, err
	}
	first, err := c.u16(at + rebarCtrl)
	if err != nil {
		return 0, err
	}
	for range min(int(first&rebarCtrlCount>>5), standardBARs) {
		low, err1 := c.u16(at + rebarCap)
		high, err2 := c.u16(at + rebarCap + 2)
		ctrl, err3 := c.u16(at + rebarCtrl)
		if err := errors.Join(err1, err2, err3); err != nil {
			return 0, err
		}
		if int(ctrl&rebarCtrlBAR) == bar {
			size, _ := largestOf((uint64(high)<<16 | uint64(low)) >> rebarSizesShift)
			return size, nil
		}
		at += rebarCtrl
	}
	return 0, nil
}

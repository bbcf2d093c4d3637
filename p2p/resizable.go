// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/pci"
)

// sizeRange is the largest size that a GPU offers for a BAR, and who says so.
type sizeRange struct {
	largest uint64 // 0: the BAR has one size
	at      []string
	file    bool // the kernel's, by which the size can be chosen
	err     error
	read    string // what is no size
}

// sizes asks the kernel's file, and without it the capability itself: kernels before 6.1
// have no such files, and copies may lack them.
func (l *look) sizes(f *function, bar pci.BAR) sizeRange {
	r := l.read("sys", f.dir, pci.ResizeFile(bar.Index))
	if !r.gone() {
		s := sizeRange{at: r.at(), file: true, err: r.err}
		var ok bool
		if s.largest, ok = pci.LargestSize(r.text); !ok && r.err == nil {
			s.err, s.read = errNoSize, r.text
		}
		return s
	}
	s := sizeRange{at: []string{"/sys/" + f.dir + "/config"}}
	if s.err = firstError(f.err, f.cfgErr); s.err == nil {
		s.largest, s.err = f.config.LargestSize(bar.Index)
	}
	if s.err == nil && f.config.Unreachable() {
		s.err = errNoECAM
	}
	return s
}

// errNoSize is of a file without a size, errNoECAM of a function whose capability the
// kernel does not reach.
var (
	errNoSize = errors.New("it has no size")
	errNoECAM = errors.New("the kernel reaches no extended configuration space of it")
)

// largerBAR is the largest size that a BAR could have beyond its own, 0 if there is
// none; false if it has one size, or that is not known.
func (l *look) largerBAR(f *function, bar pci.BAR) (uint64, bool) {
	s := l.sizes(f, bar)
	if s.err != nil || s.largest <= bar.Size {
		return 0, s.err == nil && s.largest > 0
	}
	return s.largest, true
}

func (l *look) resizable() {
	gpus := l.gpuFunctions()
	if len(gpus) == 0 {
		l.skip("no GPU on PCI")
	}
	for _, f := range gpus {
		bar, ok := pci.LargestBAR(l.m.sys, f.PCI)
		s := l.sizes(f, bar)
		switch {
		case !ok:
			l.unknown(f.name, []string{"/sys/" + f.dir + "/resource"}, "no BAR that has an address is known")
		case errors.Is(s.err, errNoSize):
			l.unknown(f.name, s.at, "%q", s.read)
		case s.err != nil:
			found := l.unread(f.name, reading{where: s.at[0], err: s.err})
			if errors.Is(s.err, pci.ErrTruncated) {
				found.asRoot(l.m)
			}
		case s.largest == 0:
			l.pass(f.name, s.at, "its size is fixed")
		case s.largest <= bar.Size:
			l.pass(f.name, s.at, "%s, the largest", bytesize.Format(int64(bar.Size)))
		default:
			found := l.warn(f.name, s.at, "%s, and it could have %s", bytesize.Format(int64(bar.Size)), bytesize.Format(int64(s.largest)))
			if s.file {
				found.fix("turn on “Resizable BAR” in the firmware; or unbind the driver and choose the size",
					fmt.Sprintf("echo %d > /sys/bus/pci/devices/%v/%s", bits.Len64(s.largest>>20)-1, f.PCI, pci.ResizeFile(bar.Index)), "")
			}
		}
	}
}

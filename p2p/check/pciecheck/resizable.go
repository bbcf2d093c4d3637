// SPDX-License-Identifier: Apache-2.0

package pciecheck

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// sizeRange has the largest size in bytes that a GPU offers for a BAR, and the file that shows it.
type sizeRange struct {
	largest uint64 // 0 if the BAR has one size
	at      []string
	file    bool // at is the kernel's file: an administrator can choose the size by writing it
	err     error
	read    string // the file's text, if it is no size
}

// sizes reads the kernel's file with the sizes, and without it the capability in the configuration space. Kernels
// before 6.1 have no such file, and a copy of a machine may lack it.
func sizes(l *check.Look, f *check.Function, bar pci.BAR) sizeRange {
	r := l.Read("sys", f.Dir, pci.ResizeFile(bar.Index))
	if !r.Gone() {
		s := sizeRange{at: r.At(), file: true, err: r.Err}
		var ok bool
		if s.largest, ok = pci.LargestSize(r.Text); !ok && r.Err == nil {
			s.err, s.read = machine.ErrNoSize, r.Text
		}
		return s
	}
	s := sizeRange{at: []string{"/sys/" + f.Dir + "/config"}}
	if s.err = machine.FirstError(f.Err, f.CfgErr); s.err == nil {
		s.largest, s.err = f.Config.LargestSize(bar.Index)
	}
	if s.err == nil && f.Config.Unreachable() {
		s.err = machine.ErrNoECAM
	}
	return s
}

// largerBAR returns the largest size in bytes that a GPU offers for a BAR, 0 if the BAR has it already; false if
// the BAR has one size only, or if the sizes are not known.
func largerBAR(l *check.Look, f *check.Function, bar pci.BAR) (uint64, bool) {
	s := sizes(l, f, bar)
	if s.err != nil || s.largest <= bar.Size {
		return 0, s.err == nil && s.largest > 0
	}
	return s.largest, true
}

func resizable(l *check.Look) {
	gpus := l.GPUFunctions()
	if len(gpus) == 0 {
		l.Skip("no GPU on PCI")
	}
	for _, f := range gpus {
		bar, ok := l.Machine.LargestBAR(f.PCI)
		s := sizes(l, f, bar)
		switch {
		case !ok:
			l.Unknown(f.Name, []string{"/sys/" + f.Dir + "/resource"}, "no BAR that has an address is known")
		case errors.Is(s.err, machine.ErrNoSize):
			l.Unknown(f.Name, s.at, "%q", s.read)
		case s.err != nil:
			found := l.Unread(f.Name, machine.Reading{Where: s.at[0], Err: s.err})
			if errors.Is(s.err, pci.ErrTruncated) {
				found.AsRoot(l.Machine)
			}
		case s.largest == 0:
			l.Pass(f.Name, s.at, "its size is fixed")
		case s.largest <= bar.Size:
			l.Pass(f.Name, s.at, "%s, the largest", bytesize.Format(int64(bar.Size)))
		default:
			found := l.Warn(f.Name, s.at, "%s, and it could have %s", bytesize.Format(int64(bar.Size)), bytesize.Format(int64(s.largest)))
			if s.file {
				found.Fix("turn on “Resizable BAR” in the firmware; or unbind the driver and choose the size",
					fmt.Sprintf("echo %d > /sys/bus/pci/devices/%v/%s", bits.Len64(s.largest>>20)-1, f.PCI, pci.ResizeFile(bar.Index)), "")
			}
		}
	}
}

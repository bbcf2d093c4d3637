// SPDX-License-Identifier: Apache-2.0

package libcheck

import (
	"errors"
	"fmt"

	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

func awsOFI(l *check.Look) {
	if len(l.Imported("efa")) == 0 {
		l.Skip("no EFA")
		return
	}
	at := l.Machine.Kernel.ReleasedAt()
	switch v := l.Machine.Kernel.Version; {
	case !v.Known():
		l.Unknown("", at, "%s", l.Machine.Kernel.Unversioned())
	case v.Cmp(machine.V5_12) < 0:
		l.Warn("", at, "%s", l.Machine.Kernel.Release)
	default:
		libfabric(l, at)
	}
}

// libfabricFiles are the files that have the version of a libfabric, those of Amazon's installer first.
var libfabricFiles = []string{
	"opt/amazon/efa/lib64/pkgconfig/libfabric.pc", "opt/amazon/efa/lib/pkgconfig/libfabric.pc",
	"usr/lib64/pkgconfig/libfabric.pc", "usr/lib/pkgconfig/libfabric.pc", "usr/lib/x86_64-linux-gnu/pkgconfig/libfabric.pc", "usr/lib/aarch64-linux-gnu/pkgconfig/libfabric.pc",
}

// v1_20 is the first version of libfabric with which aws-ofi-nccl uses dma-bufs.
var v1_20 = machine.Version{Major: 1, Minor: 20}

// libfabric reports the version of libfabric. Only libfabric's development files and Amazon's installer write it
// into a file.
func libfabric(l *check.Look, at []string) {
	for _, name := range libfabricFiles {
		r := l.Read(name)
		text, ok := r.Line("Version")
		switch {
		case r.Gone() || errors.Is(r.Err, machine.ErrNotCopied):
			continue
		case r.Err != nil:
			l.Unread("", r)
			return
		case !ok:
			l.Unknown("", append(at, r.Where), "a libfabric that names no version")
			return
		}
		read, at := fmt.Sprintf("%s, libfabric %s", l.Machine.Kernel.Release, text), append(at, r.Where)
		switch v := machine.ParseVersion(text); {
		case !v.Known():
			l.Unknown("", at, "%s, which is not understood", read)
		case v.Cmp(v1_20) < 0:
			l.Warn("", at, "%s", read)
		default:
			l.Pass("", at, "%s", read)
		}
		return
	}
	l.Unknown("", at, "%s; which libfabric there is no file says", l.Machine.Kernel.Release).Fix("ask the libfabric that programs load", "fi_info --version", "")
}

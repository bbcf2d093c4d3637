// SPDX-License-Identifier: Apache-2.0

package pciecheck

import (
	"errors"
	"fmt"

	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
)

// vram returns the size of a GPU's memory in bytes, by amdgpu's file or by NVML; 0 if it is not known. asked is
// false if neither of the two exists.
func vram(l *check.Look, f *check.Function) (total uint64, where []string, asked bool) {
	r := l.Read("sys", f.Dir, "mem_info_vram_total")
	if n, ok := r.Number(); ok && n > 0 {
		return n, r.At(), true
	}
	if f.Driver != "nvidia" {
		return 0, nil, !r.Gone()
	}
	if l.Subject.Live.Memory == nil {
		return 0, nil, false
	}
	said, err := l.Subject.Live.Memory()
	return said[f.PCI], []string{"NVML"}, !errors.Is(err, check.ErrNotAsked)
}

func barSize(l *check.Look) {
	gpus := l.GPUFunctions()
	if len(gpus) == 0 {
		l.Skip("no GPU on PCI")
	}
	for _, f := range gpus {
		at := []string{"/sys/" + f.Dir + "/resource"}
		bar, ok := l.Machine.LargestBAR(f.PCI)
		total, where, asked := vram(l, f)
		size := bytesize.Format(int64(bar.Size))
		switch {
		case !ok:
			l.Unknown(f.Name, at, "no BAR that has an address is known")
		case total > 0 && bar.Size >= total:
			l.Pass(f.Name, append(at, where...), "%s, and %s of memory", size, bytesize.Format(int64(total)))
		case bar.Size <= check.SmallBAR:
			read := size + ", and how much memory the GPU has is not known: no GPU that is sold has so little"
			if total > 0 {
				read = fmt.Sprintf("%s of %s", size, bytesize.Format(int64(total)))
			}
			small(l, f, append(at, where...), read)
		case total > 0:
			l.Warn(f.Name, append(at, where...), "%s of %s", size, bytesize.Format(int64(total)))
		default:
			unknownMemory(l, f, bar, append(at, where...), asked)
		}
	}
}

// small adds the finding for a BAR of the size that firmware without resizable BAR gives. If all pairs of the GPU
// are direct it is a warning, because the BAR only bounds how much memory is registered at a time. Otherwise it is a
// failure.
func small(l *check.Look, f *check.Function, at []string, read string) {
	pairs := check.Select(l.Pairs, func(p p2p.Pair) bool { return p.GPU.Exporter.PCI != nil && *p.GPU.Exporter.PCI == f.PCI })
	if check.AllDirect(pairs) {
		l.Warn(f.Name, at, "%s: no more than that is registered at a time", read)
		return
	}
	l.Fail(f.Name, at, "%s", read)
}

// unknownMemory adds the finding for the BAR of a GPU whose memory size is not known. The finding is set aside if
// there was neither a file nor a library to ask, and the GPU is not known to offer a larger BAR.
func unknownMemory(l *check.Look, f *check.Function, bar pci.BAR, at []string, asked bool) {
	text := bytesize.Format(int64(bar.Size))
	larger, offered := largerBAR(l, f, bar)
	if offered && larger == 0 {
		text += ", the largest size that the GPU offers"
	}
	found := l.Unknown(f.Name, at, "%s; how much memory the GPU has is not known", text)
	if !asked && larger == 0 && (offered || f.Driver == "nvidia") {
		found.SetAside()
	}
}

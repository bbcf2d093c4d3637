// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"

	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/pci"
)

// smallBAR is what a GPU shows without resizable BAR.
const smallBAR = 256 << 20

// vram is how much memory a GPU has: amdgpu has a file, of NVIDIA's GPUs NVML
// knows it. asked is false where there is nobody who would.
func (l *look) vram(f *function) (total uint64, where []string, asked bool) {
	r := l.read("sys", f.dir, "mem_info_vram_total")
	if n, ok := r.number(); ok && n > 0 {
		return n, r.at(), true
	}
	if f.Driver != "nvidia" {
		return 0, nil, !r.gone()
	}
	if l.s.Live.Memory == nil {
		return 0, nil, false
	}
	said, err := l.s.Live.Memory()
	return said[f.PCI], []string{"NVML"}, !errors.Is(err, ErrNotAsked)
}

func (l *look) barSize() {
	gpus := l.gpuFunctions()
	if len(gpus) == 0 {
		l.skip("no GPU on PCI")
	}
	for _, f := range gpus {
		at := []string{"/sys/" + f.dir + "/resource"}
		bar, ok := pci.LargestBAR(l.m.sys, f.PCI)
		total, where, asked := l.vram(f)
		size := bytesize.Format(int64(bar.Size))
		switch {
		case !ok:
			l.unknown(f.name, at, "no BAR that has an address is known")
		case total > 0 && bar.Size >= total:
			l.pass(f.name, append(at, where...), "%s, and %s of memory", size, bytesize.Format(int64(total)))
		case bar.Size <= smallBAR && total > 0:
			l.fail(f.name, append(at, where...), "%s of %s", size, bytesize.Format(int64(total)))
		case bar.Size <= smallBAR:
			l.fail(f.name, at, "%s, and the memory is not told: no GPU that is sold has so little", size)
		case total > 0:
			l.warn(f.name, append(at, where...), "%s of %s", size, bytesize.Format(int64(total)))
		default:
			l.unknownMemory(f, bar, append(at, where...), asked)
		}
	}
}

// unknownMemory reports a BAR of a GPU of whose memory nobody tells. Where nobody
// could be asked, and the BAR is not known to be smaller than it could be, that
// decides nothing.
func (l *look) unknownMemory(f *function, bar pci.BAR, at []string, asked bool) {
	text := bytesize.Format(int64(bar.Size))
	larger, offered := l.largerBAR(f, bar)
	if offered && larger == 0 {
		text += ", the largest size that the GPU offers"
	}
	found := l.unknown(f.name, at, "%s; how much memory the GPU has is not known", text)
	if !asked && larger == 0 && (offered || f.Driver == "nvidia") {
		found.aside()
	}
}

// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/placement"
)

var intelChecks = []Check{
	{ID: "INTEL-I915", Title: "No GPU is driven by i915", Worst: ResultFail, run: (*look).i915,
		Expect: "xe", Why: "i915 moves every buffer to system memory before it is exported, by design.",
		Fix: Remedy{Change: "let xe have the GPU, if it knows it", Command: "i915.force_probe=!ID xe.force_probe=ID", Weakens: "for a GPU that xe does not take by itself it is experimental"}, Ref: "i915_gem_dmabuf.c"},
	{ID: "INTEL-XE", Title: "xe leaves buffers in the GPU for these NICs", Worst: ResultFail, run: (*look).xePins,
		Expect: "7.2 or later, or NICs that do not pin", Why: "xe up to 6.12 pins in system memory, and reports success.",
		Fix: Remedy{Change: "run Linux 7.2 or later, or use a NIC that follows moves, as mlx5 does"}, Ref: "xe_dma_buf.c"},
	{ID: "INTEL-XE-VRAMBAR", Title: "xe does not make the BAR small", Worst: ResultWarn, run: (*look).xeBAR,
		Expect: "0, and a BAR of more than 256 MiB", Why: "vram_bar_size chooses how much of the memory peers can see; 0 is as much as there is.",
		Fix: Remedy{Change: "let xe take all", Command: "xe.vram_bar_size=0"}, Ref: "xe_module.c"},
}

func (l *look) i915() {
	gpus := l.driven("i915")
	if len(gpus) == 0 {
		l.skip("no GPU of i915")
	}
	for _, g := range gpus {
		at := []string{"/sys/bus/pci/devices/" + g.Name + "/driver"}
		if g.Exporter.OutOfTree {
			l.unknown(g.Name, at, "an i915 that may not be the kernel's own")
			continue
		}
		l.fail(g.Name, at, "i915").Remedy = l.m.xe(g.Exporter)
	}
}

func (l *look) xePins() {
	if len(l.driven("xe")) == 0 {
		l.skip("no GPU of xe")
		return
	}
	l.perPair(func(p Pair) {
		if p.GPU.Exporter.Driver != "xe" || p.NIC.Importer.Kind == NoImporter {
			return
		}
		at := l.m.Kernel.releasedAt()
		pinned := l.m.Kernel.between(v6_12, v7_2)
		kind := p.NIC.Importer.Kind
		read := fmt.Sprintf("%s, and a NIC that is %v", l.m.Kernel.Release, kind)
		switch {
		case p.GPU.Exporter.OutOfTree:
			l.unknown(p.name(), at, "an xe that may not be the kernel's own")
		case pinned == placement.Yes || kind == Dynamic && l.m.Kernel.MoveNotify == placement.Yes:
			l.pass(p.name(), at, "%s", read)
		case pinned == placement.No && kind != KindUnknown && (kind != Dynamic || l.m.Kernel.MoveNotify == placement.No):
			l.fail(p.name(), at, "%s: it pins in system memory", read)
		default:
			l.unknown(p.name(), at, "%s", read)
		}
	})
	if len(l.found) == 0 {
		l.skip("no NIC that imports dma-bufs")
	}
}

func (l *look) xeBAR() {
	gpus := l.driven("xe")
	if len(gpus) == 0 {
		l.skip("no GPU of xe")
		return
	}
	r := l.read("sys/module/xe/parameters/vram_bar_size")
	for _, g := range gpus {
		bar, ok := pci.LargestBAR(l.m.sys, *g.Exporter.PCI)
		size := bytesize.Format(int64(bar.Size))
		switch {
		case r.err != nil && !r.gone():
			l.unread(g.Name, r)
		case !ok:
			l.unknown(g.Name, []string{"/sys/bus/pci/devices/" + g.Name + "/resource"}, "no BAR that has an address is known")
		case r.err == nil && r.text != "0":
			l.warn(g.Name, r.at(), "%s MiB; the BAR has %s", r.text, size)
		case bar.Size <= smallBAR:
			l.warn(g.Name, r.at(), "the BAR has %s", size).fix("turn on “Resizable BAR” in the firmware", "", "")
		default:
			l.pass(g.Name, r.at(), "the BAR has %s", size)
		}
	}
}

var otherGPUChecks = []Check{
	{ID: "HABANA", Title: "Habana's driver accepts the NIC", Worst: ResultFail, run: (*look).habana,
		Expect: "a pair that the kernel supports", Why: "It asks the kernel at attach, and answers EPERM to who is not allowed when it maps.",
		Fix: Remedy{Change: "use a NIC below the accelerator's switch"}, Ref: "drivers/accel/habanalabs/common/memory.c"},
	{ID: "VFIO-EXPORT", Title: "vfio-pci exports to these NICs", Worst: ResultFail, run: (*look).vfioExport,
		Expect: "NICs that can be told to stop: mlx5, irdma", Why: "It lets no importer attach that pins for good: efa, bnxt_re, mana and ionic get EOPNOTSUPP.",
		Fix: Remedy{Change: "use a NIC that can be told to stop"}, Ref: "vfio_pci_dmabuf.c"},
	{ID: "VIRTIO-GPU", Title: "Virtual graphics do not count", Worst: ResultWarn, run: (*look).virtioGPU,
		Expect: "none", Why: "virtio_gpu has no memory of its own but what the hypervisor maps.",
		Fix: Remedy{Change: "nothing, for a screen; a NIC reaches a GPU that the hypervisor hands to the guest"}, Ref: "virtgpu_vram.c"},
	{ID: "NOUVEAU", Title: "No GPU is driven by nouveau", Worst: ResultFail, run: (*look).nouveau,
		Expect: "NVIDIA's open modules", Why: "nouveau pins what it exports in system memory.",
		Fix: Remedy{Change: openInstead}, Ref: "nouveau_prime.c"},
	{ID: "QAIC-IVPU-XDNA", Title: "Accelerators export memory of their own", Worst: ResultFail, run: (*look).accelerators,
		Expect: "none of qaic, ivpu, amdxdna", Why: "Their buffers are in system memory: registrations succeed, and there is nothing peer-to-peer about them.",
		Fix: Remedy{Change: "leave them out", Command: "p2pcheck --gpu …"}, Ref: "drivers/accel"},
}

func (l *look) habana() {
	if len(l.driven("habanalabs")) == 0 {
		l.skip("no accelerator of habanalabs")
		return
	}
	l.perPair(func(p Pair) {
		if p.GPU.Exporter.Driver != "habanalabs" {
			return
		}
		d := p.Prediction.Decision
		switch {
		case d.Supported == placement.No:
			l.fail(p.name(), nil, "%s", strings.Join(d.Why, "; "))
		case d.Supported == placement.AnswerUnknown || p.GPU.Exporter.OutOfTree:
			l.unknown(p.name(), nil, "%s", strings.Join(d.Why, "; "))
		default:
			l.pass(p.name(), nil, "%v", d.Type)
		}
	})
}

// vfioDrivers export as vfio-pci does.
var vfioDrivers = []string{"vfio-pci", "nvgrace-gpu-vfio-pci"}

func (l *look) vfioExport() {
	if len(l.driven(vfioDrivers...)) == 0 {
		l.skip("no GPU of vfio-pci")
		return
	}
	l.perPair(func(p Pair) {
		kind := p.NIC.Importer.Kind
		switch {
		case !slices.Contains(vfioDrivers, p.GPU.Exporter.Driver) || kind == NoImporter:
		case p.GPU.Exporter.OutOfTree:
			l.unknown(p.name(), []string{"/sys/module/" + moduleOf(p.GPU.Exporter.Driver) + "/taint"}, "a vfio-pci that may not be the kernel's own").Remedy = p.Remedy.ofAll()
		case l.m.Kernel.between(v6_12, v7_2) == placement.AnswerUnknown || kind == KindUnknown:
			l.unknown(p.name(), nil, "the kernel %s, and a NIC that is %v", l.m.Kernel.Release, kind)
		case l.m.Kernel.between(v6_12, v7_2) == placement.No:
			l.fail(p.name(), l.m.Kernel.releasedAt(), "%s: its vfio-pci has no export", l.m.Kernel.Release).fix("run Linux 7.2 or later", "", "")
		case kind == Pinned || kind == Static:
			l.fail(p.name(), nil, "a NIC that is %v", kind)
		default:
			l.pass(p.name(), nil, "a NIC that is %v", kind)
		}
	})
	if len(l.found) == 0 {
		l.skip("no NIC that imports dma-bufs")
	}
}

func (l *look) virtioGPU() {
	for _, g := range l.s.GPUs {
		if g.Exporter.Driver == "virtio_gpu" {
			l.warn(g.Name, nil, "its pairs do not count")
		}
	}
	if len(l.found) == 0 {
		l.skip("no virtual graphics")
	}
}

// openInstead is for nouveau's GPUs.
const openInstead = "install NVIDIA's open modules (GPUs from Turing on)"

func (l *look) nouveau() {
	for _, g := range l.driven("nouveau") {
		l.fail(g.Name, []string{"/sys/bus/pci/devices/" + g.Name + "/driver"}, "nouveau")
	}
	if len(l.found) == 0 {
		l.skip("no GPU of nouveau")
	}
}

func (l *look) accelerators() {
	for _, g := range l.driven("qaic", "ivpu", "intel_vpu", "amdxdna") {
		l.fail(g.Name, []string{"/sys/bus/pci/devices/" + g.Name + "/driver"}, "%s", g.Exporter.Driver)
	}
	if len(l.found) == 0 {
		l.skip("no such accelerator")
	}
}

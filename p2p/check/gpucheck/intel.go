// SPDX-License-Identifier: Apache-2.0

package gpucheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// Intel has the checks of Intel's GPUs.
var Intel = []check.Check{
	{ID: "INTEL-I915", Title: "No GPU is driven by i915", Worst: p2p.ResultFail, Run: i915, Links: []chain.Link{chain.Attach},
		Expect: "xe", Why: "i915 moves every buffer to system memory before it is exported, by design.",
		Fix: chain.Remedy{Change: "let xe have the GPU, if it knows it", Command: "i915.force_probe=!ID xe.force_probe=ID", Weakens: "xe is experimental for a GPU that it does not take by itself"}, Ref: "i915_gem_dmabuf.c",
		ByHand: "readlink /sys/bus/pci/devices/GPU/driver"},
	{ID: "INTEL-XE", Title: "xe leaves buffers in the GPU for these NICs", Worst: p2p.ResultFail, Run: xePins, Links: []chain.Link{chain.Attach},
		Expect: "7.2 or later, or NICs that do not pin", Why: "xe up to 6.12 pins in system memory, and reports success.",
		Fix: chain.Remedy{Change: "run Linux 7.2 or later, or use a NIC that follows moves, as mlx5 does"}, Ref: "xe_dma_buf.c",
		ByHand: "uname -r\nreadlink /sys/class/infiniband/NIC/device/driver"},
	{ID: "INTEL-XE-VRAMBAR", Title: "xe does not make the BAR small", Worst: p2p.ResultWarn, Run: xeBAR,
		Expect: "0, and a BAR of more than 256 MiB", Why: "vram_bar_size chooses how much of the memory peers can see; 0 is as much as there is.",
		Fix: chain.Remedy{Change: "let xe take all", Command: "xe.vram_bar_size=0"}, Ref: "xe_module.c",
		ByHand: "cat /sys/module/xe/parameters/vram_bar_size"},
}

func i915(l *check.Look) {
	gpus := l.Driven("i915")
	if len(gpus) == 0 {
		l.Skip("no GPU of i915")
	}
	for _, g := range gpus {
		at := []string{"/sys/bus/pci/devices/" + g.Name + "/driver"}
		if g.Exporter.OutOfTree {
			l.Unknown(g.Name, at, "an i915 that may not be the kernel's own")
			continue
		}
		l.Fail(g.Name, at, "i915").Remedy = p2p.XeRemedy(l.Machine, g.Exporter)
	}
}

func xePins(l *check.Look) {
	if len(l.Driven("xe")) == 0 {
		l.Skip("no GPU of xe")
		return
	}
	check.PerPair(l, func(p p2p.Pair) {
		if p.GPU.Exporter.Driver != "xe" || p.NIC.Importer.Kind == drivers.NoImporter {
			return
		}
		at := l.Machine.Kernel.ReleasedAt()
		pinned := l.Machine.Kernel.Between(machine.V6_12, machine.V7_2)
		kind := p.NIC.Importer.Kind
		read := fmt.Sprintf("%s, and a NIC that is %v", l.Machine.Kernel.Release, kind)
		switch {
		case p.GPU.Exporter.OutOfTree:
			l.Unknown(p.Name(), at, "an xe that may not be the kernel's own")
		case pinned == placement.Yes || kind == drivers.Dynamic && l.Machine.Kernel.MoveNotify == placement.Yes:
			l.Pass(p.Name(), at, "%s", read)
		case pinned == placement.No && kind != drivers.KindUnknown && (kind != drivers.Dynamic || l.Machine.Kernel.MoveNotify == placement.No):
			l.Fail(p.Name(), at, "%s: it pins in system memory", read)
		default:
			l.Unknown(p.Name(), at, "%s", read)
		}
	})
	if len(l.Found) == 0 {
		l.Skip("no NIC that imports dma-bufs")
	}
}

func xeBAR(l *check.Look) {
	gpus := l.Driven("xe")
	if len(gpus) == 0 {
		l.Skip("no GPU of xe")
		return
	}
	r := l.Read("sys/module/xe/parameters/vram_bar_size")
	for _, g := range gpus {
		bar, ok := l.Machine.LargestBAR(*g.Exporter.PCI)
		size := bytesize.Format(int64(bar.Size))
		switch {
		case r.Err != nil && !r.Gone():
			l.Unread(g.Name, r)
		case !ok:
			l.Unknown(g.Name, []string{"/sys/bus/pci/devices/" + g.Name + "/resource"}, "no BAR that has an address is known")
		case r.Err == nil && r.Text != "0":
			l.Warn(g.Name, r.At(), "%s MiB; the BAR has %s", r.Text, size)
		case bar.Size <= check.SmallBAR:
			l.Warn(g.Name, r.At(), "the BAR has %s", size).Fix("turn on “Resizable BAR” in the firmware", "", "")
		default:
			l.Pass(g.Name, r.At(), "the BAR has %s", size)
		}
	}
}

// Others has the checks of other GPUs and accelerators.
var Others = []check.Check{
	{ID: "HABANA", Title: "Habana's driver accepts the NIC", Worst: p2p.ResultFail, Run: habana, Links: []chain.Link{chain.Attach, chain.Decision},
		Expect: "a pair that the kernel supports", Why: "The driver asks the kernel about the pair when the NIC attaches. If the kernel does not allow it, the driver answers EPERM when the NIC maps the buffer.",
		Fix: chain.Remedy{Change: "use a NIC below the accelerator's switch"}, Ref: "drivers/accel/habanalabs/common/memory.c",
		ByHand: "p2pcheck why GPU NIC"},
	{ID: "VFIO-EXPORT", Title: "vfio-pci exports to these NICs", Worst: p2p.ResultFail, Run: vfioExport, Links: []chain.Link{chain.Attach},
		Expect: "NICs whose driver can revoke a registration: mlx5, irdma", Why: "vfio-pci refuses an importer that pins until it unregisters: efa, bnxt_re, mana and ionic get EOPNOTSUPP.",
		Fix: chain.Remedy{Change: "use a NIC whose driver can revoke a registration"}, Ref: "vfio_pci_dmabuf.c",
		ByHand: "readlink /sys/class/infiniband/NIC/device/driver"},
	{ID: "VIRTIO-GPU", Title: "Virtual graphics do not count", Worst: p2p.ResultWarn, Run: virtioGPU,
		Expect: "none", Why: "virtio_gpu has only memory that the hypervisor maps.",
		Fix: chain.Remedy{Change: "nothing, for a screen; a NIC reaches a GPU that the hypervisor hands to the guest"}, Ref: "virtgpu_vram.c",
		ByHand: "readlink /sys/bus/pci/devices/GPU/driver"},
	{ID: "NOUVEAU", Title: "No GPU is driven by nouveau", Worst: p2p.ResultFail, Run: nouveau, Links: []chain.Link{chain.Attach},
		Expect: "NVIDIA's open modules", Why: "nouveau pins what it exports in system memory.",
		Fix: chain.Remedy{Change: openInstead}, Ref: "nouveau_prime.c",
		ByHand: "readlink /sys/bus/pci/devices/GPU/driver"},
	{ID: "QAIC-IVPU-XDNA", Title: "Accelerators export memory of their own", Worst: p2p.ResultFail, Run: accelerators, Links: []chain.Link{chain.Attach},
		Expect: "none of qaic, ivpu, amdxdna", Why: "Their buffers are in system memory: registrations succeed, and the NIC gets system memory.",
		Fix: chain.Remedy{Change: "leave them out", Command: "p2pcheck --gpu …"}, Ref: "drivers/accel",
		ByHand: "readlink /sys/bus/pci/devices/GPU/driver"},
}

func habana(l *check.Look) {
	if len(l.Driven("habanalabs")) == 0 {
		l.Skip("no accelerator of habanalabs")
		return
	}
	check.PerPair(l, func(p p2p.Pair) {
		if p.GPU.Exporter.Driver != "habanalabs" {
			return
		}
		d := p.Prediction.Decision
		switch {
		case d.Supported == placement.No:
			l.Fail(p.Name(), nil, "%s", strings.Join(d.Why, "; "))
		case d.Supported == placement.AnswerUnknown || p.GPU.Exporter.OutOfTree:
			l.Unknown(p.Name(), nil, "%s", strings.Join(d.Why, "; "))
		default:
			l.Pass(p.Name(), nil, "%v", d.Type)
		}
	})
}

func vfioExport(l *check.Look) {
	if len(l.Driven(drivers.VfioDrivers...)) == 0 {
		l.Skip("no GPU of vfio-pci")
		return
	}
	check.PerPair(l, func(p p2p.Pair) {
		kind := p.NIC.Importer.Kind
		switch {
		case !slices.Contains(drivers.VfioDrivers, p.GPU.Exporter.Driver) || kind == drivers.NoImporter:
		case p.GPU.Exporter.OutOfTree:
			l.Unknown(p.Name(), []string{"/sys/module/" + machine.ModuleOf(p.GPU.Exporter.Driver) + "/taint"}, "a vfio-pci that may not be the kernel's own").Remedy = p.Remedy.OfAll()
		case l.Machine.Kernel.Between(machine.V6_12, machine.V7_2) == placement.AnswerUnknown || kind == drivers.KindUnknown:
			l.Unknown(p.Name(), nil, "the kernel %s, and a NIC that is %v", l.Machine.Kernel.Release, kind)
		case l.Machine.Kernel.Between(machine.V6_12, machine.V7_2) == placement.No:
			l.Fail(p.Name(), l.Machine.Kernel.ReleasedAt(), "%s: its vfio-pci has no export", l.Machine.Kernel.Release).Fix("run Linux 7.2 or later", "", "")
		case kind == drivers.Pinned || kind == drivers.Static:
			l.Fail(p.Name(), nil, "a NIC that is %v", kind)
		default:
			l.Pass(p.Name(), nil, "a NIC that is %v", kind)
		}
	})
	if len(l.Found) == 0 {
		l.Skip("no NIC that imports dma-bufs")
	}
}

func virtioGPU(l *check.Look) {
	for _, g := range l.Subject.GPUs {
		if g.Exporter.Driver == "virtio_gpu" {
			l.Warn(g.Name, nil, "its pairs do not count")
		}
	}
	if len(l.Found) == 0 {
		l.Skip("no virtual graphics")
	}
}

// openInstead is the remedy for a GPU that nouveau drives.
const openInstead = "install NVIDIA's open modules (GPUs from Turing on)"

func nouveau(l *check.Look) {
	for _, g := range l.Driven("nouveau") {
		l.Fail(g.Name, []string{"/sys/bus/pci/devices/" + g.Name + "/driver"}, "nouveau")
	}
	if len(l.Found) == 0 {
		l.Skip("no GPU of nouveau")
	}
}

func accelerators(l *check.Look) {
	for _, g := range l.Driven("qaic", "ivpu", "intel_vpu", "amdxdna") {
		l.Fail(g.Name, []string{"/sys/bus/pci/devices/" + g.Name + "/driver"}, "%s", g.Exporter.Driver)
	}
	if len(l.Found) == 0 {
		l.Skip("no such accelerator")
	}
}

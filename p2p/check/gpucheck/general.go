// SPDX-License-Identifier: Apache-2.0

package gpucheck

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// General has the checks of the GPUs of any vendor.
var General = []check.Check{
	{ID: "GPU-DRIVER", Title: "Each GPU has a driver whose rules are known", Worst: p2p.ResultFail, Run: gpuDriver, Links: []chain.Link{chain.Route, chain.Attach},
		Expect: "a driver that exports memory", Why: "Without a driver nothing exports the GPU's memory. A driver from outside the kernel has its own rules, and the kernel's version does not tell them.",
		Fix: chain.Remedy{Change: "bind the GPU's driver"}, Ref: "/sys/bus/pci/devices/*/driver",
		ByHand: "readlink /sys/bus/pci/devices/GPU/driver"},
	{ID: "GPU-LIBRARY", Title: "The vendor's library gives the GPU's memory to NICs", Worst: p2p.ResultFail, Run: gpuLibrary, Links: []chain.Link{chain.Library},
		Expect: "a model that CUDA, ROCm or Level Zero exports", Why: "CUDA refuses GeForce, GB10 and Tegra whatever the kernel allows; ROCm needs all of the memory in the BAR.",
		Fix: chain.Remedy{Change: "use a GPU whose library exports its memory"}, Ref: "CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED; docs/reference/p2p-decisions.md",
		ByHand: "lspci -nn -s GPU\ncat /proc/driver/nvidia/version"},
	{ID: "GPU-RENDER-PERM", Title: "The GPU's device files can be opened", Worst: p2p.ResultFail, Run: gpuNodes,
		Expect: "reading and writing allowed", Why: "EACCES is a matter of groups; EPERM comes from the container's device filter.",
		Fix: chain.Remedy{Change: "join the groups, or give the container the device", Command: "usermod -aG render,video USER"}, Ref: "cgroups(7), devices",
		ByHand: "ls -l /dev/dri/renderD* /dev/nvidia*"},
	{ID: "GPU-EXPORT", Title: "A buffer can be exported", Worst: p2p.ResultFail, Run: gpuExports, Links: []chain.Link{chain.Proof},
		Expect: "a dma-buf of its memory", Why: "The first step of the proof: --live takes it.",
		Fix: chain.Remedy{Change: "see what the driver answered", Command: "dmabuf-reg devices"}, Ref: "dmabuf-reg verify",
		ByHand: "dmabuf-reg devices"},
	{ID: "GPU-EXPORTER-OPS", Title: "The driver makes use of what the kernel allows", Worst: p2p.ResultFail, Run: exporterRules, Links: []chain.Link{chain.Attach, chain.Addresses},
		Expect: "memory that stays in the GPU for this NIC", Why: "Where the kernel lets a pair pass, the driver may still move the buffer to system memory and report success: i915 always, amdgpu and xe up to 6.12 for NICs that pin.",
		Fix: chain.Remedy{Change: "use a kernel, driver or NIC that fit together"}, Ref: "amdgpu_dma_buf.c, xe_dma_buf.c, i915_gem_dmabuf.c, vfio_pci_dmabuf.c",
		ByHand: "p2pcheck why GPU NIC"},
	{ID: "GPU-BO-LOCATION", Title: "A registered buffer is still in the GPU", Worst: p2p.ResultFail, Run: gpuKeeps, Links: []chain.Link{chain.Proof},
		Expect: "all of it, with one NIC at least", Why: "The proof against a silent move: --live looks where the bytes of registered buffers are, by trace, and by what the GPU's driver counts in its memory.",
		Fix: chain.Remedy{Change: "see the pairs' reasons"}, Ref: "dmabuf-reg verify --trace; Documentation/gpu/drm-usage-stats.rst",
		ByHand: "sudo dmabuf-reg verify --trace --gpu GPU --nic NIC"},
}

// bestFirst is the order by which perGPU chooses: one NIC that works is enough, and a failure comes
// before an unknown result.
var bestFirst = []p2p.Result{p2p.ResultPass, p2p.ResultFail, p2p.ResultWarn, p2p.ResultUnknown, p2p.ResultSkip}

// perGPU calls pairs, which adds findings about pairs, and keeps for each GPU the best of them.
func perGPU(l *check.Look, pairs func()) {
	pairs()
	if slices.ContainsFunc(l.Found, func(f *check.Finding) bool { return f.Result == p2p.ResultSkip }) {
		return
	}
	best := map[string]*check.Finding{}
	var order []string
	for _, f := range l.Found {
		gpu, _, _ := strings.Cut(f.Scope[0], " -> ")
		if was := best[gpu]; was == nil || slices.Index(bestFirst, f.Result) < slices.Index(bestFirst, was.Result) {
			best[gpu] = f
		}
		if !slices.Contains(order, gpu) {
			order = append(order, gpu)
		}
	}
	l.Found = nil
	for _, gpu := range order {
		f := best[gpu]
		f.Scope = []string{gpu}
		l.Found = append(l.Found, f)
	}
}

// gpuExports and gpuKeeps report the findings of ACT-EXPORT and ACT-TRACE for each GPU.
func gpuExports(l *check.Look) { perGPU(l, func() { check.ProveExport(l) }) }

func gpuKeeps(l *check.Look) { perGPU(l, func() { proveKept(l) }) }

func gpuDriver(l *check.Look) {
	if len(l.GPUs) == 0 {
		l.Skip("no GPU that has memory of its own")
	}
	for _, g := range l.GPUs {
		e := g.Exporter
		at := []string{"/sys/bus/pci/devices/" + g.Name + "/driver"}
		switch {
		case e.PCI == nil:
			l.Unknown(g.Name, nil, "%q is on no PCI bus, and its rules are not known", e.Driver)
		case l.Machine.Silent(*e.PCI):
			l.Fail(g.Name, []string{"/sys/bus/pci/devices/" + g.Name + "/config"}, "%s is bound, and the GPU does not answer: its configuration space reads as ones", cmp.Or(e.Driver, "no driver")).
				Fix(p2p.GoneGPU, "", "")
		case e.Driver == "":
			l.Fail(g.Name, at, "none")
		case e.Driver == drivers.UnknownDriver:
			l.Unknown(g.Name, at, "which driver the GPU has is not known").Fix(p2p.TakeSnapshot, "p2pcheck snapshot FILE", "")
		case drivers.NoExporters[e.Driver] != "":
			f := l.Fail(g.Name, at, "%s: %s", e.Driver, drivers.NoExporters[e.Driver])
			f.Fix("leave it out: nothing makes this driver export memory of the device's own", "", "")
			if e.Driver == "nouveau" {
				f.Fix(openInstead, "", "")
			}
		case e.Proprietary:
			l.Unknown(g.Name, at, "%s is NVIDIA's proprietary module, which exports no dma-bufs", e.Driver).
				Fix("install the open modules (GPUs from Turing on), or rely on nvidia-peermem", "", "")
		case e.Class == drivers.ClassUnknown:
			l.Unknown(g.Name, at, "%s, whose rules were not read", e.Driver).Fix("prove it by a registration under trace", "p2pcheck --live --gpu "+g.Name, "")
		case e.OutOfTree && e.Class != drivers.ClassNVIDIA && e.Class != drivers.ClassNVIDIACoherent:
			version := l.Read("sys/module", machine.ModuleOf(e.Driver), "version")
			l.Unknown(g.Name, append(at, version.Where), "%s may not be the kernel's own: %s", e.Driver, check.OrText(version)).
				Fix("prove it by a registration under trace", "p2pcheck --live --gpu "+g.Name, "")
		case l.Function(*e.PCI).CfgErr != nil:
			l.Unknown(g.Name, at, "%s is bound, and whether the GPU answers is not known: %s", e.Driver, machine.Reading{Err: l.Function(*e.PCI).CfgErr}.Why())
		default:
			l.Pass(g.Name, at, "%s", e.Driver)
		}
	}
}

// nodeFiles returns the names of a GPU's device files. NVIDIA's driver numbers its files itself. ""
// stands for a device file whose name is not known.
func nodeFiles(l *check.Look, g drivers.GPU) []string {
	if g.Exporter.Driver == "nvidia" {
		own := ""
		if n, ok := l.Read("proc/driver/nvidia/gpus", g.Name, "information").Line("Device Minor"); ok && n != "" {
			own = "dev/nvidia" + n
		}
		return []string{"dev/nvidiactl", "dev/nvidia-uvm", own}
	}
	var out []string
	if g.Exporter.Driver == "amdgpu" {
		out = append(out, "dev/kfd")
	}
	if g.Exporter.PCI == nil {
		return out
	}
	for _, kind := range [][3]string{{"drm", "renderD", "dev/dri"}, {"accel", "accel", "dev/accel"}} {
		names, r := l.List("sys/bus/pci/devices", g.Exporter.PCI.String(), kind[0])
		if r.Err != nil && !r.Gone() {
			out = append(out, "")
		}
		for _, name := range names {
			if strings.HasPrefix(name, kind[1]) {
				out = append(out, path.Join(kind[2], name))
			}
		}
	}
	return out
}

func gpuNodes(l *check.Look) {
	if l.Subject.Live.Opens == nil {
		l.Skip("this is a copy of a machine")
		return
	}
	if len(l.GPUs) == 0 {
		l.Skip("no GPU that has memory of its own")
	}
	for _, g := range l.GPUs {
		files := nodeFiles(l, g)
		if len(files) == 0 {
			l.Unknown(g.Name, nil, "which device file is the GPU's is not known")
		}
		for _, name := range files {
			if name == "" && g.Exporter.Driver != "nvidia" {
				l.Unknown(g.Name, []string{"/sys/bus/pci/devices/" + g.Name}, "not all of its device files are known: its directories cannot be read")
				continue
			}
			if name == "" {
				l.Unknown(g.Name, []string{"/proc/driver/nvidia/gpus/" + g.Name + "/information"}, "the driver does not say which /dev/nvidiaN is the GPU's")
				continue
			}
			check.Opened(l, p2p.ResultFail, g.Name, name)
		}
	}
}

// exporterRules reports for each pair whether the exporter leaves the buffer in the GPU. It takes the
// answers from the pair's links Attach and Addresses.
func exporterRules(l *check.Look) {
	check.PerPair(l, func(p p2p.Pair) {
		name := p.Name()
		read := strings.Join(p.Prediction.Why, "; ")
		attach, addresses := p.Verdict.Link(chain.Attach), p.Verdict.Link(chain.Addresses)
		switch {
		case p.NIC.Importer.Kind == drivers.NoImporter && !p.Prediction.ByPeerMem || p.Prediction.Stage == chain.StageUverbs || p.Verdict.Link(chain.Decision).State == chain.Breaks:
			// Another link refuses the pair, and the check of that link reports it.
		case attach.State.Good() && addresses.State.Good():
			l.Pass(name, nil, "the buffer stays in the GPU")
		case p.Prediction.Outcome == chain.OutcomeUnknown:
			l.Unknown(name, nil, "%s", read).Remedy = p.Remedy.OfAll()
		case p.GPU.Exporter.Class == drivers.ClassNVIDIA && p.Prediction.Stage == chain.StageAttach:
			// P2P-NV-GATE reports it.
		default:
			l.Fail(name, nil, "%s", read).Remedy = p.Remedy
		}
	})
	if len(l.Found) == 0 {
		l.Skip("something else is in the way of every pair")
	}
}

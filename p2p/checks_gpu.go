// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/placement"
)

var gpuChecks = []Check{
	{ID: "GPU-DRIVER", Title: "Each GPU has a driver whose rules are known", Worst: ResultFail, run: (*look).gpuDriver,
		Expect: "a driver that exports memory", Why: "Without a driver nothing exports the GPU's memory. A driver that is not the kernel's own has rules of its own: what a version says is not true of it.",
		Fix: Remedy{Change: "bind the GPU's driver"}, Ref: "/sys/bus/pci/devices/*/driver"},
	{ID: "GPU-RENDER-PERM", Title: "The GPU's device files can be opened", Worst: ResultFail, run: (*look).gpuNodes,
		Expect: "reading and writing allowed", Why: "EACCES is a matter of groups; EPERM comes from the container's device filter.",
		Fix: Remedy{Change: "join the groups, or give the container the device", Command: "usermod -aG render,video USER"}, Ref: "cgroups(7), devices"},
	{ID: "GPU-EXPORT", Title: "A buffer can be exported", Worst: ResultFail, run: (*look).gpuExports,
		Expect: "a dma-buf of its memory", Why: "The first step of the proof: --live takes it.",
		Fix: Remedy{Change: "see what the driver answered", Command: "dmabuf-reg devices"}, Ref: "dmabuf-reg verify"},
	{ID: "GPU-EXPORTER-OPS", Title: "The driver makes use of what the kernel allows", Worst: ResultFail, run: (*look).exporterRules,
		Expect: "memory that stays in the GPU for this NIC", Why: "Where the kernel lets a pair pass, the driver may still move the buffer to system memory and report success: i915 always, amdgpu and xe up to 6.12 for NICs that pin.",
		Fix: Remedy{Change: "use a kernel, driver or NIC that fit together"}, Ref: "amdgpu_dma_buf.c, xe_dma_buf.c, i915_gem_dmabuf.c, vfio_pci_dmabuf.c"},
	{ID: "GPU-BO-LOCATION", Title: "A registered buffer is still in the GPU", Worst: ResultFail, run: (*look).gpuKeeps,
		Expect: "all of it, with one NIC at least", Why: "The proof against a silent move: --live looks where the bytes of registered buffers are, by trace, and by what the GPU's driver counts in its memory.",
		Fix: Remedy{Change: "see the pairs' reasons"}, Ref: "dmabuf-reg verify --trace; Documentation/gpu/drm-usage-stats.rst"},
}

// bestFirst: one NIC that works is enough, and what failed says more than what is
// not known.
var bestFirst = []Result{ResultPass, ResultFail, ResultWarn, ResultUnknown, ResultSkip}

// perGPU sums up, for each GPU that was tried, what pairs says of it: the best
// of them.
func (l *look) perGPU(pairs func()) {
	pairs()
	if slices.ContainsFunc(l.found, func(f *Finding) bool { return f.Result == ResultSkip }) {
		return
	}
	best := map[string]*Finding{}
	var order []string
	for _, f := range l.found {
		gpu, _, _ := strings.Cut(f.Scope[0], " -> ")
		if was := best[gpu]; was == nil || slices.Index(bestFirst, f.Result) < slices.Index(bestFirst, was.Result) {
			best[gpu] = f
		}
		if !slices.Contains(order, gpu) {
			order = append(order, gpu)
		}
	}
	l.found = nil
	for _, gpu := range order {
		f := best[gpu]
		f.Scope = []string{gpu}
		l.found = append(l.found, f)
	}
}

// gpuExports and gpuKeeps are of GPUs, what ACT-EXPORT and ACT-TRACE are of pairs.
func (l *look) gpuExports() { l.perGPU(l.proveExport) }
func (l *look) gpuKeeps()   { l.perGPU(l.proveKept) }

func (l *look) gpuDriver() {
	if len(l.gpus) == 0 {
		l.skip("no GPU that has memory of its own")
	}
	for _, g := range l.gpus {
		e := g.Exporter
		at := []string{"/sys/bus/pci/devices/" + g.Name + "/driver"}
		switch {
		case e.PCI == nil:
			l.unknown(g.Name, nil, "%q is on no PCI bus, and its rules are not known", e.Driver)
		case l.m.silent(*e.PCI):
			l.fail(g.Name, []string{"/sys/bus/pci/devices/" + g.Name + "/config"}, "%s is bound, and the GPU does not answer: its configuration space reads as ones", cmp.Or(e.Driver, "no driver")).
				fix(goneGPU, "", "")
		case e.Driver == "":
			l.fail(g.Name, at, "none")
		case e.Driver == UnknownDriver:
			l.unknown(g.Name, at, "which driver the GPU has is not known").fix(takeSnapshot, "p2pcheck snapshot FILE", "")
		case noExporters[e.Driver] != "":
			f := l.fail(g.Name, at, "%s: %s", e.Driver, noExporters[e.Driver])
			f.fix("leave it out: nothing makes this driver export memory of the device's own", "", "")
			if e.Driver == "nouveau" {
				f.fix(openInstead, "", "")
			}
		case e.Proprietary:
			l.unknown(g.Name, at, "%s is NVIDIA's proprietary module, which exports no dma-bufs", e.Driver).
				fix("install the open modules (GPUs from Turing on), or rely on nvidia-peermem", "", "")
		case e.Class == ClassUnknown:
			l.unknown(g.Name, at, "%s, whose rules were not read", e.Driver).fix("prove it by a registration under trace", "p2pcheck --live --gpu "+g.Name, "")
		case e.OutOfTree && e.Class != ClassNVIDIA && e.Class != ClassNVIDIACoherent:
			version := l.read("sys/module", moduleOf(e.Driver), "version")
			l.unknown(g.Name, append(at, version.where), "%s may be another than the kernel's own: %s", e.Driver, orText(version)).
				fix("prove it by a registration under trace", "p2pcheck --live --gpu "+g.Name, "")
		case l.function(*e.PCI).cfgErr != nil:
			l.unknown(g.Name, at, "%s is bound, and whether the GPU answers is not known: %s", e.Driver, reading{err: l.function(*e.PCI).cfgErr}.why())
		default:
			l.pass(g.Name, at, "%s", e.Driver)
		}
	}
}

// noExporters are drivers of GPUs and accelerators that give out no addresses
// of their own memory.
var noExporters = map[string]string{
	"nouveau": "it pins what it exports in system memory",
	"qaic":    "its buffers are in system memory",
	"ivpu":    "its buffers are in system memory", "intel_vpu": "its buffers are in system memory",
	"amdxdna": "its buffers are in system memory",
}

// nodeFiles are the device files of a GPU. Of NVIDIA's the driver tells the number.
// "" is one of which nothing says what it is called.
func (l *look) nodeFiles(g GPU) []string {
	if g.Exporter.Driver == "nvidia" {
		own := ""
		if n, ok := l.read("proc/driver/nvidia/gpus", g.Name, "information").line("Device Minor"); ok && n != "" {
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
		names, r := l.list("sys/bus/pci/devices", g.Exporter.PCI.String(), kind[0])
		if r.err != nil && !r.gone() {
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

func (l *look) gpuNodes() {
	if l.s.Live.Opens == nil {
		l.skip("this is a copy of a machine")
		return
	}
	if len(l.gpus) == 0 {
		l.skip("no GPU that has memory of its own")
	}
	for _, g := range l.gpus {
		files := l.nodeFiles(g)
		if len(files) == 0 {
			l.unknown(g.Name, nil, "which device file is the GPU's is not known")
		}
		for _, name := range files {
			if name == "" && g.Exporter.Driver != "nvidia" {
				l.unknown(g.Name, []string{"/sys/bus/pci/devices/" + g.Name}, "not all of its device files are known: its directories cannot be read")
				continue
			}
			if name == "" {
				l.unknown(g.Name, []string{"/proc/driver/nvidia/gpus/" + g.Name + "/information"}, "the driver does not say which /dev/nvidiaN is the GPU's")
				continue
			}
			l.opened(ResultFail, g.Name, name)
		}
	}
}

// opened reports whether a device file can be opened. One that cannot be is of the
// result bad. missing says that there is none.
func (l *look) opened(bad Result, scope, name string) (f *Finding, missing bool) {
	file, where, _ := l.m.place(name)
	at := []string{where}
	switch err := l.s.Live.Opens(file); {
	case err == nil:
		return l.pass(scope, at, "it can be opened"), false
	case errors.Is(err, unix.EPERM):
		return l.say(bad, scope, at, "EPERM: a device filter is in the way").fix("give the container the device", "--device "+where, ""), false
	case errors.Is(err, unix.EACCES):
		f = l.say(bad, scope, at, "EACCES: the file's mode and groups")
		if strings.HasPrefix(name, "dev/infiniband/") {
			f.fix("give the file the mode that the kernel makes it with", "chmod 666 "+where, "every user of the machine may use the NIC")
		}
		return f, false
	case errors.Is(err, fs.ErrNotExist):
		return l.say(bad, scope, at, "it is not there").fix("load the driver; in a container, give it the device", "--device "+where, ""), true
	default:
		return l.unknown(scope, at, "%v", err), false
	}
}

func (l *look) exporterRules() {
	l.perPair(func(p Pair) {
		o, name := p.Prediction.Outcome, p.name()
		read := strings.Join(p.Prediction.Why, "; ")
		switch {
		case p.NIC.Importer.Kind == NoImporter || p.Prediction.Stage == StageUverbs || p.Prediction.Decision.Supported == placement.No && asksKernel(p.GPU.Exporter) && p.GPU.Exporter.Class != ClassUnknown:
			// Others are in the way. Whether they are in that of a driver whose rules
			// are not known, is not known.
		case o == Direct:
			l.pass(name, nil, "it stays where it is")
		case o == OutcomeUnknown:
			l.unknown(name, nil, "%s", read).Remedy = p.Remedy.ofAll()
		case p.GPU.Exporter.Class == ClassNVIDIA && p.Prediction.Stage == StageAttach:
			// P2P-NV-GATE tells of it.
		default:
			l.fail(name, nil, "%s", read).Remedy = p.Remedy
		}
	})
	if len(l.found) == 0 {
		l.skip("something else is in the way of every pair")
	}
}

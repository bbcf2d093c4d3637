// SPDX-License-Identifier: Apache-2.0

package hostcheck

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

var Libraries = []check.Check{
	{ID: "LIB-MOVENOTIFY", Title: "Libraries find the option that they look for", Worst: p2p.ResultWarn, Run: grepped,
		Expect: machine.ConfigMoveNotify + "=y in the configuration, or RCCL_FORCE_ENABLE_DMABUF=1", Why: "RCCL, UCX, libfabric and perftest look for this line before they use dma-bufs on AMD GPUs. 7.2 has no such option any more, and they find nothing.",
		Fix: chain.Remedy{Change: "use versions that probe, or force them", Command: "RCCL_FORCE_ENABLE_DMABUF=1"}, Ref: "rocmwrap.cc, rocm_base.c, hmem_rocr.c, rocm_memory.c"},
	{ID: "LIB-NCCL-ENV", Title: "NCCL's variables do not forbid it", Worst: p2p.ResultWarn, Run: ncclEnvironment,
		Expect: "neither NCCL_DMABUF_ENABLE=0, NCCL_NET_GDR_LEVEL=LOC nor NCCL_IB_DISABLE=1; devices and GIDs that are there", Why: "A variable from long ago, or from another machine, outlives its reason.",
		Fix: chain.Remedy{Change: "take the variable away, or correct it"}, Ref: "NCCL's documentation"},
	{ID: "LIB-NCCL-LEVEL", Title: "NCCL uses GPUDirect for the nearest NIC", Worst: p2p.ResultWarn, Run: ncclLevel,
		Expect: "a NIC at PXB or nearer, or a level that is set farther", Why: "NCCL leaves GPUDirect out beyond PXB, whatever kernel and hardware could do.",
		Fix: chain.Remedy{Change: "let it go as far as the nearest NIC", Command: "NCCL_NET_GDR_LEVEL=LEVEL"}, Ref: "NVIDIA/nccl#1151, #1343"},
	{ID: "LIB-UCX", Title: "UCX finds a way to GPU memory", Worst: p2p.ResultWarn, Run: ucx,
		Expect: "one of /" + strings.Join(ucxFiles, ", /"), Why: "UCX chooses by the presence of these files.",
		Fix: chain.Remedy{Change: "load the driver of the GPU; UCX knows those of NVIDIA and Habana, xe, and amdgpu with KFD"}, Ref: "UCX, src/uct/ib"},
	{ID: "LIB-AWS-OFI", Title: "aws-ofi-nccl uses dma-bufs", Worst: p2p.ResultWarn, Run: awsOFI,
		Expect: "5.12 or later, and libfabric 1.20 or later", Why: "It asks for a kernel of 5.12, libfabric of 1.20, and an EFA that it knows.",
		Fix: chain.Remedy{Change: "run a newer kernel, with a newer libfabric"}, Ref: "aws-ofi-nccl"},
	{ID: "LIB-PERFTEST", Title: "perftest can repeat it", Worst: p2p.ResultWarn, Run: perftest,
		Expect: "a pair that is direct", Why: "A measurement that others know. Of a pair that is not direct it is one of system memory.",
		Fix: chain.Remedy{Change: "see the pairs' reasons"}, Ref: "linux-rdma/perftest"},
}

func grepped(l *check.Look) {
	if !check.OnAMD(l) {
		return
	}
	if l.Machine.Config == nil {
		l.Unknown("", nil, "%s", l.Machine.Kernel.Source)
		return
	}
	at := []string{l.Machine.Named(l.Machine.Kernel.Source)}
	if l.Machine.Config[machine.ConfigMoveNotify] == "y" {
		l.Pass("", at, "%s=y", machine.ConfigMoveNotify)
		return
	}
	env, r := environment(l)
	if env["RCCL_FORCE_ENABLE_DMABUF"] == "1" {
		l.Pass("", r.At(), "no line "+machine.ConfigMoveNotify+"=y, and RCCL_FORCE_ENABLE_DMABUF=1 makes up for it")
		return
	}
	l.Warn("", at, "no line %s=y", machine.ConfigMoveNotify)
}

// errNoVariable is of what is no environment.
var errNoVariable = errors.New("it has no variable")

// errNotAtExec is of another process's environment that is not the one it was
// started with: a program that writes its title there leaves NULs, and one that has
// ended, or a thread of the kernel's, has none.
var errNotAtExec = errors.New("it is empty, or the process has written over it: what it was started with is not known")

// environment are the variables of the process that concern transports.
func environment(l *check.Look) (map[string]string, machine.Reading) {
	r := ofProcess(l, "environ")
	if r.Err == nil && r.Text != "" && !strings.Contains(r.Text, "=") {
		r.Err = errNoVariable
	}
	if r.Err == nil && l.Machine.PID != 0 && !AsAtExec(r.All) {
		r.Err = errNotAtExec
	}
	if r.Err != nil {
		return nil, r
	}
	out := map[string]string{}
	for _, entry := range strings.Split(r.Text, "\x00") {
		if name, value, ok := strings.Cut(entry, "="); ok && TransportVariable(name) {
			out[name] = value
		}
	}
	return out, r
}

// AsAtExec reports an environment as a program gets it: variables, and behind each
// one NUL. A program can let the kernel show more of its memory than that.
func AsAtExec(text string) bool {
	if len(text) >= machine.ReadLimit {
		return false
	}
	for entry := range strings.SplitSeq(strings.TrimSuffix(text, "\x00"), "\x00") {
		if !strings.Contains(entry, "=") {
			return false
		}
	}
	return true
}

// TransportVariable reports a variable of the environment that NCCL, RCCL or
// UCX go by.
func TransportVariable(name string) bool {
	return slices.ContainsFunc([]string{"NCCL_", "RCCL_", "UCX_", "FI_", "MLX5_"}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

func ncclEnvironment(l *check.Look) {
	env, r := environment(l)
	if r.Err != nil {
		l.Unread("", r)
		return
	}
	var bad, set []string
	for name, value := range env {
		if strings.HasPrefix(name, "NCCL_") {
			set = append(set, name+"="+value)
		}
	}
	slices.Sort(set)
	for _, entry := range []string{"NCCL_DMABUF_ENABLE=0", "NCCL_NET_GDR_LEVEL=LOC", "NCCL_NET_GDR_LEVEL=0", "NCCL_IB_DISABLE=1", "NCCL_NET_GDR_READ=0"} {
		if slices.Contains(set, entry) {
			bad = append(bad, entry)
		}
	}
	wrong, open := ncclDevices(l, env)
	bad = append(bad, wrong...)
	switch {
	case len(bad) > 0:
		l.Warn("", r.At(), "%s%s", l.Machine.Whose(), strings.Join(bad, ", "))
	case open.Err != nil:
		l.Unread("", open)
	case len(set) > 0:
		l.Pass("", r.At(), "%s%s", l.Machine.Whose(), strings.Join(set, ", "))
	default:
		l.Pass("", r.At(), "%snone is set", l.Machine.Whose())
	}
}

// ncclRank is NCCL's order of ways.
var ncclRank = []string{"LOC", "PIX", "PXB", "PHB", "SYS"}

// ncclDefault is how far NCCL goes by itself.
const ncclDefault = "PXB"

func ncclLevel(l *check.Look) {
	env, r := environment(l)
	level := ncclDefault
	if value := env["NCCL_NET_GDR_LEVEL"]; value != "" {
		level = value
		if n, err := strconv.Atoi(value); err == nil && n >= 0 && n < len(ncclRank) {
			level = ncclRank[n]
		}
	}
	limit := slices.Index(ncclRank, level)
	best := map[string]int{}
	var order []string
	for _, p := range l.Pairs {
		if p.NIC.Software || p.Letters.NCCL == "" || p.Prediction.Outcome != chain.Direct {
			continue // it could not use it at any level
		}
		i := slices.Index(ncclRank, p.Letters.NCCL)
		if _, ok := best[p.GPU.Name]; !ok {
			order = append(order, p.GPU.Name)
			best[p.GPU.Name] = i
		}
		best[p.GPU.Name] = min(best[p.GPU.Name], i)
	}
	if len(order) == 0 {
		l.Skip("no direct pair on PCI")
	}
	farthest := 0 // one variable is for all GPUs
	for _, name := range order {
		farthest = max(farthest, best[name])
	}
	for _, name := range order {
		read := fmt.Sprintf("nearest: %s; the level is %s", ncclRank[best[name]], level)
		switch {
		case r.Err != nil: // it may say any level
			l.Unread(name, r)
		case limit < 0:
			l.Unknown(name, r.At(), "the level %q is not understood", level)
		case best[name] > limit:
			f := l.Warn(name, r.At(), "%s", read)
			f.Fix(l.Check.Fix.Change, "NCCL_NET_GDR_LEVEL="+ncclRank[farthest], "")
			if farthest <= slices.Index(ncclRank, ncclDefault) {
				f.Fix("take NCCL_NET_GDR_LEVEL away: by itself NCCL goes as far as "+ncclDefault, "", "")
			}
		default:
			l.Pass(name, r.At(), "%s", read)
		}
	}
}

// ucxFiles are what UCX takes for the signs of GPUs.
var ucxFiles = []string{"dev/kfd", "sys/module/xe/srcversion", "dev/accel/accel0", "dev/hl0", "sys/kernel/mm/memory_peers/nv_mem/version", "sys/module/nvidia_peermem/version", "dev/nvidiactl"}

func ucx(l *check.Look) {
	if len(l.GPUs) == 0 {
		l.Skip("no GPU that has memory of its own")
		return
	}
	var found, at, open []string
	for _, name := range ucxFiles {
		there, where := l.There(name)
		if there == placement.AnswerUnknown {
			open = append(open, where[0])
		}
		if there == placement.Yes {
			found = append(found, where[0])
			at = append(at, where[0])
		}
	}
	switch {
	case len(found) > 0:
		l.Pass("", at, "%s", strings.Join(found, ", "))
	case len(open) > 0:
		l.Unknown("", nil, "whether these are there is not known: %s", strings.Join(open, ", "))
	default:
		l.Warn("", nil, "none of these files is there")
	}
}

func awsOFI(l *check.Look) {
	if len(l.Imported("efa")) == 0 {
		l.Skip("no EFA")
		return
	}
	at := l.Machine.Kernel.ReleasedAt()
	switch v := l.Machine.Kernel.Version; {
	case !v.Known():
		l.Unknown("", at, "the release %q is not understood", l.Machine.Kernel.Release)
	case v.Cmp(machine.V5_12) < 0:
		l.Warn("", at, "%s", l.Machine.Kernel.Release)
	default:
		libfabric(l, at)
	}
}

// libfabricFiles name the version of a libfabric, that of Amazon's installer first.
var libfabricFiles = []string{
	"opt/amazon/efa/lib64/pkgconfig/libfabric.pc", "opt/amazon/efa/lib/pkgconfig/libfabric.pc",
	"usr/lib64/pkgconfig/libfabric.pc", "usr/lib/pkgconfig/libfabric.pc", "usr/lib/x86_64-linux-gnu/pkgconfig/libfabric.pc", "usr/lib/aarch64-linux-gnu/pkgconfig/libfabric.pc",
}

// v1_20 is the first libfabric that aws-ofi-nccl takes for dma-bufs.
var v1_20 = machine.Version{Major: 1, Minor: 20}

// libfabric asks for its version, which only those know who installed its headers.
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

// perftestFlag chooses a GPU's memory.
var perftestFlag = map[string]string{"nvidia": "--use_cuda=%d --use_cuda_dmabuf", "amdgpu": "--use_rocm=%d --use_rocm_dmabuf"}

func perftest(l *check.Look) {
	seen := map[string]int{}
	index := map[string]int{}
	for _, g := range l.GPUs {
		index[g.Name] = seen[g.Exporter.Driver]
		seen[g.Exporter.Driver]++
	}
	var bad, open string
	for _, p := range l.Pairs {
		flag := perftestFlag[p.GPU.Exporter.Driver]
		switch {
		case flag == "" || p.NIC.Software:
		case p.Prediction.Outcome == chain.Direct:
			l.Pass(p.Name(), nil, "ib_write_bw -d %s "+flag, p.NIC.Name, index[p.GPU.Name])
			return
		case p.Prediction.Outcome == chain.OutcomeUnknown:
			open = p.Name()
		default:
			bad = cmp.Or(bad, p.Prediction.Outcome.String())
		}
	}
	switch {
	case open != "":
		l.Unknown("", nil, "no pair is known to be direct, %s for one", open)
	case bad != "":
		l.Warn("", nil, "no pair is direct: the first is %s", bad)
	default:
		l.Skip("no pair of a GPU that perftest knows")
	}
}

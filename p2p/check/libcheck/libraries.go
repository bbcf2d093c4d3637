// SPDX-License-Identifier: Apache-2.0

package libcheck

import (
	"cmp"
	"strings"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/variables"
	"github.com/gpurdma/gpurdma/placement"
)

// documented is the Ref of the checks of variables.
const documented = "p2p/variables: each variable has its source"

// Libraries has the checks of libraries.
var Libraries = []check.Check{
	{ID: "LIB-MOVENOTIFY", Title: "Libraries find the options that they look for", Worst: p2p.ResultWarn, Run: searched,
		Expect: machine.ConfigMoveNotify + "=y and " + machine.ConfigP2PDMA + "=y in /boot/config-RELEASE, or RCCL_FORCE_ENABLE_DMABUF=1", Why: "RCCL, UCX, libfabric and perftest look for these lines before they use dma-bufs on AMD GPUs; perftest, and older RCCL and UCX, in /boot/config-RELEASE alone. Linux 7.2 no longer has the option for moves, and so they do not find it.",
		Fix: chain.Remedy{Change: "use versions that probe, or force them", Command: "RCCL_FORCE_ENABLE_DMABUF=1"}, Ref: "rocmwrap.cc, rocm_base.c, hmem_rocr.c, rocm_memory.c; openucx/ucx#11540, linux-rdma/perftest#392",
		ByHand: "grep -E 'CONFIG_(DMABUF_MOVE_NOTIFY|PCI_P2PDMA)=y' /boot/config-$(uname -r)"},
	{ID: "LIB-NCCL-ENV", Title: "NCCL's variables fit the machine", Worst: p2p.ResultFail, Run: ncclEnvironment,
		Expect: "no variable that takes GPUDirect RDMA away; devices and GIDs that are there", Why: "A variable that was set long ago, or for another machine, may be wrong now.",
		Fix: chain.Remedy{Change: "take the variable away, or correct it"}, Ref: documented,
		ByHand: "env | grep -E '^(NCCL|HSA)_'"},
	{ID: "LIB-NCCL-LEVEL", Title: "NCCL uses GPUDirect for the nearest NIC", Worst: p2p.ResultWarn, Run: ncclLevel,
		Expect: "a NIC at PXB or nearer, a level that is set farther, or C2C to the NICs of a Grace CPU", Why: "NCCL leaves GPUDirect out beyond PXB, whatever kernel and hardware could do. On a GH200 the way to the CPU's NICs is C2C, which it uses by itself from 2.27 on.",
		Fix: chain.Remedy{Change: "let it go as far as the nearest NIC", Command: "NCCL_NET_GDR_LEVEL=LEVEL"}, Ref: "NVIDIA/nccl#1151, #1343, #1579",
		ByHand: "env | grep NCCL_NET_GDR\np2pcheck topo"},
	{ID: "LIB-UCX", Title: "UCX finds a way to GPU memory", Worst: p2p.ResultWarn, Run: ucx,
		Expect: "one of /" + strings.Join(ucxFiles, ", /"), Why: "UCX chooses by the presence of these files.",
		Fix: chain.Remedy{Change: "load the driver of the GPU; UCX knows those of NVIDIA and Habana, xe, and amdgpu with KFD"}, Ref: "UCX, src/uct/ib",
		ByHand: "ls /dev/kfd /dev/nvidiactl /sys/module/xe/srcversion /sys/module/nvidia_peermem/version /sys/kernel/mm/memory_peers/nv_mem/version"},
	{ID: "LIB-UCX-ENV", Title: "UCX's variables fit the machine", Worst: p2p.ResultFail, Run: variablesOf,
		Expect: "GPUDirect RDMA to each GPU's nearest NIC, with the ordering that the processor needs", Why: "UCX chooses between GPUDirect RDMA and staging by an estimate of the distance, and between strict and relaxed ordering by a list of processors; on a LAG one of its transports fails.",
		Fix: chain.Remedy{Change: "take the variable away, or correct it"}, Ref: documented,
		ByHand: "env | grep ^UCX_"},
	{ID: "LIB-FABRIC-ENV", Title: "libfabric's variables fit the machine", Worst: p2p.ResultFail, Run: variablesOf,
		Expect: "dma-bufs, and a provider for the NICs", Why: "A variable can keep libfabric, or NCCL's plugin for it, from dma-bufs, from a GPU's memory, or from the NICs.",
		Fix: chain.Remedy{Change: "take the variable away, or correct it"}, Ref: documented,
		ByHand: "env | grep -E '^(FI|OFI)_'"},
	{ID: "LIB-NIXL-ENV", Title: "NIXL's variables are known", Worst: p2p.ResultWarn, Run: variablesOf,
		Expect: "none that loads settings or backends from elsewhere", Why: "A file or a directory that a variable names decides which UCX and which libfabric carry the data, and with which settings.",
		Fix: chain.Remedy{Change: "correct the variable"}, Ref: documented,
		ByHand: "env | grep ^NIXL_"},
	{ID: "LIB-MOONCAKE-ENV", Title: "Mooncake's variables fit the machine", Worst: p2p.ResultFail, Run: variablesOf,
		Expect: "a registration that this machine has a route for", Why: "Mooncake registers by ibv_reg_mr() or by dma-buf as a variable says, and its default has changed.",
		Fix: chain.Remedy{Change: "take the variable away, or correct it"}, Ref: documented,
		ByHand: "env | grep -E '^(MC|MOONCAKE)_'"},
	{ID: "LIB-PYTORCH-ENV", Title: "PyTorch's memory can be registered", Worst: p2p.ResultWarn, Run: variablesOf,
		Expect: "no expandable segments, or dma-bufs", Why: "Memory in expandable segments comes from the virtual memory API: ibv_reg_mr() of it answers EFAULT.",
		Fix: chain.Remedy{Change: "take expandable_segments out of the variable"}, Ref: documented,
		ByHand: "env | grep ^PYTORCH_"},
	{ID: "LIB-NVSHMEM-ENV", Title: "NVSHMEM's variables fit the machine", Worst: p2p.ResultFail, Run: variablesOf,
		Expect: "devices that it finds, and a route for them", Why: "NVSHMEM looks for NICs by the beginning of their names, which udev changes, and can be kept from dma-bufs.",
		Fix: chain.Remedy{Change: "take the variable away, or correct it"}, Ref: documented,
		ByHand: "env | grep ^NVSHMEM_"},
	{ID: "LIB-MSCCLPP-ENV", Title: "MSCCL++'s variables fit the machine", Worst: p2p.ResultFail, Run: variablesOf,
		Expect: "a device for each GPU, and a GID at the index", Why: "MSCCL++ takes the i-th device for the i-th GPU, and the first GID where no index is set.",
		Fix: chain.Remedy{Change: "take the variable away, or correct it"}, Ref: documented,
		ByHand: "env | grep ^MSCCLPP_"},
	{ID: "LIB-AWS-OFI", Title: "aws-ofi-nccl uses dma-bufs", Worst: p2p.ResultWarn, Run: awsOFI,
		Expect: "5.12 or later, and libfabric 1.20 or later", Why: "It asks for a kernel of 5.12, libfabric of 1.20, and an EFA that it knows.",
		Fix: chain.Remedy{Change: "run a newer kernel, with a newer libfabric"}, Ref: "aws-ofi-nccl",
		ByHand: "uname -r\ngrep Version /opt/amazon/efa/lib*/pkgconfig/libfabric.pc"},
	{ID: "LIB-PERFTEST", Title: "perftest can measure a direct pair", Worst: p2p.ResultWarn, Run: perftest,
		Expect: "a pair that is direct", Why: "perftest is the tool that most people measure with. For a pair that is not direct it measures system memory.",
		Fix: chain.Remedy{Change: "see the pairs' reasons"}, Ref: "linux-rdma/perftest",
		ByHand: "p2pcheck why GPU NIC"},
}

// searched reports whether the libraries for AMD's GPUs find the options that they look for in the kernel's
// configuration.
func searched(l *check.Look) {
	if !check.OnAMD(l) {
		return
	}
	if l.Machine.Config == nil {
		l.Unknown("", nil, "%s", l.Machine.Kernel.Source)
		return
	}
	at := []string{l.Machine.Named(l.Machine.Kernel.Source)}
	place, boot := configPlace(l)
	if env := process(l); env.unread.Err == nil && env.vars[forceRCCL] == "1" && place != variables.ConfigBoot {
		l.Pass("", []string{env.unread.Where}, "%s=1 makes up for options that RCCL does not find", forceRCCL)
		return
	}
	switch place {
	case variables.ConfigBoot:
		l.Pass("", at, "%s=y and %s=y", machine.ConfigMoveNotify, machine.ConfigP2PDMA)
	case variables.ConfigOther:
		l.Warn("", append(at, boot), "the options are there, and not in %s, where perftest and older RCCL and UCX look", boot).
			Fix("copy the configuration there, or use newer UCX, RCCL and perftest", check.Copied(at[0])+boot, "")
	case variables.ConfigNowhere:
		l.Warn("", at, "no line %s=y", missingOption(l))
	default:
		l.Unknown("", append(at, boot), "whether %s has the options is not known", boot)
	}
}

// forceRCCL is the variable that makes RCCL use dma-bufs without a search for the options.
const forceRCCL = "RCCL_FORCE_ENABLE_DMABUF"

// missingOption returns the first of the two options that the configuration does not set.
func missingOption(l *check.Look) string {
	if l.Machine.Config[machine.ConfigMoveNotify] != "y" {
		return machine.ConfigMoveNotify
	}
	return machine.ConfigP2PDMA
}

// ucxFiles are the files by which UCX recognizes that a machine has GPUs.
var ucxFiles = []string{"dev/kfd", "sys/module/xe/srcversion", "dev/accel/accel0", "dev/hl0", "sys/kernel/mm/memory_peers/nv_mem/version", "sys/module/nvidia_peermem/version", "dev/nvidiactl"}

func ucx(l *check.Look) {
	if len(l.GPUs) == 0 {
		l.Skip("no GPU that has memory of its own")
		return
	}
	if len(l.Driven(drivers.VfioDrivers...)) == len(l.GPUs) {
		l.Skip("the GPUs are given to guests: UCX runs there")
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

// perftestFlag has the flags by which perftest uses a GPU's memory, by the GPU's driver.
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
		case p.Verdict.Outcome() == chain.Direct:
			l.Pass(p.Name(), nil, "ib_write_bw -d %s "+flag, p.NIC.Name, index[p.GPU.Name])
			return
		case p.Verdict.Outcome() == chain.OutcomeUnknown:
			open = p.Name()
		default:
			bad = cmp.Or(bad, p.Verdict.Outcome().String())
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

// SPDX-License-Identifier: Apache-2.0

package hostcheck

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// Kernel has the checks of the kernel.
var Kernel = []check.Check{
	{ID: "KRN-VERSION", Title: "The kernel is new enough", Worst: p2p.ResultFail, Run: kernelVersion, Links: []chain.Link{chain.Route, chain.Attach},
		Expect: "5.12 or later; 7.2 or later where a GPU that moves its buffers meets a NIC that pins",
		Why:    "The method that registers a dma-buf came with 5.12. Up to 6.12 amdgpu and xe pin in system memory, and report success.",
		Fix:    chain.Remedy{Change: "run a newer kernel"}, Ref: "drivers/infiniband/core/uverbs_std_types_mr.c; amdgpu_dma_buf.c, xe_dma_buf.c",
		ByHand: "uname -r"},
	{ID: "KRN-CONFIG-SRC", Title: "The kernel's configuration can be read", Worst: p2p.ResultWarn, Run: kernelConfiguration, Links: []chain.Link{chain.Route, chain.Attach, chain.Decision},
		Expect: "/proc/config.gz, or a file of the kernel's release in /boot, /lib/modules or /usr/src",
		Why:    "Without it the options are not known. RCCL, UCX, libfabric and perftest also read it before they use dma-bufs.",
		Fix:    chain.Remedy{Change: "mount the host's /boot read-only, or name the file", Command: "p2pcheck --config FILE"}, Ref: "ROCm/rccl#1825, siderolabs/pkgs#1488, openucx/ucx#11540, linux-rdma/perftest#392",
		ByHand: "ls /proc/config.gz /boot/config-$(uname -r) /lib/modules/$(uname -r)/config"},
	{ID: "KRN-CFG-P2PDMA", Title: "The kernel is built with peer-to-peer DMA", Worst: p2p.ResultFail, Run: configP2PDMA, Links: []chain.Link{chain.Decision},
		Expect: machine.ConfigP2PDMA + "=y",
		Why:    "Without it the kernel supports no pair: amdgpu and xe silently move the buffer to system memory, vfio-pci refuses. NVIDIA's driver does not ask.",
		Fix:    chain.Remedy{Change: "run a kernel that is built with it", Command: machine.ConfigP2PDMA + "=y"}, Ref: "include/linux/pci-p2pdma.h",
		ByHand: "grep CONFIG_PCI_P2PDMA /boot/config-$(uname -r)"},
	{ID: "KRN-CFG-MOVE-NOTIFY", Title: "A NIC that follows moves leaves the buffer where it is", Worst: p2p.ResultFail, Run: configMoveNotify, Links: []chain.Link{chain.Attach},
		Expect: machine.ConfigMoveNotify + "=y, or a kernel that has no such option any more",
		Why:    "Up to 6.12 the kernel pins for a dynamic importer without it, and amdgpu and xe pin in system memory.",
		Fix:    chain.Remedy{Change: "run a kernel that is built with it, or 7.2, which always does so", Command: machine.ConfigMoveNotify + "=y"}, Ref: "drivers/dma-buf/dma-buf.c",
		ByHand: "grep CONFIG_DMABUF_MOVE_NOTIFY /boot/config-$(uname -r)"},
	{ID: "KRN-CFG-UVERBS", Title: "Programs reach RDMA devices", Worst: p2p.ResultFail, Run: configUverbs, Links: []chain.Link{chain.Route},
		Expect: "ib_uverbs is loaded", Why: "Every registration goes through ib_uverbs.",
		Fix: chain.Remedy{Change: "load it", Command: "modprobe ib_uverbs"}, Ref: "drivers/infiniband/Kconfig",
		ByHand: "cat /sys/class/infiniband_verbs/abi_version"},
	{ID: "KRN-CFG-ODP", Title: "mlx5 can register dma-bufs", Worst: p2p.ResultFail, Run: configODP, Links: []chain.Link{chain.Route},
		Expect: "CONFIG_INFINIBAND_ON_DEMAND_PAGING=y", Why: "Without it mlx5 refuses every dma-buf with EOPNOTSUPP, before it looks at the buffer.",
		Fix: chain.Remedy{Change: "run a kernel that is built with it", Command: "CONFIG_INFINIBAND_ON_DEMAND_PAGING=y"}, Ref: "drivers/infiniband/hw/mlx5/mr.c",
		ByHand: "grep CONFIG_INFINIBAND_ON_DEMAND_PAGING /boot/config-$(uname -r)"},
	{ID: "KRN-CFG-HSA-P2P", Title: "AMD GPUs reach each other", Worst: p2p.ResultWarn, Run: configHSA,
		Expect: machine.ConfigHSAP2P + "=y", Why: "KFD shares no memory between GPUs over PCI without it. NICs do not need it.",
		Fix: chain.Remedy{Change: "run a kernel that is built with it", Command: machine.ConfigHSAP2P + "=y"}, Ref: "amdgpu_device_is_peer_accessible()",
		ByHand: "grep CONFIG_HSA_AMD_P2P /boot/config-$(uname -r)"},
	{ID: "KRN-CFG-VFIO-DMABUF", Title: "vfio-pci exports dma-bufs", Worst: p2p.ResultFail, Run: configVFIO, Links: []chain.Link{chain.Route},
		Expect: "CONFIG_VFIO_PCI_DMABUF=y", Why: "Without it vfio-pci has no dma-buf of a BAR to give.",
		Fix: chain.Remedy{Change: "run Linux 7.2 or later, built with it", Command: "CONFIG_VFIO_PCI_DMABUF=y"}, Ref: "drivers/vfio/pci/Kconfig",
		ByHand: "grep CONFIG_VFIO_PCI_DMABUF /boot/config-$(uname -r)"},
	{ID: "KRN-CFG-DMABUF", Title: "The kernel has dma-bufs", Worst: p2p.ResultFail, Run: configDMABuf, Links: []chain.Link{chain.Route},
		Expect: machine.ConfigDMABuf + "=y and " + syncFile + "=y", Why: "No driver exports memory without CONFIG_DMA_SHARED_BUFFER; NVIDIA's driver is then built without its exporter. DRM, which the kernel's own drivers of GPUs need, turns CONFIG_SYNC_FILE on.",
		Fix: chain.Remedy{Change: "run a kernel that is built with them"}, Ref: "nv-dmabuf.c",
		ByHand: "grep -E 'CONFIG_(DMA_SHARED_BUFFER|SYNC_FILE)=' /boot/config-$(uname -r)"},
	{ID: "KRN-BTF", Title: "Tracing finds the kernel's structures", Worst: p2p.ResultWarn, Run: btf, Links: []chain.Link{chain.Proof},
		Expect: "/sys/kernel/btf/vmlinux", Why: "dmabuf-reg --trace reads the kernel's structures to prove where bytes are, and BTF has their layout.",
		Fix: chain.Remedy{Change: "run a kernel that is built with it", Command: "CONFIG_DEBUG_INFO_BTF=y"}, Ref: "Documentation/bpf/btf.rst",
		ByHand: "ls /sys/kernel/btf/vmlinux"},
	{ID: "KRN-TRACEPOINTS", Title: "The kernel has trace events of dma-bufs", Worst: p2p.ResultWarn, Run: tracepoints, Links: []chain.Link{chain.Proof},
		Expect: "events of dma_buf", Why: "Without these events (6.1 and 6.12 have none) tracing attaches to functions of the kernel instead.",
		Ref:    "include/trace/events/dma_buf.h",
		ByHand: "sudo ls -d /sys/kernel/tracing/events/dma_buf"},
	{ID: "KRN-LOCKDOWN", Title: "Registers of devices can be changed", Worst: p2p.ResultWarn, Run: lockdown,
		Expect: "[none]", Why: "Under lockdown, which Secure Boot turns on, setpci and mappings of BARs are refused. Reading is not.",
		Fix: chain.Remedy{Change: "change ACS by parameters of the kernel, never by setpci"}, Ref: "kernel_lockdown(7); nvtrust#48",
		ByHand: "sudo cat /sys/kernel/security/lockdown"},
	{ID: "KRN-CMDLINE", Title: "No parameter of the kernel is in the way", Worst: p2p.ResultWarn, Run: commandLine, Links: []chain.Link{chain.Fabric},
		Expect: "none of pci=noats, pci=nommconf, pcie_acs_override=", Why: "noats turns translation by devices off, nommconf hides ACS from the kernel, and pcie_acs_override makes the kernel split IOMMU groups that the hardware does not isolate.",
		Fix: chain.Remedy{Change: "take the parameter away"}, Ref: "Documentation/admin-guide/kernel-parameters.txt",
		ByHand: "cat /proc/cmdline"},
	{ID: "KRN-KMSG", Title: "The kernel's log has no complaint of peer-to-peer", Worst: p2p.ResultFail, Run: complaints, Links: []chain.Link{chain.Log},
		Expect: "no line on refused peer-to-peer traffic", Why: "The kernel logs a pair that it refuses, once, with the addresses. For amdgpu and xe it logs nothing: a log without such a line proves nothing.",
		Fix: chain.Remedy{Change: "see what the line says"}, Ref: "drivers/pci/p2pdma.c, nv-dmabuf.c",
		ByHand: "sudo dmesg | grep -E 'peer-to-peer|P2P|ACS redirect|NVRM'"},
	{ID: "KRN-NUMA-BAL", Title: "The kernel does not move pages between nodes", Worst: p2p.ResultWarn, Run: numaBalancing,
		Expect: "0", Why: "Automatic NUMA balancing unmaps pages to find the node that uses them: latencies of GPU programs suffer. AMD advises against it.",
		Fix: chain.Remedy{Change: "turn it off", Command: "sysctl kernel.numa_balancing=0"}, Ref: "RCCL's warning at start",
		ByHand: "cat /proc/sys/kernel/numa_balancing"},
}

func kernelVersion(l *check.Look) {
	k := l.Machine.Kernel
	at := k.ReleasedAt()
	v := k.Version
	switch {
	case !v.Known():
		l.Unknown("", at, "%s", k.Unversioned())
	case v.Cmp(machine.V5_12) < 0 && k.Backports():
		l.Unknown("", at, "%s, which may take much from later kernels", k.Release)
	case v.Cmp(machine.V5_12) < 0 && !drivers.RegistersNone(l.Machine):
		l.Unknown("", at, "%s, and an ib_uverbs that is not the kernel's own: whether that registers dma-bufs is not known", k.Release)
	case v.Cmp(machine.V5_12) < 0:
		l.Fail("", at, "%s: a registration of a dma-buf is refused with EPROTONOSUPPORT", k.Release)
	case k.UnreadYet() && movable(l, drivers.Pinned, drivers.Revocable, drivers.KindUnknown):
		l.Unknown("", at, "%s is later than %v, the newest that was read: where amdgpu and xe pin is not known", k.Release, machine.Newest)
	case k.Between(machine.V6_12, machine.V7_2) != placement.Yes && movable(l, drivers.Pinned, drivers.Revocable):
		l.Warn("", at, "%s: amdgpu and xe of the kernel's own may pin in system memory", k.Release)
	case k.Between(machine.V6_12, machine.V7_2) != placement.Yes && movable(l, drivers.KindUnknown):
		l.Unknown("", at, "%s: amdgpu and xe of the kernel's own may pin in system memory, if the NIC pins", k.Release)
	default:
		l.Pass("", at, "%s", k.Release)
	}
}

// movable reports whether there is a pair of a GPU whose driver moves buffers and a NIC of one of the kinds.
func movable(l *check.Look, kinds ...drivers.Kind) bool {
	return slices.ContainsFunc(l.Pairs, func(p p2p.Pair) bool {
		class := p.GPU.Exporter.Class
		return (class == drivers.ClassAMDGPU || class == drivers.ClassXe) && slices.Contains(kinds, p.NIC.Importer.Kind)
	})
}

func kernelConfiguration(l *check.Look) {
	if l.Machine.Config == nil {
		f := l.Unknown("", nil, "%s", l.Machine.Kernel.Source)
		if l.Machine.Kernel.Denied {
			f.AsRoot(l.Machine)
		}
		return
	}
	at := []string{l.Machine.Named(l.Machine.Kernel.Source)}
	options := len(l.Machine.Config)
	there, where := l.There("boot/config-" + l.Machine.Kernel.Release)
	switch {
	case len(l.Driven("amdgpu")) == 0 || there == placement.Yes:
		l.Pass("", at, "%d of the options that p2pcheck reads", options)
	case there == placement.AnswerUnknown:
		l.Unknown("", append(at, where...), "%d of the options that p2pcheck reads, and whether there is a %s, where perftest looks, is not known", options, where[0])
	default:
		l.Warn("", append(at, where...), "%d of the options that p2pcheck reads, and there is no %s: perftest, and older UCX and RCCL, look nowhere else, and then export no dma-bufs of AMD GPUs", options, where[0]).
			Fix("copy the configuration there, or use newer UCX, RCCL and perftest", check.Copied(at[0])+where[0], "")
	}
}

// asks reports whether the driver of some GPU asks for the kernel's decision, or may ask.
func asks(l *check.Look) bool {
	return slices.ContainsFunc(l.GPUs, func(g drivers.GPU) bool {
		return g.Exporter.Class != drivers.ClassNVIDIA && g.Exporter.Class != drivers.ClassNVIDIACoherent
	})
}

// configP2PDMA fails if a GPU's driver asks for the kernel's decision: without the option the kernel supports
// no pair.
func configP2PDMA(l *check.Look) {
	at := []string{l.Machine.Named(l.Machine.Kernel.Source)}
	switch l.Machine.Kernel.P2PDMA {
	case placement.Yes:
		l.Pass("", at, "%s=y", machine.ConfigP2PDMA)
	case placement.No:
		switch {
		case len(l.GPUs) > 0 && !asks(l):
			l.Pass("", at, "%s is not set; NVIDIA's driver does not ask, and mlx5 registers its dma-bufs without it", machine.ConfigP2PDMA).Expect = ""
		case check.AllDirect(l.Pairs):
			l.Warn("", at, "%s is not set; all pairs do without the kernel's decision", machine.ConfigP2PDMA)
		default:
			l.Fail("", at, "%s is not set", machine.ConfigP2PDMA)
		}
	default:
		l.Unknown("", nil, "%s", l.Machine.Kernel.Source)
	}
}

func configMoveNotify(l *check.Look) {
	k, at := l.Machine.Kernel, []string{l.Machine.Named(l.Machine.Kernel.Source)}
	moves := l.Driven("amdgpu", "xe", "softgpu")
	if len(moves) == 0 {
		l.Skip("no GPU here moves its buffers")
		return
	}
	switch {
	case k.MoveNotify == placement.Yes:
		l.Pass("", at, "a dynamic importer does not pin")
	case k.MoveNotify == placement.No && movable(l, drivers.Dynamic):
		// For xe as for amdgpu: xe_dma_buf_pin() goes to system memory up to 6.12.
		l.Fail("", at, "%s is not set", machine.ConfigMoveNotify)
	case !movable(l, drivers.Dynamic, drivers.KindUnknown): // an importer that pins does not use the option
		l.Skip("no NIC here follows moves")
	case k.MoveNotify == placement.No:
		l.Unknown("", at, "%s is not set, and whether a NIC here follows moves is not known", machine.ConfigMoveNotify)
	default:
		l.Unknown("", nil, "%s", k.Source)
	}
}

func configUverbs(l *check.Look) {
	abi := l.Read("sys/class/infiniband_verbs/abi_version")
	served := slices.ContainsFunc(l.Subject.NICs, func(n drivers.NIC) bool { return n.Uverbs != "" })
	switch n, ok := abi.Number(); {
	case ok:
		l.Pass("", abi.At(), "loaded, with ABI %d", n)
	case abi.Gone() && served:
		l.Unknown("", abi.At(), "it serves a NIC, and has no version")
	case abi.Gone():
		if value, where := l.Option("CONFIG_INFINIBAND_USER_ACCESS"); value == "n" {
			l.Fail("", where, "CONFIG_INFINIBAND_USER_ACCESS is not set").Fix("run a kernel that is built with it", "CONFIG_INFINIBAND_USER_ACCESS=m", "")
			return
		}
		l.Fail("", abi.At(), "not loaded")
	case abi.Err == nil:
		l.Unknown("", abi.At(), "%q is not a number", abi.Text)
	default:
		l.Unread("", abi)
	}
}

func configODP(l *check.Look) {
	nics := l.Imported("mlx5_core")
	if len(nics) == 0 {
		l.Skip("no NIC of mlx5")
		return
	}
	if l.Machine.OutOfTree("mlx5_ib") != placement.No {
		l.Unknown("", []string{"/sys/module/mlx5_ib/taint"}, "mlx5_ib may not be the kernel's own; one from elsewhere is built in its own way")
		return
	}
	needs(l, machine.ConfigODP)
}

// needs passes if an option of the kernel's configuration is set. If it is not set, the finding has the check's
// worst result.
func needs(l *check.Look, option string) {
	switch value, where := l.Option(option); value {
	case "":
		l.Unknown("", nil, "whether %s is set is not known: %s", option, l.Machine.Kernel.Source)
	case "n":
		l.Say(l.Check.Worst, "", where, "%s is not set", option)
	default:
		l.Pass("", where, "%s=y", option)
	}
}

func configHSA(l *check.Look) {
	if len(l.Driven("amdgpu")) < 2 {
		l.Skip("not two GPUs of amdgpu")
		return
	}
	needs(l, machine.ConfigHSAP2P)
}

func configVFIO(l *check.Look) {
	if len(l.Driven(drivers.VfioDrivers...)) == 0 {
		l.Skip("no GPU of vfio-pci")
		return
	}
	if guests := p2p.GuestNICs(l.Machine); len(l.Subject.NICs) == 0 && len(guests) > 0 {
		l.Skip("the host has no RDMA device that could import the GPU's memory: its NICs are given to guests, as the GPU is")
		return
	}
	needs(l, "CONFIG_VFIO_PCI_DMABUF")
}

// syncFile is the option for sync files. DRM selects it, so that each kernel with drivers of GPUs has it.
const syncFile = "CONFIG_SYNC_FILE"

func configDMABuf(l *check.Look) {
	needs(l, machine.ConfigDMABuf)
	if value, where := l.Option(syncFile); value == "n" && l.Found[0].Result == p2p.ResultPass {
		l.Found = nil
		l.Warn("", where, "%s=y, and %s is not set: the kernel's own drivers of GPUs are not built then", machine.ConfigDMABuf, syncFile)
	}
}

func btf(l *check.Look) {
	switch there, where := l.There("sys/kernel/btf/vmlinux"); there {
	case placement.Yes:
		l.Pass("", where, "there")
	case placement.No:
		l.Warn("", where, "not there")
	default:
		l.Unknown("", where, "not known")
	}
}

func tracepoints(l *check.Look) {
	events, r := l.List("sys/kernel/tracing/events")
	if r.Err != nil || len(events) == 0 {
		events, r = l.List("sys/kernel/debug/tracing/events")
	}
	switch {
	case r.Err != nil && !r.Gone():
		l.Unread("", machine.Reading{Where: "/sys/kernel/tracing/events", Err: r.Err})
	case len(events) == 0:
		l.Unknown("", []string{"/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"}, "no events at all: tracefs is not mounted, or this program does not see it")
	case slices.Contains(events, "dma_buf"):
		l.Pass("", r.At(), "dma_buf has events")
	default:
		l.Warn("", r.At(), "dma_buf has no events: functions are traced instead")
	}
}

func lockdown(l *check.Look) {
	mode, r := check.LockdownMode(l)
	if r.Gone() {
		if names, _ := l.List("sys/kernel/security"); len(names) > 0 {
			l.Pass("", r.At(), "the kernel has no lockdown").Expect = ""
			return
		}
		r.Err = machine.ErrNotCopied // securityfs is not mounted
	}
	switch {
	case r.Err != nil:
		l.Unread("", r)
	case mode == "":
		l.Unknown("", r.At(), "%q is not understood", r.Text)
	case mode == "none":
		l.Pass("", r.At(), "%s", r.Text)
	default:
		l.Warn("", r.At(), "locked down: %s", mode)
	}
}

// parameters are the parameters on the kernel's command line that concern peer-to-peer.
var parameters = []string{"iommu", "iommu.passthrough", "intel_iommu", "amd_iommu", "pci", "pcie_acs_override", "numa_balancing", "pcie_ports", "pcie_aspm", "i915.force_probe", "xe.force_probe"}

// Parameter reports whether a word of the kernel's command line concerns
// peer-to-peer.
func Parameter(word string) bool {
	key, _, _ := strings.Cut(word, "=")
	return slices.Contains(parameters, key)
}

func commandLine(l *check.Look) {
	r := l.Read("proc/cmdline")
	if r.Err == nil && (strings.ContainsFunc(r.Text, unicode.IsControl) || !utf8.ValidString(r.Text)) {
		r.Err = fmt.Errorf("%q is no command line", r.Text)
	}
	if r.Err != nil {
		l.Unread("", r)
		return
	}
	var set, bad []string
	for _, word := range strings.Fields(r.Text) {
		key, value, _ := strings.Cut(word, "=")
		if Parameter(word) {
			set = append(set, word)
		}
		for _, option := range strings.Split(value, ",") {
			if key == "pci" && (option == "noats" || option == "nommconf") {
				bad = append(bad, "pci="+option)
			}
		}
		if key == "pcie_acs_override" {
			bad = append(bad, word)
		}
	}
	switch {
	case len(bad) > 0:
		l.Warn("", r.At(), "%s", strings.Join(bad, " "))
	case len(set) > 0:
		l.Pass("", r.At(), "%s", strings.Join(set, " "))
	default:
		l.Pass("", r.At(), "no parameter that concerns peer-to-peer")
	}
}

func numaBalancing(l *check.Look) {
	r := l.Read("proc/sys/kernel/numa_balancing")
	n, ok := r.Number()
	switch {
	case r.Gone():
		l.Pass("", r.At(), "the kernel has no NUMA balancing").Expect = ""
	case r.Err != nil:
		l.Unread("", r)
	case !ok:
		l.Unknown("", r.At(), "%q is not a number", r.Text)
	case n > 0:
		l.Warn("", r.At(), "%d", n)
	default:
		l.Pass("", r.At(), "0")
	}
}

func complaints(l *check.Look) {
	log := l.Log()
	if log.Err != nil {
		check.UnreadLog(l, log)
		return
	}
	hits := check.LogLines(l, log, "KRN-KMSG")
	if len(hits) == 0 {
		l.Quiet(log, "no such line")
	}
	for _, h := range hits {
		result, means := h.Pattern.Result, h.Pattern.Means
		against := check.Select(l.Pairs, func(p p2p.Pair) bool { return check.Contrary(p) == h.Line })
		if result == p2p.ResultFail && len(l.Pairs) > 0 && len(against) == 0 {
			result, means = p2p.ResultWarn, means+"; it contradicts no pair here"
		}
		f := l.Say(result, "", log.At(), "%s (%s)", h.Line, means)
		// The kernel's proposal is for one pair, and leaves out the ports that are on its command line already.
		list, ok := strings.CutPrefix(h.Pattern.Command(h.Line), p2p.OpenParameter)
		if ports := strings.FieldsFunc(list, func(c rune) bool { return c == ';' }); ok && len(ports) > 0 {
			f.Remedy = check.OpeningOf(l, ports)
		}
	}
}

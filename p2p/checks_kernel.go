// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gpurdma/gpurdma/placement"
)

var kernelChecks = []Check{
	{ID: "KRN-VERSION", Title: "The kernel is new enough", Worst: ResultFail, run: (*look).kernelVersion,
		Expect: "5.12 or later; 7.2 or later where a GPU that moves its buffers meets a NIC that pins",
		Why:    "The method that registers a dma-buf came with 5.12. Up to 6.12 amdgpu and xe pin in system memory, and report success.",
		Fix:    Remedy{Change: "run a newer kernel"}, Ref: "drivers/infiniband/core/uverbs_std_types_mr.c; amdgpu_dma_buf.c, xe_dma_buf.c"},
	{ID: "KRN-CONFIG-SRC", Title: "The kernel's configuration can be read", Worst: ResultWarn, run: (*look).kernelConfiguration,
		Expect: "/proc/config.gz, or a file of the kernel's release in /boot, /lib/modules or /usr/src",
		Why:    "Without it the options are not known; and RCCL, UCX, libfabric and perftest look for it themselves before they use dma-bufs.",
		Fix:    Remedy{Change: "mount the host's /boot read-only, or name the file", Command: "p2pcheck --config FILE"}, Ref: "ROCm/rccl#1825, siderolabs/pkgs#1488"},
	{ID: "KRN-CFG-P2PDMA", Title: "The kernel is built with peer-to-peer DMA", Worst: ResultFail, run: (*look).configP2PDMA,
		Expect: configP2PDMA + "=y",
		Why:    "Without it the kernel supports no pair: amdgpu and xe silently move the buffer to system memory, vfio-pci refuses. NVIDIA's driver does not ask.",
		Fix:    Remedy{Change: "run a kernel that is built with it", Command: configP2PDMA + "=y"}, Ref: "include/linux/pci-p2pdma.h"},
	{ID: "KRN-CFG-MOVE-NOTIFY", Title: "A NIC that follows moves leaves the buffer where it is", Worst: ResultFail, run: (*look).configMoveNotify,
		Expect: configMoveNotify + "=y, or a kernel that has no such option any more",
		Why:    "Up to 6.12 the kernel pins for a dynamic importer without it, and amdgpu and xe pin in system memory.",
		Fix:    Remedy{Change: "run a kernel that is built with it, or 7.2, which always does so", Command: configMoveNotify + "=y"}, Ref: "drivers/dma-buf/dma-buf.c"},
	{ID: "KRN-CFG-UVERBS", Title: "Programs reach RDMA devices", Worst: ResultFail, run: (*look).configUverbs,
		Expect: "ib_uverbs is loaded", Why: "Every registration goes through ib_uverbs.",
		Fix: Remedy{Change: "load it", Command: "modprobe ib_uverbs"}, Ref: "drivers/infiniband/Kconfig"},
	{ID: "KRN-CFG-ODP", Title: "mlx5 can register dma-bufs", Worst: ResultFail, run: (*look).configODP,
		Expect: "CONFIG_INFINIBAND_ON_DEMAND_PAGING=y", Why: "Without it mlx5 refuses every dma-buf with EOPNOTSUPP, before it looks at it.",
		Fix: Remedy{Change: "run a kernel that is built with it", Command: "CONFIG_INFINIBAND_ON_DEMAND_PAGING=y"}, Ref: "drivers/infiniband/hw/mlx5/mr.c"},
	{ID: "KRN-CFG-HSA-P2P", Title: "AMD GPUs reach each other", Worst: ResultWarn, run: (*look).configHSA,
		Expect: configHSAP2P + "=y", Why: "KFD shares no memory between GPUs over PCI without it. NICs do not need it.",
		Fix: Remedy{Change: "run a kernel that is built with it", Command: configHSAP2P + "=y"}, Ref: "amdgpu_device_is_peer_accessible()"},
	{ID: "KRN-CFG-VFIO-DMABUF", Title: "vfio-pci exports dma-bufs", Worst: ResultFail, run: (*look).configVFIO,
		Expect: "CONFIG_VFIO_PCI_DMABUF=y", Why: "Without it vfio-pci has no dma-buf of a BAR to give.",
		Fix: Remedy{Change: "run Linux 7.2 or later, built with it", Command: "CONFIG_VFIO_PCI_DMABUF=y"}, Ref: "drivers/vfio/pci/Kconfig"},
	{ID: "KRN-CFG-DMABUF", Title: "The kernel has dma-bufs", Worst: ResultFail, run: (*look).configDMABuf,
		Expect: configDMABuf + "=y and CONFIG_SYNC_FILE=y", Why: "No driver exports memory without them; NVIDIA's leaves its exporter out of the build.",
		Fix: Remedy{Change: "run a kernel that is built with them"}, Ref: "nv-dmabuf.c"},
	{ID: "KRN-BTF", Title: "Tracing finds the kernel's structures", Worst: ResultWarn, run: (*look).btf,
		Expect: "/sys/kernel/btf/vmlinux", Why: "dmabuf-reg --trace proves where bytes are by reading the kernel's structures, whose layout is there.",
		Fix: Remedy{Change: "run a kernel that is built with it", Command: "CONFIG_DEBUG_INFO_BTF=y"}, Ref: "Documentation/bpf/btf.rst"},
	{ID: "KRN-TRACEPOINTS", Title: "The kernel tells what happens to dma-bufs", Worst: ResultWarn, run: (*look).tracepoints,
		Expect: "events of dma_buf", Why: "Without these events (6.1 and 6.12 have none) tracing attaches to functions of the kernel instead.",
		Ref: "include/trace/events/dma_buf.h"},
	{ID: "KRN-LOCKDOWN", Title: "Registers of devices can be changed", Worst: ResultWarn, run: (*look).lockdown,
		Expect: "[none]", Why: "Under lockdown, which Secure Boot turns on, setpci and mappings of BARs are refused. Reading is not.",
		Fix: Remedy{Change: "change ACS by parameters of the kernel, never by setpci"}, Ref: "kernel_lockdown(7); nvtrust#48"},
	{ID: "KRN-CMDLINE", Title: "No parameter of the kernel is in the way", Worst: ResultWarn, run: (*look).commandLine,
		Expect: "none of pci=noats, pci=nommconf, pcie_acs_override=", Why: "noats turns translation by devices off, nommconf hides ACS from the kernel, and the override makes IOMMU groups promise what the hardware does not keep.",
		Fix: Remedy{Change: "take the parameter away"}, Ref: "Documentation/admin-guide/kernel-parameters.txt"},
	{ID: "KRN-KMSG", Title: "The kernel's log has no complaint of peer-to-peer", Worst: ResultFail, run: (*look).complaints,
		Expect: "no line on refused peer-to-peer traffic", Why: "What was refused is logged once, with the addresses. amdgpu and xe ask silently: no line proves nothing.",
		Fix: Remedy{Change: "see what the line says"}, Ref: "drivers/pci/p2pdma.c, nv-dmabuf.c"},
	{ID: "KRN-NUMA-BAL", Title: "The kernel does not move pages between nodes", Worst: ResultWarn, run: (*look).numaBalancing,
		Expect: "0", Why: "Automatic NUMA balancing unmaps pages to see who uses them: latencies of GPU programs suffer. AMD advises against it.",
		Fix: Remedy{Change: "turn it off", Command: "sysctl kernel.numa_balancing=0"}, Ref: "RCCL's warning at start"},
}

// v5_12 has the method that registers a dma-buf.
var v5_12 = version{5, 12}

const osrelease = "/proc/sys/kernel/osrelease"

// releasedAt is where the release was read; nowhere if it was given.
func (k Kernel) releasedAt() []string {
	if k.other != "" {
		return nil
	}
	return []string{osrelease}
}

func (l *look) kernelVersion() {
	k := l.m.Kernel
	at := k.releasedAt()
	v := k.version
	switch {
	case !v.known():
		l.unknown("", at, "the release %q is not understood", k.Release)
	case v.cmp(v5_12) < 0 && k.backports():
		l.unknown("", at, "%s, which may take much from later kernels", k.Release)
	case v.cmp(v5_12) < 0 && !l.m.registersNone():
		l.unknown("", at, "%s, and an ib_uverbs that is not the kernel's own: whether that registers dma-bufs is not known", k.Release)
	case v.cmp(v5_12) < 0:
		l.fail("", at, "%s: a registration of a dma-buf is refused with EPROTONOSUPPORT", k.Release)
	case k.unreadYet() && l.movable(Pinned, Revocable, KindUnknown):
		l.unknown("", at, "%s is later than %v, the newest that was read: where amdgpu and xe pin is not known", k.Release, newest)
	case k.between(v6_12, v7_2) != placement.Yes && l.movable(Pinned, Revocable):
		l.warn("", at, "%s: amdgpu and xe of the kernel's own may pin in system memory", k.Release)
	case k.between(v6_12, v7_2) != placement.Yes && l.movable(KindUnknown):
		l.unknown("", at, "%s: amdgpu and xe of the kernel's own may pin in system memory, if the NIC pins", k.Release)
	default:
		l.pass("", at, "%s", k.Release)
	}
}

// movable reports a GPU that moves its buffers, and a NIC of one of the kinds.
func (l *look) movable(kinds ...Kind) bool {
	return slices.ContainsFunc(l.pairs, func(p Pair) bool {
		class := p.GPU.Exporter.Class
		return (class == ClassAMDGPU || class == ClassXe) && slices.Contains(kinds, p.NIC.Importer.Kind)
	})
}

func (l *look) kernelConfiguration() {
	if l.m.config == nil {
		f := l.unknown("", nil, "%s", l.m.Kernel.Source)
		if l.m.Kernel.denied {
			f.asRoot(l.m)
		}
		return
	}
	at := []string{l.m.named(l.m.Kernel.Source)}
	there, where := l.there("boot/config-" + l.m.Kernel.Release)
	switch {
	case len(l.driven("amdgpu")) == 0 || there == placement.Yes:
		l.pass("", at, "%d options", len(l.m.config))
	case there == placement.AnswerUnknown:
		l.unknown("", append(at, where...), "%d options, and whether there is a %s, where perftest looks, is not known", len(l.m.config), where[0])
	default:
		l.warn("", append(at, where...), "%d options, and there is no %s: perftest looks nowhere else, and then exports no dma-bufs of AMD GPUs", len(l.m.config), where[0]).
			fix("copy the configuration there", copied(at[0])+where[0], "")
	}
}

// copied is how a shell copies a configuration, before where it goes. The kernel's own
// is compressed.
func copied(source string) string {
	if strings.HasSuffix(source, ".gz") {
		return "zcat " + source + " > "
	}
	return "cp " + source + " "
}

// asks reports a GPU whose driver goes by the kernel's decision, or may.
func (l *look) asks() bool {
	return slices.ContainsFunc(l.gpus, func(g GPU) bool {
		return g.Exporter.Class != ClassNVIDIA && g.Exporter.Class != ClassNVIDIACoherent
	})
}

func (l *look) configP2PDMA() {
	at := []string{l.m.named(l.m.Kernel.Source)}
	switch l.m.Kernel.P2PDMA {
	case placement.Yes:
		l.pass("", at, "%s=y", configP2PDMA)
	case placement.No:
		if len(l.gpus) > 0 && !l.asks() {
			l.pass("", at, "%s is not set; NVIDIA's driver does not ask", configP2PDMA).Expect = ""
			return
		}
		l.fail("", at, "%s is not set", configP2PDMA)
	default:
		l.unknown("", nil, "%s", l.m.Kernel.Source)
	}
}

func (l *look) configMoveNotify() {
	k, at := l.m.Kernel, []string{l.m.named(l.m.Kernel.Source)}
	moves := l.driven("amdgpu", "xe", "softgpu")
	if len(moves) == 0 {
		l.skip("no GPU here moves its buffers")
		return
	}
	switch {
	case k.MoveNotify == placement.Yes:
		l.pass("", at, "a dynamic importer does not pin")
	case k.MoveNotify == placement.No && l.movable(Dynamic):
		// For xe as for amdgpu: xe_dma_buf_pin() goes to system memory up to 6.12.
		l.fail("", at, "%s is not set", configMoveNotify)
	case !l.movable(Dynamic, KindUnknown): // who pins anyhow has no use for it
		l.skip("no NIC here follows moves")
	case k.MoveNotify == placement.No:
		l.unknown("", at, "%s is not set, and whether a NIC here follows moves is not known", configMoveNotify)
	default:
		l.unknown("", nil, "%s", k.Source)
	}
}

func (l *look) configUverbs() {
	abi := l.read("sys/class/infiniband_verbs/abi_version")
	switch n, ok := abi.number(); {
	case ok:
		l.pass("", abi.at(), "loaded, with ABI %d", n)
	case abi.gone():
		if value, where := l.option("CONFIG_INFINIBAND_USER_ACCESS"); value == "n" {
			l.fail("", where, "CONFIG_INFINIBAND_USER_ACCESS is not set").fix("run a kernel that is built with it", "CONFIG_INFINIBAND_USER_ACCESS=m", "")
			return
		}
		l.fail("", abi.at(), "not loaded")
	case abi.err == nil:
		l.unknown("", abi.at(), "%q is not a number", abi.text)
	default:
		l.unread("", abi)
	}
}

func (l *look) configODP() {
	nics := l.imported("mlx5_core")
	if len(nics) == 0 {
		l.skip("no NIC of mlx5")
		return
	}
	if l.m.outOfTree("mlx5_ib") != placement.No {
		l.unknown("", []string{"/sys/module/mlx5_ib/taint"}, "mlx5_ib may be another than the kernel's own, which is built in its own way")
		return
	}
	l.needs(configODP)
}

// needs fails if one of the options is not set.
func (l *look) needs(options ...string) {
	for _, option := range options {
		switch value, where := l.option(option); value {
		case "":
			l.unknown("", nil, "%s does not tell of %s", l.m.Kernel.Source, option)
			return
		case "n":
			l.say(l.check.Worst, "", where, "%s is not set", option)
			return
		}
	}
	_, where := l.option(options[0])
	l.pass("", where, "%s=y", strings.Join(options, "=y, "))
}

func (l *look) configHSA() {
	if len(l.driven("amdgpu")) < 2 {
		l.skip("not two GPUs of amdgpu")
		return
	}
	l.needs(configHSAP2P)
}

func (l *look) configVFIO() {
	if len(l.driven(vfioDrivers...)) == 0 {
		l.skip("no GPU of vfio-pci")
		return
	}
	l.needs("CONFIG_VFIO_PCI_DMABUF")
}

func (l *look) configDMABuf() { l.needs(configDMABuf, "CONFIG_SYNC_FILE") }

func (l *look) btf() {
	switch there, where := l.there("sys/kernel/btf/vmlinux"); there {
	case placement.Yes:
		l.pass("", where, "there")
	case placement.No:
		l.warn("", where, "not there")
	default:
		l.unknown("", where, "not known")
	}
}

func (l *look) tracepoints() {
	events, r := l.list("sys/kernel/tracing/events")
	if r.err != nil || len(events) == 0 {
		events, r = l.list("sys/kernel/debug/tracing/events")
	}
	switch {
	case r.err != nil && !r.gone():
		l.unread("", reading{where: "/sys/kernel/tracing/events", err: r.err})
	case len(events) == 0:
		l.unknown("", []string{"/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"}, "no events at all: tracefs is not mounted, or this program does not see it")
	case slices.Contains(events, "dma_buf"):
		l.pass("", r.at(), "dma_buf has events")
	default:
		l.warn("", r.at(), "dma_buf has no events: functions are traced instead")
	}
}

// lockdownMode is the mode that the kernel is in; "" if that is not understood.
func (l *look) lockdownMode() (string, reading) {
	r := l.read("sys/kernel/security/lockdown")
	_, rest, _ := strings.Cut(r.text, "[")
	mode, _, ok := strings.Cut(rest, "]")
	if !ok {
		mode = ""
	}
	return mode, r
}

// lockedDown reports a kernel that is known to refuse what setpci does.
func (l *look) lockedDown() bool {
	mode, r := l.lockdownMode()
	return r.err == nil && mode != "" && mode != "none"
}

// unlocked is a remedy by a command that changes a device's registers. Under lockdown,
// which refuses that, it is instead, without the command.
func (l *look) unlocked(f *Finding, change, command, weakens, instead string) {
	if l.lockedDown() {
		change, command = instead+": the kernel is locked down, and refuses "+strings.Fields(command)[0], ""
	}
	f.fix(change, command, weakens)
}

func (l *look) lockdown() {
	mode, r := l.lockdownMode()
	if r.gone() {
		if names, _ := l.list("sys/kernel/security"); len(names) > 0 {
			l.pass("", r.at(), "the kernel has no lockdown").Expect = ""
			return
		}
		r.err = errNotCopied // securityfs is not mounted
	}
	switch {
	case r.err != nil:
		l.unread("", r)
	case mode == "":
		l.unknown("", r.at(), "%q is not understood", r.text)
	case mode == "none":
		l.pass("", r.at(), "%s", r.text)
	default:
		l.warn("", r.at(), "locked down: %s", mode)
	}
}

// parameters are those of the command line that concern peer-to-peer.
var parameters = []string{"iommu", "iommu.passthrough", "intel_iommu", "amd_iommu", "pci", "pcie_acs_override", "numa_balancing", "pcie_ports", "pcie_aspm", "i915.force_probe", "xe.force_probe"}

// Parameter reports a word of the kernel's command line that concerns
// peer-to-peer.
func Parameter(word string) bool {
	key, _, _ := strings.Cut(word, "=")
	return slices.Contains(parameters, key)
}

func (l *look) commandLine() {
	r := l.read("proc/cmdline")
	if r.err == nil && (strings.ContainsFunc(r.text, unicode.IsControl) || !utf8.ValidString(r.text)) {
		r.err = fmt.Errorf("%q is no command line", r.text)
	}
	if r.err != nil {
		l.unread("", r)
		return
	}
	var set, bad []string
	for _, word := range strings.Fields(r.text) {
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
		l.warn("", r.at(), "%s", strings.Join(bad, " "))
	case len(set) > 0:
		l.pass("", r.at(), "%s", strings.Join(set, " "))
	default:
		l.pass("", r.at(), "no parameter that concerns peer-to-peer")
	}
}

func (l *look) numaBalancing() {
	r := l.read("proc/sys/kernel/numa_balancing")
	n, ok := r.number()
	switch {
	case r.gone():
		l.pass("", r.at(), "the kernel has no NUMA balancing").Expect = ""
	case r.err != nil:
		l.unread("", r)
	case !ok:
		l.unknown("", r.at(), "%q is not a number", r.text)
	case n > 0:
		l.warn("", r.at(), "%d", n)
	default:
		l.pass("", r.at(), "0")
	}
}

func (l *look) complaints() {
	log := l.log()
	if log.err != nil {
		l.unreadLog(log)
		return
	}
	hits := log.of(l, "KRN-KMSG")
	if len(hits) == 0 {
		l.quiet(log, "no such line")
	}
	for _, h := range hits {
		f := l.say(h.pattern.result, "", log.at(), "%s (%s)", h.line, h.pattern.means)
		if command := h.pattern.command(h.line); command != "" {
			f.fix("what the kernel proposes", command, "devices below these ports reach each other past the IOMMU")
			// It does not look at the list that it was given.
			if list, ok := strings.CutPrefix(command, openParameter); ok && len(l.m.openedPorts()) > 0 {
				fix := l.m.openPorts(strings.Split(list, ";"))
				f.Remedy = &fix
			}
		}
	}
}

// unreadLog reports a log that nobody may read.
func (l *look) unreadLog(log *kernelLog) {
	f := l.unread("", reading{where: log.where, err: log.err})
	if errors.Is(log.err, errNotCopied) {
		return
	}
	if log.where == askedLog {
		f.fix("look again as root; in a container, with CAP_SYSLOG", "--cap-add SYSLOG", "")
		return
	}
	f.asRoot(l.m)
}

// plural is "1 line", "2 lines".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

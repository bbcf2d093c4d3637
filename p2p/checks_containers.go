// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/placement"
)

var containerChecks = []Check{
	{ID: "CTR-LIBS", Title: "libibverbs has a provider for the NIC", Worst: ResultWarn, run: (*look).providers,
		Expect: "a provider of each NIC's driver, of libibverbs' own version", Why: "Without its provider libibverbs sees no device: the usual state of a container's image. It loads those libraries only that have its private interface's number in their names.",
		Fix: Remedy{Change: "install it, in the image of a container: the package ibverbs-providers of Debian and Ubuntu, libibverbs of RHEL and SLES"}, Ref: "rdma-core"},
	{ID: "CTR-SHM", Title: "Shared memory is large enough", Worst: ResultWarn, run: (*look).sharedMemory,
		Expect: "more than 64 MiB in /dev/shm", Why: "NCCL and RCCL keep their buffers between processes there; containers get 64 MiB by default.",
		Fix: Remedy{Change: "give the container more", Command: "--shm-size 1g"}, Ref: "NCCL's documentation"},
	{ID: "CTR-SYSFS", Title: "No part of /proc and /sys is hidden", Worst: ResultWarn, run: (*look).masked,
		Expect: "nothing mounted over them", Why: "What a container's runtime hides cannot be checked.",
		Fix: Remedy{Change: "run on the host, or mount the host's files and name them", Command: "p2pcheck --root /host"}, Ref: "OCI runtime specification, maskedPaths"},
	{ID: "K8S-PLUGIN", Title: "What gives devices to containers is known", Worst: ResultWarn, run: (*look).cdi,
		Expect: "CDI files or device plugins, on a node of Kubernetes", Why: "CDI files and the plugins of the kubelet say which devices a runtime gives to containers: without any, no pod gets a GPU or NIC.",
		Fix: Remedy{Change: "install the device plugins or DRA drivers of GPU and NIC"}, Ref: "container device interface; Kubernetes, device plugins"},
	{ID: "K8S-PCIEROOT", Title: "Each GPU has a PCIe root to be allocated by", Worst: ResultWarn, run: (*look).pcieRoots,
		Expect: "a root for each GPU and NIC", Why: "A scheduler can take GPU and NIC of one root together (resource.kubernetes.io/pcieRoot).", Ref: "k8s-dra-driver-gpu"},
}

// filtered reports a device file that a filter keeps from being opened.
func (l *look) filtered(name string) {
	file, where, _ := l.m.place(name)
	switch err := l.s.Live.Opens(file); {
	case errors.Is(err, unix.EPERM):
		l.fail("", []string{where}, "EPERM").fix("give the container the device", "--device "+where, "")
	case err == nil:
		l.pass("", []string{where}, "no EPERM")
	default:
		l.say(ResultSkip, "", []string{where}, "%v", reading{where: where, err: err}.why())
	}
}

// defaultShm is what a container gets, in KiB, the unit of mountinfo.
const defaultShm = 64 << 10

func (l *look) sharedMemory() {
	at := []string{"/" + l.m.processDir() + "/mountinfo"}
	if r := l.ofProcess("mountinfo"); l.m.process != 0 && r.err != nil {
		l.unread("", r)
		return
	}
	mounts, err := l.m.proc.MountsOf(strings.TrimPrefix(l.m.processDir(), "proc/"))
	if err != nil {
		l.unread("", reading{where: at[0], err: absent(err, l.m.proc.Path(wholeProc))})
		return
	}
	for _, m := range slices.Backward(mounts) {
		if m.Point != "/dev/shm" {
			continue
		}
		switch size, given, err := tmpfsSize(m.Super); {
		case err != nil:
			l.unknown("", at, "%s%v", l.m.whose(), err)
		case given && 0 < size && size <= defaultShm: // 0 is no limit
			l.warn("", at, "%s%s", l.m.whose(), kib(size))
		default:
			l.pass("", at, "%s%s", l.m.whose(), strings.Join(m.Super, ","))
		}
		return
	}
	if len(mounts) == 0 {
		l.unknown("", at, "%sno mount is listed", l.m.whose())
		return
	}
	l.warn("", at, "%s/dev/shm is no file system of its own", l.m.whose())
}

// tmpfsSize is that of a tmpfs in KiB, by the options that the kernel lists; it
// lists none where it is half of the memory.
func tmpfsSize(options []string) (size uint64, given bool, err error) {
	for _, o := range options {
		text, ok := strings.CutPrefix(o, "size=")
		if !ok {
			continue
		}
		size, err := strconv.ParseUint(strings.TrimSuffix(text, "k"), 10, 64)
		if err != nil || !strings.HasSuffix(text, "k") {
			return 0, false, fmt.Errorf("%q is not understood", o)
		}
		return size, true, nil
	}
	return 0, false, nil
}

func kib(size uint64) string {
	if size%1024 == 0 {
		return fmt.Sprintf("%d MiB", size/1024)
	}
	return fmt.Sprintf("%d KiB", size)
}

func (l *look) masked() {
	mounts, err := l.m.proc.Mounts()
	if err == nil && len(mounts) == 0 {
		err = errNotCopied
	}
	at := []string{"/proc/self/mountinfo"}
	if err != nil {
		l.unread("", reading{where: at[0], err: absent(err, l.m.proc.Path(wholeProc))})
		return
	}
	var hidden []string
	for _, m := range mounts {
		over := strings.HasPrefix(m.Point, "/proc/") || strings.HasPrefix(m.Point, "/sys/")
		if over && (m.Type == "tmpfs" && !strings.HasPrefix(m.Point, "/sys/fs/") || m.Type == "devtmpfs") {
			hidden = append(hidden, m.Point)
		}
	}
	if len(hidden) > 0 {
		l.warn("", at, "hidden: %s", strings.Join(hidden, ", "))
		return
	}
	l.pass("", at, "nothing")
}

func (l *look) cdi() {
	var specs, at []string
	known := false
	for _, dir := range []string{"etc/cdi", "var/run/cdi", "run/cdi"} {
		names, r := l.list(dir)
		known = known || r.err == nil || r.gone()
		for _, name := range names {
			specs = append(specs, name)
			at = append(at, r.where)
		}
	}
	switch {
	case len(specs) > 0:
		l.pass("", slices.Compact(at), "CDI: %s", strings.Join(specs, ", "))
	case l.plugins(): // has said so
	case known:
		l.pass("", []string{"/etc/cdi", "/run/cdi"}, "no CDI files")
	default:
		l.unknown("", []string{"/etc/cdi", "/run/cdi"}, "the directories are not here")
	}
}

// kubeletSocket is where plugins register, beside their own sockets.
const kubeletSocket = "kubelet.sock"

// plugins reports the sockets that are beside the kubelet's; false without a kubelet.
func (l *look) plugins() bool {
	names, r := l.list("var/lib/kubelet/device-plugins")
	if r.err != nil && !r.gone() {
		l.unread("", r)
		return true
	}
	if !slices.Contains(names, kubeletSocket) {
		return false
	}
	sockets := slices.DeleteFunc(names, func(name string) bool {
		return name == kubeletSocket || !strings.HasSuffix(name, ".sock")
	})
	if len(sockets) == 0 {
		l.warn("", r.at(), "a kubelet is here, and neither a CDI file nor a device plugin")
	} else {
		l.pass("", r.at(), "device plugins: %s", strings.Join(sockets, ", "))
	}
	return true
}

func (l *look) pcieRoots() {
	all := l.endpoints()
	if len(all) == 0 {
		l.skip("no GPU and no NIC on PCI")
	}
	for _, f := range all {
		if f.err != nil {
			l.unknown(f.name, nil, "%s", reading{err: f.err}.why())
			continue
		}
		l.pass(f.name, nil, "resource.kubernetes.io/pcieRoot=%s", f.Bus)
	}
}

var guestChecks = []Check{
	{ID: "VM-FLAT", Title: "The guest sees switches", Worst: ResultWarn, run: (*look).flat,
		Expect: "GPU and NIC below a common bridge", Why: "A hypervisor that puts each device on a root port of its own makes libraries believe that all are far apart: they do not use GPUDirect.",
		Fix: Remedy{Change: "give the guest a switch for those that share one, or NCCL a file of the topology", Command: "NCCL_TOPO_FILE=FILE"}, Ref: "NVIDIA/nccl#1464, #949"},
	{ID: "VM-ACS", Title: "The guest can tell what the host's ports do", Worst: ResultWarn, run: (*look).guestACS,
		Expect: "no virtual machine", Why: "The host's ports redirect, for guests to be apart, and the guest does not see it. Traffic takes the short way only with ATS, and direct translated P2P on the host's ports.",
		Fix: Remedy{Change: "on the host, not in the guest: turn ATS on in the NIC's firmware, and direct translated P2P on the ports", Command: "rdma_topo --virt write-grub-acs"}, Ref: "NCCL's documentation on virtual machines"},
	{ID: "VM-BAR64", Title: "The guest's BARs found room", Worst: ResultFail, run: (*look).guestBARs,
		Expect: "an address for the GPU's largest BAR", Why: "A guest's window for 64-bit addresses is often smaller than a GPU's memory.",
		Fix: Remedy{Change: "widen the window on the host", Command: "-global q35-pcihost.pci-hole64-size=2T"}, Ref: "kata-containers#7967"},
	{ID: "VM-IOMMU", Title: "The guest has no IOMMU that translates", Worst: ResultWarn, run: (*look).guestIOMMU,
		Expect: "none, or identity", Why: "A virtual IOMMU does not know bus addresses: transfers end with success, and the old bytes.",
		Fix: Remedy{Change: "let it pass DMA through", Command: passThrough}, Ref: "QEMU's intel-iommu"},
	{ID: "VF-PATH", Title: "Virtual functions have the way of their physical one", Worst: ResultWarn, run: (*look).vfPath,
		Expect: "any", Why: "The kernel walks from the physical function, and so does this program.", Ref: "pci_physfn()"},
	{ID: "VF-TRUST", Title: "Virtual functions import as their physical one", Worst: ResultWarn, run: (*look).vfTrust,
		Expect: "a driver that says so itself", Why: "Firmware can give a virtual function less: mlx5 imports by UMR, and follows moves by on-demand paging. Drivers that pin need neither.",
		Fix: Remedy{Change: "ask the driver", Command: "dmabuf-reg devices"}, Ref: "mlx5_ib_reg_user_mr_dmabuf()"},
}

// inGuest skips on bare machines.
func (l *look) inGuest() bool {
	switch v := l.m.virtual; v.is {
	case placement.Yes:
		return true
	case placement.No:
		l.skip("no virtual machine")
	default:
		l.unknown("", v.where, "whether this is a virtual machine is not known: %s", v.why)
	}
	return false
}

func (l *look) flat() {
	if !l.inGuest() {
		return
	}
	any, below := false, false
	for _, p := range l.pairs {
		if d := p.Prediction.Decision; p.NIC.Importer.PCI != nil && p.GPU.Exporter.PCI != nil && !p.NIC.Software {
			any = true
			below = below || d.Common != nil
		}
	}
	switch {
	case !any:
		l.skip("no pair on PCI")
	case below:
		l.pass("", nil, "some pair is below a common bridge")
	default:
		l.warn("", nil, "no pair is below a common bridge")
	}
}

func (l *look) guestACS() {
	switch {
	case !l.inGuest():
	case !slices.ContainsFunc(l.pairs, Pair.real):
		l.skip("no pair on PCI")
	default:
		l.warn("", nil, "ACS of the host is not seen from here")
	}
}

func (l *look) guestBARs() {
	if !l.inGuest() {
		return
	}
	l.barAssigned()
}

func (l *look) guestIOMMU() {
	if !l.inGuest() {
		return
	}
	for _, f := range l.endpoints() {
		at := []string{"/sys/" + f.dir + "/iommu_group/type"}
		switch {
		case f.err != nil || f.IOMMUErr != nil:
			l.unknown(f.name, at, "%s", reading{err: firstError(f.err, f.IOMMUErr)}.why())
		case f.IOMMU == "DMA" || f.IOMMU == "DMA-FQ":
			l.warn(f.name, at, "%s: it translates", f.IOMMU)
		case f.IOMMU == "" || f.IOMMU == "identity":
			l.pass(f.name, at, "%s", strings.TrimSpace("it does not translate "+f.IOMMU))
		default:
			l.unknown(f.name, at, "%q", f.IOMMU)
		}
	}
	if len(l.found) == 0 {
		l.skip("no GPU and no NIC on PCI")
	}
}

// virtualFunctions are the NICs that are one.
func (l *look) virtualFunctions() []*function {
	return slices.DeleteFunc(l.nicFunctions(), func(f *function) bool { return !l.m.sys.Exists(f.dir + "/physfn") })
}

func (l *look) vfPath() {
	all := l.virtualFunctions()
	if len(all) == 0 {
		l.skip("no virtual function")
	}
	for _, f := range all {
		r := l.link("sys", f.dir, "physfn")
		if r.err != nil {
			l.unread(f.name, r)
			continue
		}
		l.pass(f.name, r.at(), "a function of %s", base(r.text))
	}
}

// isVirtual reports a virtual function. In a guest nothing leads to its physical
// one, and mlx5's are known by their numbers.
func (l *look) isVirtual(f *function) bool {
	return l.m.sys.Exists(f.dir+"/physfn") || f.err == nil && f.Vendor == mellanox && slices.Contains(mlx5Virtual, f.Device)
}

func (l *look) vfTrust() {
	for _, n := range l.s.NICs {
		if n.Importer.PCI == nil || n.Software {
			continue
		}
		f := l.function(*n.Importer.PCI)
		if !l.isVirtual(f) {
			continue
		}
		at := []string{"/sys/" + f.dir + "/physfn", "/sys/" + f.dir + "/device"}
		switch kind := n.Importer.Kind; {
		case l.registered(n):
			l.pass(n.Name, nil, "the proof registered memory with it")
		case kind == NoImporter:
			l.say(ResultSkip, n.Name, at, "it imports no dma-bufs")
		case n.Importer.Driver == "mlx5_core":
			l.vfProbe(n, at)
		case kind == KindUnknown:
			l.unknown(n.Name, at, "%s, of which it is not known what it needs", n.Importer.driver())
		default:
			l.pass(n.Name, at, "%s pins, which needs nothing that firmware gives or takes", n.Importer.driver())
		}
	}
	if len(l.found) == 0 {
		l.skip("no virtual function")
	}
}

// registered reports a NIC that took some GPU's memory in a proof.
func (l *look) registered(n NIC) bool {
	return slices.ContainsFunc(l.pairs, func(p Pair) bool {
		return p.NIC.Name == n.Name && p.Proof != nil && p.Proof.Steps[RungRegister].Result == ResultPass
	})
}

// vfProbe asks mlx5, which looks for UMR before it looks at the buffer. On-demand
// paging it wants only once a buffer moves.
func (l *look) vfProbe(n NIC, at []string) {
	if l.s.Live.Imports == nil {
		l.unknown(n.Name, at, "what its firmware allows no file says, and a copy cannot be asked")
		return
	}
	s, err := l.s.Live.Imports(n.Name)
	at = []string{n.Uverbs}
	switch {
	case err != nil:
		l.unknown(n.Name, at, "%v", err)
	case s.DMABufKernel == ibvfd.Yes:
		l.pass(n.Name, at, "its driver imports; whether it follows a buffer that moves was not tried")
	case s.DMABufKernel == ibvfd.No:
		l.warn(n.Name, at, "%s, where a physical function would say EBADF", errno.Name(s.Errno))
	default:
		l.unknown(n.Name, at, "%s", s.Reason)
	}
}

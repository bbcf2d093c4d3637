// SPDX-License-Identifier: Apache-2.0

package hostcheck

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// Containers has the checks of containers and of Kubernetes.
var Containers = []check.Check{
	{ID: "CTR-LIBS", Title: "libibverbs has a provider for the NIC", Worst: p2p.ResultWarn, Run: providers,
		Expect: "a provider of each NIC's driver, of libibverbs' own version", Why: "Without a provider for the NIC libibverbs finds no device. Images of containers often have no provider. libibverbs loads only providers that have the number of its private interface in their names.",
		Fix: chain.Remedy{Change: "install it, in the image of a container: the package ibverbs-providers of Debian and Ubuntu, libibverbs of RHEL and SLES"}, Ref: "rdma-core",
		ByHand: "ls /etc/libibverbs.d /usr/lib*/libibverbs /usr/lib/*/libibverbs"},
	{ID: "CTR-SHM", Title: "Shared memory is large enough", Worst: p2p.ResultWarn, Run: sharedMemory,
		Expect: "more than 64 MiB in /dev/shm", Why: "NCCL and RCCL keep their buffers between processes there; containers get 64 MiB by default.",
		Fix: chain.Remedy{Change: "give the container more", Command: "--shm-size 1g"}, Ref: "NCCL's documentation",
		ByHand: "grep '/dev/shm' /proc/self/mountinfo"},
	{ID: "CTR-SYSFS", Title: "No part of /proc and /sys is hidden", Worst: p2p.ResultWarn, Run: masked,
		Expect: "nothing mounted over them", Why: "The checks cannot read files that a container's runtime hides.",
		Fix: chain.Remedy{Change: "run on the host, or mount the host's files and name them", Command: "p2pcheck --root /host"}, Ref: "OCI runtime specification, maskedPaths",
		ByHand: "grep -E ' /(proc|sys)/' /proc/self/mountinfo"},
	{ID: "K8S-PLUGIN", Title: "CDI files or device plugins give devices to containers", Worst: p2p.ResultWarn, Run: cdi,
		Expect: "CDI files or device plugins, on a node of Kubernetes", Why: "CDI files and the plugins of the kubelet say which devices a runtime gives to containers: without any, no pod gets a GPU or NIC.",
		Fix: chain.Remedy{Change: "install the device plugins or DRA drivers of GPU and NIC"}, Ref: "container device interface; Kubernetes, device plugins",
		ByHand: "ls /etc/cdi /run/cdi /var/lib/kubelet/device-plugins"},
	{ID: "K8S-PCIEROOT", Title: "A scheduler finds the PCIe root of each GPU", Worst: p2p.ResultWarn, Run: pcieRoots,
		Expect: "a root for each GPU and NIC", Why: "A scheduler can take GPU and NIC of one root together (resource.kubernetes.io/pcieRoot).", Ref: "k8s-dra-driver-gpu",
		ByHand: "readlink /sys/bus/pci/devices/GPU"},
}

// filtered reports whether a device filter refuses to open a device file, with EPERM.
func filtered(l *check.Look, name string) {
	file, where, _ := l.Machine.Locate(name)
	switch err := l.Subject.Live.Opens(file); {
	case errors.Is(err, unix.EPERM):
		l.Fail("", []string{where}, "EPERM").Fix("give the container the device", "--device "+where, "")
	case err == nil:
		l.Pass("", []string{where}, "no EPERM")
	default:
		l.Say(p2p.ResultSkip, "", []string{where}, "%v", machine.Reading{Where: where, Err: err}.Why())
	}
}

// defaultShm is the size of /dev/shm that containers get by default, in KiB, the unit of mountinfo.
const defaultShm = 64 << 10

func sharedMemory(l *check.Look) {
	at := []string{"/" + l.Machine.ProcessDir() + "/mountinfo"}
	if r := l.OfProcess("mountinfo"); l.Machine.PID != 0 && r.Err != nil {
		l.Unread("", r)
		return
	}
	mounts, err := l.Machine.Proc.MountsOf(strings.TrimPrefix(l.Machine.ProcessDir(), "proc/"))
	if err != nil {
		l.Unread("", machine.Reading{Where: at[0], Err: machine.Absent(err, l.Machine.Proc.Path(machine.WholeProc))})
		return
	}
	for _, m := range slices.Backward(mounts) {
		if m.Point != "/dev/shm" {
			continue
		}
		switch size, given, err := tmpfsSize(m.Super); {
		case err != nil:
			l.Unknown("", at, "%s%v", l.Machine.Whose(), err)
		case given && 0 < size && size <= defaultShm: // 0 is no limit
			l.Warn("", at, "%s%s", l.Machine.Whose(), kib(size))
		default:
			l.Pass("", at, "%s%s", l.Machine.Whose(), strings.Join(m.Super, ","))
		}
		return
	}
	if len(mounts) == 0 {
		l.Unknown("", at, "%sno mount is listed", l.Machine.Whose())
		return
	}
	l.Warn("", at, "%s/dev/shm is no file system of its own", l.Machine.Whose())
}

// tmpfsSize returns the size of a tmpfs in KiB, by the options that the kernel lists. given is false if they
// have no size: it is then half of the memory.
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

// shownMounts is the number of mounts that a finding names.
const shownMounts = 12

func masked(l *check.Look) {
	mounts, err := l.Machine.Proc.Mounts()
	if err == nil && len(mounts) == 0 {
		err = machine.ErrNotCopied
	}
	at := []string{"/proc/self/mountinfo"}
	if err != nil {
		l.Unread("", machine.Reading{Where: at[0], Err: machine.Absent(err, l.Machine.Proc.Path(machine.WholeProc))})
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
		l.Warn("", at, "hidden: %s", human.First(hidden, shownMounts))
		return
	}
	l.Pass("", at, "nothing")
}

func cdi(l *check.Look) {
	var specs, at []string
	known := false
	for _, dir := range []string{"etc/cdi", "var/run/cdi", "run/cdi"} {
		names, r := l.List(dir)
		known = known || r.Err == nil || r.Gone()
		for _, name := range names {
			specs = append(specs, name)
			at = append(at, r.Where)
		}
	}
	switch {
	case len(specs) > 0:
		l.Pass("", slices.Compact(at), "CDI: %s", strings.Join(specs, ", "))
	case plugins(l): // it has reported the result
	case known:
		l.Pass("", []string{"/etc/cdi", "/run/cdi"}, "no CDI files")
	default:
		l.Unknown("", []string{"/etc/cdi", "/run/cdi"}, "the directories are not here")
	}
}

// kubeletSocket is the socket on which plugins register with the kubelet. The plugins' own sockets are in the
// same directory.
const kubeletSocket = "kubelet.sock"

// plugins adds a finding about the sockets of plugins, which are beside the kubelet's socket. It returns false
// if there is no kubelet's socket.
func plugins(l *check.Look) bool {
	names, r := l.List("var/lib/kubelet/device-plugins")
	if r.Err != nil && !r.Gone() {
		l.Unread("", r)
		return true
	}
	if !slices.Contains(names, kubeletSocket) {
		return false
	}
	sockets := slices.DeleteFunc(names, func(name string) bool {
		return name == kubeletSocket || !strings.HasSuffix(name, ".sock")
	})
	if len(sockets) == 0 {
		l.Warn("", r.At(), "a kubelet is here, and neither a CDI file nor a device plugin")
	} else {
		l.Pass("", r.At(), "device plugins: %s", strings.Join(sockets, ", "))
	}
	return true
}

func pcieRoots(l *check.Look) {
	all := l.Endpoints()
	if len(all) == 0 {
		l.Skip("no GPU and no NIC on PCI")
	}
	for _, f := range all {
		if f.Err != nil {
			l.Unknown(f.Name, nil, "%s", machine.Reading{Err: f.Err}.Why())
			continue
		}
		l.Pass(f.Name, nil, "resource.kubernetes.io/pcieRoot=%s", f.Bus)
	}
}

// Guest has the checks of guests and of virtual functions.
var Guest = []check.Check{
	{ID: "VM-FLAT", Title: "The guest sees switches", Worst: p2p.ResultWarn, Run: flat, Links: []chain.Link{chain.Fabric},
		Expect: "GPU and NIC below a common bridge", Why: "A hypervisor that puts each device on a root port of its own makes libraries believe that all are far apart: they do not use GPUDirect.",
		Fix: chain.Remedy{Change: "give the guest a switch for those that share one, or NCCL a file of the topology", Command: "NCCL_TOPO_FILE=FILE"}, Ref: "NVIDIA/nccl#1464, #949",
		ByHand: "grep -c hypervisor /proc/cpuinfo\nlspci -tv"},
	{ID: "VM-ACS", Title: "No ports of a host, which a guest does not see, are on the way", Worst: p2p.ResultWarn, Run: guestACS, Links: []chain.Link{chain.Fabric},
		Expect: "no virtual machine", Why: "The host's ports redirect to isolate guests from each other, and the guest does not see it. Traffic takes the short way only with ATS, and direct translated P2P on the host's ports.",
		Fix: chain.Remedy{Change: "on the host, not in the guest: turn ATS on in the NIC's firmware, and direct translated P2P on the ports", Command: "rdma_topo --virt write-grub-acs"}, Ref: "NCCL's documentation on virtual machines",
		ByHand: "grep -c hypervisor /proc/cpuinfo"},
	{ID: "VM-BAR64", Title: "The guest's BARs found room", Worst: p2p.ResultFail, Run: guestBARs, Links: []chain.Link{chain.Addresses},
		Expect: "an address for the GPU's largest BAR", Why: "A guest's window for 64-bit addresses is often smaller than a GPU's memory.",
		Fix: chain.Remedy{Change: "widen the window on the host", Command: "-global q35-pcihost.pci-hole64-size=2T"}, Ref: "kata-containers#7967",
		ByHand: "cat /sys/bus/pci/devices/GPU/resource"},
	{ID: "VM-IOMMU", Title: "The guest has no IOMMU that translates", Worst: p2p.ResultWarn, Run: guestIOMMU, Links: []chain.Link{chain.Addresses},
		Expect: "none, or identity", Why: "A virtual IOMMU does not know bus addresses: a transfer reports success, and the memory keeps its old bytes.",
		Fix: chain.Remedy{Change: "let it pass DMA through", Command: machine.PassThrough}, Ref: "QEMU's intel-iommu",
		ByHand: "cat /sys/bus/pci/devices/GPU/iommu_group/type"},
	{ID: "VF-PATH", Title: "Virtual functions have the way of their physical one", Worst: p2p.ResultWarn, Run: vfPath,
		Expect: "any", Why: "The kernel walks from the physical function, and so does this program.", Ref: "pci_physfn()",
		ByHand: "readlink /sys/bus/pci/devices/FUNCTION/physfn"},
	{ID: "VF-TRUST", Title: "Virtual functions import as their physical one", Worst: p2p.ResultWarn, Run: vfTrust, Links: []chain.Link{chain.Route},
		Expect: "a driver that says so itself", Why: "Firmware can give a virtual function less: mlx5 imports by UMR, and follows moves by on-demand paging. Drivers that pin need neither.",
		Fix: chain.Remedy{Change: "ask the driver", Command: "dmabuf-reg devices"}, Ref: "mlx5_ib_reg_user_mr_dmabuf()",
		ByHand: "readlink /sys/bus/pci/devices/FUNCTION/physfn"},
}

// inGuest reports whether the machine is a guest. If not, it skips the check; if that is not known, it adds
// an unknown finding.
func inGuest(l *check.Look) bool {
	switch v := l.Machine.Virtual; v.Is {
	case placement.Yes:
		return true
	case placement.No:
		l.Skip("no virtual machine")
	default:
		l.Unknown("", v.Where, "whether this is a virtual machine is not known: %s", v.Why)
	}
	return false
}

func flat(l *check.Look) {
	if !inGuest(l) {
		return
	}
	any, below := false, false
	for _, p := range l.Pairs {
		if d := p.Prediction.Decision; p.NIC.Importer.PCI != nil && p.GPU.Exporter.PCI != nil && !p.NIC.Software {
			any = true
			below = below || d.Common != nil
		}
	}
	switch {
	case !any:
		l.Skip("no pair on PCI")
	case below:
		l.Pass("", nil, "some pair is below a common bridge")
	default:
		l.Warn("", nil, "no pair is below a common bridge")
	}
}

func guestACS(l *check.Look) {
	switch {
	case !inGuest(l):
	case !slices.ContainsFunc(l.Pairs, p2p.Pair.Real):
		l.Skip("no pair on PCI")
	default:
		l.Warn("", nil, "ACS of the host is not seen from here")
	}
}

func guestBARs(l *check.Look) {
	if !inGuest(l) {
		return
	}
	check.BarAssigned(l)
}

func guestIOMMU(l *check.Look) {
	if !inGuest(l) {
		return
	}
	for _, f := range l.Endpoints() {
		at := []string{"/sys/" + f.Dir + "/iommu_group/type"}
		switch {
		case f.Err != nil || f.IOMMUErr != nil:
			l.Unknown(f.Name, at, "%s", machine.Reading{Err: machine.FirstError(f.Err, f.IOMMUErr)}.Why())
		case f.IOMMU == "DMA" || f.IOMMU == "DMA-FQ":
			l.Warn(f.Name, at, "%s: it translates", f.IOMMU)
		case f.IOMMU == "" || f.IOMMU == "identity":
			l.Pass(f.Name, at, "%s", strings.TrimSpace("it does not translate "+f.IOMMU))
		default:
			l.Unknown(f.Name, at, "%q", f.IOMMU)
		}
	}
	if len(l.Found) == 0 {
		l.Skip("no GPU and no NIC on PCI")
	}
}

func vfPath(l *check.Look) {
	all := check.VirtualFunctions(l)
	if len(all) == 0 {
		l.Skip("no virtual function")
	}
	for _, f := range all {
		r := l.Link("sys", f.Dir, "physfn")
		if r.Err != nil {
			l.Unread(f.Name, r)
			continue
		}
		l.Pass(f.Name, r.At(), "a function of %s", check.Base(r.Text))
	}
}

func vfTrust(l *check.Look) {
	for _, n := range l.Subject.NICs {
		if n.Importer.PCI == nil || n.Software {
			continue
		}
		f := l.Function(*n.Importer.PCI)
		if !check.IsVirtual(l, f) {
			continue
		}
		at := []string{"/sys/" + f.Dir + "/physfn", "/sys/" + f.Dir + "/device"}
		switch kind := n.Importer.Kind; {
		case check.Registered(l, n):
			l.Pass(n.Name, nil, "the proof registered memory with it")
		case kind == drivers.NoImporter:
			l.Say(p2p.ResultSkip, n.Name, at, "it imports no dma-bufs")
		case n.Importer.Driver == "mlx5_core":
			vfProbe(l, n, at)
		case kind == drivers.KindUnknown:
			l.Unknown(n.Name, at, "whether %s needs a feature of the firmware is not known", n.Importer.DriverName())
		default:
			l.Pass(n.Name, at, "%s pins buffers, and needs no feature of the firmware for that", n.Importer.DriverName())
		}
	}
	if len(l.Found) == 0 {
		l.Skip("no virtual function")
	}
}

// vfProbe asks mlx5's driver whether a virtual function imports dma-bufs. The driver checks for UMR before it
// checks the descriptor, so that the answer covers UMR. It needs on-demand paging only when a buffer moves, so
// that the answer does not cover that.
func vfProbe(l *check.Look, n drivers.NIC, at []string) {
	if l.Subject.Live.Imports == nil {
		l.Unknown(n.Name, at, "no file shows what its firmware allows, and a copy of a machine has no driver to ask")
		return
	}
	s, err := l.Subject.Live.Imports(n.Name)
	at = []string{n.Uverbs}
	switch {
	case err != nil:
		l.Unknown(n.Name, at, "%v", err)
	case s.DMABufKernel == ibvfd.Yes:
		l.Pass(n.Name, at, "its driver imports dma-bufs; whether it follows a buffer that moves was not tried")
	case s.DMABufKernel == ibvfd.No:
		l.Warn(n.Name, at, "the driver answers %s; for a physical function it answers EBADF", errno.Name(s.Errno))
	default:
		l.Unknown(n.Name, at, "%s", s.Reason)
	}
}

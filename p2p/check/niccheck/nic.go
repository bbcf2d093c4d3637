// SPDX-License-Identifier: Apache-2.0

package niccheck

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// NIC has the checks of RDMA devices.
var NIC = []check.Check{
	{ID: "NIC-PRESENT", Title: "There is an RDMA device", Worst: p2p.ResultFail, Run: nicPresent,
		Expect: "a device in /sys/class/infiniband, of each NIC that can have one", Why: "Without its RDMA driver a network card has no RDMA device.",
		Fix: chain.Remedy{Change: "load the RDMA driver of the NIC", Command: "modprobe mlx5_ib"}, Ref: "/sys/class/infiniband",
		ByHand: "ls /sys/class/infiniband"},
	{ID: "NIC-UVERBS", Title: "Programs can open the NIC", Worst: p2p.ResultFail, Run: nicUverbs,
		Expect: "a device file that can be opened", Why: "EACCES is a matter of the file's mode, EPERM of the container's device filter; a container needs rdma_cm, too.",
		Fix: chain.Remedy{Change: "load ib_uverbs; in a container, give it the device", Command: "modprobe ib_uverbs"}, Ref: "k8s-rdma-shared-dev-plugin",
		ByHand: "ls /sys/class/infiniband_verbs\nls -l /dev/infiniband"},
	{ID: "NIC-DRIVER-DMABUF", Title: "The NIC's driver imports dma-bufs", Worst: p2p.ResultFail, Run: nicImports, Links: []chain.Link{chain.Route},
		Expect: "a driver with reg_user_mr_dmabuf on this kernel", Why: "Others answer EOPNOTSUPP to every registration of a dma-buf.",
		Fix: chain.Remedy{Change: "use a NIC whose driver imports dma-bufs on this kernel, as mlx5 and efa do from 6.1 on"}, Ref: "drivers/infiniband/hw/*",
		ByHand: "readlink /sys/class/infiniband/NIC/device/driver\nuname -r"},
	{ID: "NIC-DMABUF-PROBE", Title: "The driver itself says that it imports dma-bufs", Worst: p2p.ResultFail, Run: nicProbe, Links: []chain.Link{chain.Route},
		Expect: "EBADF to a registration of descriptor -1", Why: "Only this answer is valid for every driver, also for one from outside the kernel.",
		Fix: chain.Remedy{Change: "update the NIC's driver, or the kernel"}, Ref: "NVIDIA/nccl#778",
		ByHand: "dmabuf-reg devices"},
	{ID: "NIC-PROVIDER-LIB", Title: "libibverbs can register dma-bufs", Worst: p2p.ResultWarn, Run: verbsLibrary,
		Expect: "libibverbs.so.1.12 or later (rdma-core 34)", Why: "Older versions do not have ibv_reg_dmabuf_mr.",
		Fix: chain.Remedy{Change: "update rdma-core; in a container, that of the image"}, Ref: "IBVERBS_1.12",
		ByHand: "ls -l /usr/lib*/libibverbs.so.1* /usr/lib/*/libibverbs.so.1*"},
	{ID: "NIC-MODE", Title: "How the NIC imports is known", Worst: p2p.ResultFail, Run: nicMode, Links: []chain.Link{chain.Attach},
		Expect: "dynamic, revocable or pinned", Why: "amdgpu, xe and vfio-pci treat a NIC that follows moves of the buffer differently from one that pins.",
		Fix: chain.Remedy{Change: "prove it by a registration under trace", Command: "dmabuf-reg verify --trace"}, Ref: "drivers/infiniband/core/umem_dmabuf.c",
		ByHand: "p2pcheck why GPU NIC"},
	{ID: "NIC-DATADIRECT", Title: "Direct data takes a way that is as good", Worst: p2p.ResultWarn, Run: dataDirect, Links: []chain.Link{chain.Attach, chain.Fabric},
		Expect: "no second function that moves data, or one that reaches the GPU as well", Why: "A ConnectX-8 can have a second function for the data. Programs that ask for it (NCCL does) have their buffers registered by that one, which pins, has a way of its own, and wants buffers that start at a page or at 2 MiB.",
		Fix: chain.Remedy{Change: "look at the way of the other function, in topo"}, Ref: "meta-pytorch/torchcomms#3027",
		ByHand: "p2pcheck topo -v --nic NIC"},
	{ID: "NIC-OFED", Title: "The NIC's driver is the kernel's own", Worst: p2p.ResultWarn, Run: ofed, Links: []chain.Link{chain.Route, chain.Attach},
		Expect: "no module from elsewhere", Why: "MLNX_OFED and DOCA bring their own drivers, and the kernel's version does not tell what these drivers do.",
		Fix: chain.Remedy{Change: "prove the pairs: p2pcheck knows the rules of the kernel's own driver, and this one may have others", Command: "p2pcheck --live"}, Ref: "ROCm/mori#481",
		ByHand: "cat /sys/module/mlx5_ib/taint /sys/module/mlx5_ib/version"},
	{ID: "NIC-EFA-GEN", Title: "Libraries use dma-bufs with this EFA", Worst: p2p.ResultWarn, Run: efa,
		Expect: "an EFA of a later generation than the third", Why: "aws-ofi-nccl turns dma-bufs off for the first three generations of EFA.",
		Fix: chain.Remedy{Change: "use a version of aws-ofi-nccl that knows the device"}, Ref: "aws-ofi-nccl#848",
		ByHand: "cat /sys/class/infiniband/NIC/device/device"},
	{ID: "NIC-BNXT-FLAG", Title: "The NIC's plugin asks for dma-bufs", Worst: p2p.ResultWarn, Run: bnxt,
		Expect: "no NIC of bnxt_re, a plugin that does, or no peer memory to fall back to", Why: "A plugin for NCCL that leaves the flag out falls back to peer memory and prints nothing.",
		Fix: chain.Remedy{Change: "update the plugin"}, Ref: "ROCm/rocm-systems#6830",
		ByHand: "ls /sys/kernel/mm/memory_peers"},
	{ID: "NIC-STATE", Title: "The ports are up", Worst: p2p.ResultWarn, Run: nicState,
		Expect: "ACTIVE", Why: "A port that is down can register memory, and moves no data.",
		Fix: chain.Remedy{Change: "look at the cable and the switch; on InfiniBand at the subnet manager, too"}, Ref: "/sys/class/infiniband/*/ports/*/state",
		ByHand: "cat /sys/class/infiniband/NIC/ports/1/state /sys/class/infiniband/NIC/ports/1/phys_state"},
	{ID: "NIC-LAG", Title: "Each RDMA device stands for one port", Worst: p2p.ResultWarn, Run: lag, Links: []chain.Link{chain.Fabric},
		Expect: "no LAG", Why: "The ports of a bond share one RDMA device (mlx5_bond_0), on the PCI function of one port. The verdict on its pairs holds for that function; the other port may be below other bridges. The driver spreads queue pairs over the ports, and a few queue pairs may all use one port. UCX's transport gga_mlx5 fails on a LAG (LIB-UCX-ENV).",
		Fix: chain.Remedy{Change: "nothing, if both ports are below one switch; else use the ports without a bond"}, Ref: "drivers/net/ethernet/mellanox/mlx5/core/lag/debugfs.c; openucx/ucx#11695; NVIDIA/nccl#2136",
		ByHand: "cat /sys/class/infiniband/NIC/ports/1/gid_attrs/ndevs/*"},
	{ID: "NIC-FABRIC", Title: "Every NIC registers memory by verbs", Worst: p2p.ResultWarn, Run: otherFabrics,
		Expect: "no NIC of another fabric", Why: "Slingshot and Omni-Path register GPU memory by their own interfaces: the rules for dma-bufs and verbs do not hold for them.", Ref: "fi_cxi(7), fi_opx(7)",
		ByHand: "ls /sys/class/cxi\nlspci -nn"},
	{ID: "NIC-FW", Title: "NICs of one kind have one firmware", Worst: p2p.ResultWarn, Run: firmware,
		Expect: "one version for each kind of board", Why: "A fault of one firmware version shows on some NICs only, and looks random.",
		Fix: chain.Remedy{Change: "bring all to one version"}, Ref: "/sys/class/infiniband/*/fw_ver",
		ByHand: "grep . /sys/class/infiniband/*/fw_ver /sys/class/infiniband/*/board_id"},
}

// perNIC runs f for each NIC. Without a NIC it skips the check.
func perNIC(l *check.Look, f func(drivers.NIC)) {
	if len(l.Subject.NICs) == 0 {
		l.Skip("no RDMA device")
	}
	for _, n := range l.Subject.NICs {
		f(n)
	}
}

func nicPresent(l *check.Look) {
	at := []string{"/sys/class/infiniband"}
	names, r := l.List("sys/class/infiniband")
	lost, missing := withoutRDMA(l), missing(l, names)
	switch {
	case len(l.Subject.NICs) > 0:
		l.Pass("", at, "%s", human.Plural(len(l.Subject.NICs), "RDMA device"))
	case r.Err != nil && !r.Gone():
		l.Unread("", r)
	case r.Err != nil && drivers.HasRDMA(l.Machine):
		l.Unknown("", at, "it was not copied, and PCI functions have RDMA devices").Fix("take the copy again", "", "")
		return
	case len(missing) == 0 && withoutVerbs(l):
		return
	case len(missing) == 0:
		noNIC(l) // names the cards
		return
	}
	for _, n := range l.Subject.NICs {
		if _, ports := l.List(check.IBDir(n), "ports"); ports.Err != nil && !ports.Gone() {
			l.Unread(n.Name, ports)
		}
	}
	for _, name := range missing {
		l.Unknown(name, []string{"/sys/class/infiniband/" + name}, "it is there, and leads to no device that can be read")
	}
	for _, f := range lost {
		f.say(l)
	}
}

// missing returns the names of RDMA devices that sysfs lists, and whose files cannot be read.
func missing(l *check.Look, names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		_, err := l.Machine.Sys.Resolve(path.Join("class/infiniband", name))
		return err == nil
	})
}

func nicUverbs(l *check.Look) {
	perNIC(l, func(n drivers.NIC) {
		switch {
		case n.Uverbs == "":
			if _, r := l.List("sys/class/infiniband_verbs"); r.Err != nil && !r.Gone() {
				l.Unread(n.Name, r)
				return
			}
			l.Fail(n.Name, []string{"/sys/class/infiniband_verbs"}, "ib_uverbs does not serve it")
		case l.Subject.Live.Opens == nil:
			l.Pass(n.Name, []string{"/sys/class/infiniband_verbs"}, "ib_uverbs serves it").Expect = ""
		default:
			check.Opened(l, p2p.ResultFail, n.Name, strings.TrimPrefix(n.Uverbs, "/"))
		}
	})
	if len(l.Subject.NICs) > 0 && l.Subject.Live.Opens != nil {
		manager(l)
	}
}

// manager adds a finding about the device file of the connection manager. Its absence is a warning only: programs
// that make connections by themselves, as NCCL does, do not need it.
func manager(l *check.Look) {
	f, missing := check.Opened(l, p2p.ResultWarn, "rdma_cm", "dev/infiniband/rdma_cm")
	if missing {
		f.Fix("load rdma_ucm, without which programs cannot connect by IP addresses; in a container, give it the device", "modprobe rdma_ucm", "")
	}
	if f.Result == p2p.ResultUnknown {
		f.SetAside()
	}
}

func nicImports(l *check.Look) {
	perNIC(l, func(n drivers.NIC) {
		i := n.Importer
		at := []string{"/" + check.IBDir(n) + "/device/driver"}
		switch i.Kind {
		case drivers.NoImporter:
			f := l.Fail(n.Name, at, "%s of %s does not import dma-bufs", i.DriverName(), l.Machine.Kernel.Release)
			if fabric, ok := ofFabric(l, addressOf(n)); ok {
				f.Fix("leave verbs out: "+fabric.by, "", "")
			}
			if i.NoODP {
				f.Read += ": it is built without " + machine.ConfigODP
				f.Fix("run a kernel that is built with it", machine.ConfigODP+"=y", "")
			}
		case drivers.KindUnknown:
			if i.Imports {
				l.Pass(n.Name, at, "%s imports dma-bufs: it was asked, or its release is known to import them", i.DriverName())
				return
			}
			l.Unknown(n.Name, at, "%s: whether it imports dma-bufs is not known here", i.DriverName()).Fix("ask the driver", "dmabuf-reg devices", "")
		default:
			l.Pass(n.Name, at, "%s of %s does", i.DriverName(), l.Machine.Kernel.Release)
		}
	})
}

// addressOf returns the address of a NIC's PCI function; "" if there is none.
func addressOf(n drivers.NIC) string {
	if n.Importer.PCI == nil {
		return ""
	}
	return n.Importer.PCI.String()
}

func nicProbe(l *check.Look) {
	if l.Subject.Live.Imports == nil {
		l.Skip("this is a copy of a machine")
		return
	}
	perNIC(l, func(n drivers.NIC) {
		at := []string{n.Uverbs}
		s, err := l.Subject.Live.Imports(n.Name)
		read := s.Reason
		if s.Errno != 0 {
			read = errno.Name(s.Errno)
		}
		switch {
		case err != nil:
			l.Unknown(n.Name, at, "%v", err)
		case s.DMABufKernel == ibvfd.Yes:
			l.Pass(n.Name, at, "%s", read)
		case s.DMABufKernel == ibvfd.No:
			f := l.Fail(n.Name, at, "%s", read)
			if s.Remedy != "" {
				f.Fix(s.Remedy, "", "")
			}
		default:
			l.Unknown(n.Name, at, "%s", read)
		}
	})
}

func verbsLibrary(l *check.Look) {
	if len(l.Subject.NICs) == 0 {
		l.Skip("no RDMA device")
		return
	}
	looked := false
	for _, dir := range check.VerbsDirs {
		names, r := l.List(dir)
		looked = looked || r.Err == nil
		for _, name := range names {
			rest, ok := strings.CutPrefix(name, "libibverbs.so.1.")
			if !ok {
				continue
			}
			minor, _, _ := strings.Cut(rest, ".")
			n, err := strconv.Atoi(minor)
			at := []string{r.Where + "/" + name}
			switch {
			case err != nil:
				l.Unknown("", at, "its version is not understood")
			case n < 12:
				l.Warn("", at, "version 1.%d", n)
			default:
				wholeLibrary(l, n, l.Read(dir, name))
			}
			return
		}
	}
	if looked {
		l.Warn("", nil, "no libibverbs was found").Fix("install rdma-core's libibverbs: the packages libibverbs1 and ibverbs-providers of Debian and Ubuntu, libibverbs of RHEL and SLES", "", "")
		return
	}
	l.Unknown("", nil, "libraries are not here")
}

// wholeLibrary passes a libibverbs whose name has a new enough version, if its bytes are those of a library. A
// snapshot has no bytes of a library that names no provider.
func wholeLibrary(l *check.Look, minor int, r machine.Reading) {
	const elf = "\x7fELF"
	switch {
	case r.Err != nil:
		l.Unread("", r)
	case strings.HasPrefix(r.All, elf) || len(check.ProvidersIn(r.All)) > 0:
		l.Pass("", r.At(), "version 1.%d", minor)
	case r.Text == "":
		l.Unknown("", r.At(), "version 1.%d by its name; it is empty, or the snapshot leaves its contents out", minor)
	default:
		l.Unknown("", r.At(), "version 1.%d by its name; it is no library", minor)
	}
}

func nicMode(l *check.Look) {
	perNIC(l, func(n drivers.NIC) {
		switch k := n.Importer.Kind; k {
		case drivers.NoImporter:
			l.Say(p2p.ResultSkip, n.Name, nil, "it imports no dma-bufs")
		case drivers.KindUnknown:
			l.Unknown(n.Name, nil, "%s: how it imports dma-bufs is not known here", n.Importer.DriverName())
		default:
			l.Pass(n.Name, nil, "%v", k)
		}
	})
}

func ofed(l *check.Look) {
	perNIC(l, func(n drivers.NIC) {
		d, ok := drivers.RdmaDrivers[n.Importer.Driver]
		if !ok {
			l.Say(p2p.ResultSkip, n.Name, nil, "the source of %s was not read", n.Importer.DriverName())
			return
		}
		version := l.Read("sys/module", d.Module, "version")
		at := []string{"/sys/module/" + d.Module + "/taint", version.Where}
		switch l.Machine.OutOfTree(d.Module) {
		case placement.No:
			l.Pass(n.Name, at, "%s is the kernel's own", d.Module)
		case placement.Yes:
			l.Warn(n.Name, at, "%s", strings.TrimSpace(fmt.Sprintf("%s is not the kernel's own: %s", d.Module, version.Text)))
		default:
			l.Unknown(n.Name, at, "it is not known where the module %s comes from", d.Module)
		}
	})
}

// noFunction is the text for a NIC whose driver drives PCI functions, and whose PCI function is not known: a copy
// of a machine may lack the links to it.
const noFunction = "its PCI function is not known"

func efa(l *check.Look) {
	nics := l.Imported("efa")
	if len(nics) == 0 {
		l.Skip("no EFA")
	}
	for _, n := range nics {
		if n.Importer.PCI == nil {
			l.Unknown(n.Name, nil, noFunction)
			continue
		}
		f := l.Function(*n.Importer.PCI)
		at := []string{"/sys/" + f.Dir + "/device"}
		switch {
		case f.Err != nil:
			l.Unknown(n.Name, at, "%s", machine.Reading{Err: f.Err}.Why())
		case f.Device >= 0xefa0 && f.Device <= 0xefa2:
			l.Warn(n.Name, at, "%04x, of generation %d", f.Device, f.Device-0xefa0+1)
		default:
			l.Pass(n.Name, at, "%04x", f.Device)
		}
	}
}

func bnxt(l *check.Look) {
	nics := l.Imported("bnxt_en")
	if len(nics) == 0 {
		l.Skip("no NIC of bnxt_re")
	}
	peers, at := l.There("sys/kernel/mm/memory_peers")
	for _, n := range nics {
		if peers == placement.No {
			l.Pass(n.Name, at, "there is no peer memory to fall back to")
			continue
		}
		l.Unknown(n.Name, at, "no file says what the plugin does")
	}
}

func nicState(l *check.Look) {
	perNIC(l, func(n drivers.NIC) {
		if len(n.Ports) == 0 {
			l.Unknown(n.Name, []string{"/" + check.IBDir(n) + "/ports"}, "no port can be read")
		}
		for _, p := range n.Ports {
			r := l.Read(check.IBDir(n), "ports", strconv.Itoa(p.Num), "state")
			switch {
			case r.Err != nil:
				l.Unread(drivers.PortName(n, p), r)
			case r.Text == "":
				l.Unknown(drivers.PortName(n, p), r.At(), "empty")
			case p.State == ibdev.PortActive:
				l.Pass(drivers.PortName(n, p), r.At(), "%s", r.Text)
			default:
				inactive(l, n, p, r)
			}
		}
	})
}

// inactive adds the likely cause to the finding about a port that is down. Ethernet drivers report Disabled in two cases: the
// link has no carrier, or the network device is not set up.
func inactive(l *check.Look, n drivers.NIC, p ibdev.Port, state machine.Reading) {
	at, read := state.At(), state.Text
	phys := l.Read(check.PortDir(n, p, "phys_state"))
	if phys.Err == nil && phys.Text != "" {
		at, read = append(at, phys.Where), read+", phys_state "+phys.Text
	}
	f := l.Warn(drivers.PortName(n, p), at, "%s", read)
	devs := netDevs(n, p)
	switch {
	case p.LinkLayer == ibdev.LinkInfiniBand && n.Importer.PCI != nil && check.IsVirtual(l, l.Function(*n.Importer.PCI)) && noGUID(l, n):
		f.Read += "; a virtual function without a GUID"
		f.Fix("give the virtual function GUIDs, by its physical function, and bind its driver anew", "ip link set PF vf N node_guid GUID; ip link set PF vf N port_guid GUID", "")
	case p.LinkLayer == ibdev.LinkInfiniBand && (p.State == ibdev.PortInit || p.State == ibdev.PortArmed):
		f.Fix("look at the fabric's subnet manager: the link is there", "", "")
	case p.LinkLayer == ibdev.LinkEthernet && strings.HasSuffix(phys.Text, "Disabled") && len(devs) == 1:
		f.Fix("set the network device up; if it is, look at the cable and the switch", "ip link set "+devs[0]+" up", "")
	case p.LinkLayer == ibdev.LinkEthernet:
		f.Fix("look at the cable and the switch", "", "")
	}
}

// noGUID reports whether the GUID of an RDMA device is zero. A virtual function has no GUID until one is set by the
// physical function (ip-link(8), vf node_guid).
func noGUID(l *check.Look, n drivers.NIC) bool {
	r := l.Read(check.IBDir(n), "node_guid")
	return r.Err == nil && strings.Trim(r.Text, "0:") == "" && r.Text != ""
}

func firmware(l *check.Look) {
	byBoard := map[string][]string{}
	var boards []string
	for _, n := range l.Subject.NICs {
		if n.Software {
			continue
		}
		version, board := l.Read(check.IBDir(n), "fw_ver"), l.Read(check.IBDir(n), "board_id")
		if version.Err != nil {
			if version.Gone() {
				l.Pass(n.Name, version.At(), "its driver reports no version").Expect = ""
			} else {
				l.Unread(n.Name, version)
			}
			continue
		}
		if version.Text == "" {
			l.Unknown(n.Name, version.At(), "empty")
			continue
		}
		if board.Err != nil && !board.Gone() {
			l.Unread(n.Name, board) // boards of other kinds have firmware of their own
			continue
		}
		kind := n.Importer.Driver + " " + board.Text
		if byBoard[kind] == nil {
			boards = append(boards, kind)
		}
		if !slices.Contains(byBoard[kind], version.Text) {
			byBoard[kind] = append(byBoard[kind], version.Text)
		}
	}
	for _, kind := range boards {
		at := []string{"/sys/class/infiniband/*/fw_ver"}
		name := strings.TrimSpace(kind)
		if v := byBoard[kind]; len(v) > 1 {
			l.Warn(name, at, "%s", strings.Join(v, ", "))
		} else {
			l.Pass(name, at, "%s", v[0])
		}
	}
	if len(l.Found) == 0 {
		l.Skip("no RDMA hardware")
	}
}

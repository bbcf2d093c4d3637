// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/placement"
)

var nicChecks = []Check{
	{ID: "NIC-PRESENT", Title: "There is an RDMA device", Worst: ResultFail, run: (*look).nicPresent,
		Expect: "a device in /sys/class/infiniband, of each NIC that can have one", Why: "Without its RDMA driver a network card is a network card.",
		Fix: Remedy{Change: "load the RDMA driver of the NIC", Command: "modprobe mlx5_ib"}, Ref: "/sys/class/infiniband"},
	{ID: "NIC-UVERBS", Title: "Programs can open the NIC", Worst: ResultFail, run: (*look).nicUverbs,
		Expect: "a device file that can be opened", Why: "EACCES is a matter of the file's mode, EPERM of the container's device filter; a container needs rdma_cm, too.",
		Fix: Remedy{Change: "load ib_uverbs; in a container, give it the device", Command: "modprobe ib_uverbs"}, Ref: "k8s-rdma-shared-dev-plugin"},
	{ID: "NIC-DRIVER-DMABUF", Title: "The NIC's driver imports dma-bufs", Worst: ResultFail, run: (*look).nicImports,
		Expect: "a driver with reg_user_mr_dmabuf on this kernel", Why: "Others answer EOPNOTSUPP to every registration of a dma-buf.",
		Fix: Remedy{Change: "use a NIC whose driver imports dma-bufs on this kernel, as mlx5 and efa do from 6.1 on"}, Ref: "drivers/infiniband/hw/*"},
	{ID: "NIC-DMABUF-PROBE", Title: "The driver itself says that it imports dma-bufs", Worst: ResultFail, run: (*look).nicProbe,
		Expect: "EBADF to a registration of descriptor -1", Why: "It is the one answer that holds for drivers of any origin.",
		Fix: Remedy{Change: "update the NIC's driver, or the kernel"}, Ref: "NVIDIA/nccl#778"},
	{ID: "NIC-PROVIDER-LIB", Title: "libibverbs can register dma-bufs", Worst: ResultWarn, run: (*look).verbsLibrary,
		Expect: "libibverbs.so.1.12 or later (rdma-core 34)", Why: "ibv_reg_dmabuf_mr came with that version.",
		Fix: Remedy{Change: "update rdma-core; in a container, that of the image"}, Ref: "IBVERBS_1.12"},
	{ID: "NIC-MODE", Title: "How the NIC imports is known", Worst: ResultFail, run: (*look).nicMode,
		Expect: "dynamic, revocable or pinned", Why: "Whether the NIC follows moves decides what amdgpu, xe and vfio-pci do.",
		Fix: Remedy{Change: "prove it by a registration under trace", Command: "dmabuf-reg verify --trace"}, Ref: "drivers/infiniband/core/umem_dmabuf.c"},
	{ID: "NIC-DATADIRECT", Title: "Direct data takes a way that is as good", Worst: ResultWarn, run: (*look).dataDirect,
		Expect: "no second function that moves data, or one that reaches the GPU as well", Why: "A ConnectX-8 can have a second function for the data. Programs that ask for it (NCCL does) have their buffers registered by that one, which pins, has a way of its own, and wants buffers that start at a page or at 2 MiB.",
		Fix: Remedy{Change: "look at the way of the other function, in topo"}, Ref: "meta-pytorch/torchcomms#3027"},
	{ID: "NIC-OFED", Title: "The NIC's driver is the kernel's own", Worst: ResultWarn, run: (*look).ofed,
		Expect: "no module from elsewhere", Why: "MLNX_OFED and DOCA bring drivers of their own: what a kernel's version says is not true of them.",
		Fix: Remedy{Change: "go by the probe of this machine, not by the version"}, Ref: "ROCm/mori#481"},
	{ID: "NIC-EFA-GEN", Title: "Libraries use dma-bufs with this EFA", Worst: ResultWarn, run: (*look).efa,
		Expect: "an EFA of a later generation than the third", Why: "aws-ofi-nccl turns dma-bufs off for the first three.",
		Fix: Remedy{Change: "use a version of aws-ofi-nccl that knows the device"}, Ref: "aws-ofi-nccl#848"},
	{ID: "NIC-BNXT-FLAG", Title: "The NIC's plugin asks for dma-bufs", Worst: ResultWarn, run: (*look).bnxt,
		Expect: "no NIC of bnxt_re, a plugin that does, or no peer memory to fall back to", Why: "A plugin for NCCL that leaves the flag out falls back to peer memory without a word.",
		Fix: Remedy{Change: "update the plugin"}, Ref: "ROCm/rocm-systems#6830"},
	{ID: "NIC-STATE", Title: "The ports are up", Worst: ResultWarn, run: (*look).nicState,
		Expect: "ACTIVE", Why: "A port that is down registers memory, and moves nothing.",
		Fix: Remedy{Change: "look at the cable and the switch; on InfiniBand at the subnet manager, too"}, Ref: "/sys/class/infiniband/*/ports/*/state"},
	{ID: "NIC-FW", Title: "NICs of one kind have one firmware", Worst: ResultWarn, run: (*look).firmware,
		Expect: "one version for each kind of board", Why: "What differs between firmwares looks like chance.",
		Fix: Remedy{Change: "bring all to one version"}, Ref: "/sys/class/infiniband/*/fw_ver"},
}

// perNIC runs f for each NIC, and skips where there is none.
func (l *look) perNIC(f func(NIC)) {
	if len(l.s.NICs) == 0 {
		l.skip("no RDMA device")
	}
	for _, n := range l.s.NICs {
		f(n)
	}
}

func ibDir(n NIC) string { return path.Join("sys/class/infiniband", n.Name) }

func (l *look) nicPresent() {
	at := []string{"/sys/class/infiniband"}
	names, r := l.list("sys/class/infiniband")
	lost, missing := l.withoutRDMA(), l.missing(names)
	switch {
	case len(l.s.NICs) > 0:
		l.pass("", at, "%s", plural(len(l.s.NICs), "RDMA device"))
	case r.err != nil && !r.gone():
		l.unread("", r)
	case len(missing) == 0:
		l.noNIC() // names the cards
		return
	}
	for _, n := range l.s.NICs {
		if _, ports := l.list(ibDir(n), "ports"); ports.err != nil && !ports.gone() {
			l.unread(n.Name, ports)
		}
	}
	for _, name := range missing {
		l.unknown(name, []string{"/sys/class/infiniband/" + name}, "it is there, and leads to no device that can be read")
	}
	for _, f := range lost {
		f.say(l)
	}
}

// missing are RDMA devices that are listed, and of which nothing can be read.
func (l *look) missing(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		_, err := l.m.sys.Resolve(path.Join("class/infiniband", name))
		return err == nil
	})
}

func (l *look) nicUverbs() {
	l.perNIC(func(n NIC) {
		switch {
		case n.Uverbs == "":
			if _, r := l.list("sys/class/infiniband_verbs"); r.err != nil && !r.gone() {
				l.unread(n.Name, r)
				return
			}
			l.fail(n.Name, []string{"/sys/class/infiniband_verbs"}, "ib_uverbs does not serve it")
		case l.s.Live.Opens == nil:
			l.pass(n.Name, []string{"/sys/class/infiniband_verbs"}, "ib_uverbs serves it").Expect = ""
		default:
			l.opened(ResultFail, n.Name, strings.TrimPrefix(n.Uverbs, "/"))
		}
	})
	if len(l.s.NICs) > 0 && l.s.Live.Opens != nil {
		l.manager()
	}
}

// manager reports the connection manager's device file. Programs that connect by
// themselves, as NCCL does, do without it: it is no failure.
func (l *look) manager() {
	f, missing := l.opened(ResultWarn, "rdma_cm", "dev/infiniband/rdma_cm")
	if missing {
		f.fix("load rdma_ucm, without which programs cannot connect by IP addresses; in a container, give it the device", "modprobe rdma_ucm", "")
	}
	if f.Result == ResultUnknown {
		f.aside()
	}
}

func (l *look) nicImports() {
	l.perNIC(func(n NIC) {
		i := n.Importer
		at := []string{"/" + ibDir(n) + "/device/driver"}
		switch i.Kind {
		case NoImporter:
			f := l.fail(n.Name, at, "%s of %s does not", i.driver(), l.m.Kernel.Release)
			if i.NoODP {
				f.Read += ": it is built without " + configODP
				f.fix("run a kernel that is built with it", configODP+"=y", "")
			}
		case KindUnknown:
			l.unknown(n.Name, at, "%s, of which that is not known here", i.driver()).fix("ask the driver", "dmabuf-reg devices", "")
		default:
			l.pass(n.Name, at, "%s of %s does", i.driver(), l.m.Kernel.Release)
		}
	})
}

func (l *look) nicProbe() {
	if l.s.Live.Imports == nil {
		l.skip("this is a copy of a machine")
		return
	}
	l.perNIC(func(n NIC) {
		at := []string{n.Uverbs}
		s, err := l.s.Live.Imports(n.Name)
		read := s.Reason
		if s.Errno != 0 {
			read = errno.Name(s.Errno)
		}
		switch {
		case err != nil:
			l.unknown(n.Name, at, "%v", err)
		case s.DMABufKernel == ibvfd.Yes:
			l.pass(n.Name, at, "%s", read)
		case s.DMABufKernel == ibvfd.No:
			f := l.fail(n.Name, at, "%s", read)
			if s.Remedy != "" {
				f.fix(s.Remedy, "", "")
			}
		default:
			l.unknown(n.Name, at, "%s", read)
		}
	})
}

// verbsDirs are where distributions put libraries.
var verbsDirs = []string{"usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib", "usr/local/lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"}

func (l *look) verbsLibrary() {
	if len(l.s.NICs) == 0 {
		l.skip("no RDMA device")
		return
	}
	looked := false
	for _, dir := range verbsDirs {
		names, r := l.list(dir)
		looked = looked || r.err == nil
		for _, name := range names {
			rest, ok := strings.CutPrefix(name, "libibverbs.so.1.")
			if !ok {
				continue
			}
			minor, _, _ := strings.Cut(rest, ".")
			n, err := strconv.Atoi(minor)
			at := []string{r.where + "/" + name}
			switch {
			case err != nil:
				l.unknown("", at, "its version is not understood")
			case n < 12:
				l.warn("", at, "version 1.%d", n)
			default:
				l.wholeLibrary(n, l.read(dir, name))
			}
			return
		}
	}
	if looked {
		l.warn("", nil, "no libibverbs was found").fix("install rdma-core's libibverbs: the packages libibverbs1 and ibverbs-providers of Debian and Ubuntu, libibverbs of RHEL and SLES", "", "")
		return
	}
	l.unknown("", nil, "libraries are not here")
}

// wholeLibrary passes a libibverbs that is new enough by its name, if it is a library. Of one
// that names no provider, as of a static one, a snapshot has nothing.
func (l *look) wholeLibrary(minor int, r reading) {
	const elf = "\x7fELF"
	switch {
	case r.err != nil:
		l.unread("", r)
	case strings.HasPrefix(r.all, elf) || len(providersIn(r.all)) > 0:
		l.pass("", r.at(), "version 1.%d", minor)
	case r.text == "":
		l.unknown("", r.at(), "version 1.%d by its name; it is empty, or a snapshot has nothing of it", minor)
	default:
		l.unknown("", r.at(), "version 1.%d by its name; it is no library", minor)
	}
}

func (l *look) nicMode() {
	l.perNIC(func(n NIC) {
		switch k := n.Importer.Kind; k {
		case NoImporter:
			l.say(ResultSkip, n.Name, nil, "it imports no dma-bufs")
		case KindUnknown:
			l.unknown(n.Name, nil, "%s, of which that is not known here", n.Importer.driver())
		default:
			l.pass(n.Name, nil, "%v", k)
		}
	})
}

func (l *look) ofed() {
	l.perNIC(func(n NIC) {
		d, ok := rdmaDrivers[n.Importer.Driver]
		if !ok {
			l.say(ResultSkip, n.Name, nil, "%s is not one of those that were read", n.Importer.driver())
			return
		}
		version := l.read("sys/module", d.module, "version")
		at := []string{"/sys/module/" + d.module + "/taint", version.where}
		switch l.m.outOfTree(d.module) {
		case placement.No:
			l.pass(n.Name, at, "%s is the kernel's own", d.module)
		case placement.Yes:
			l.warn(n.Name, at, "%s", strings.TrimSpace(fmt.Sprintf("%s is not the kernel's own: %s", d.module, version.text)))
		default:
			l.unknown(n.Name, at, "whose %s is is not known", d.module)
		}
	})
}

// noFunction is of a NIC that has a driver of PCI functions, and is none, as in a copy
// without the links that lead to it.
const noFunction = "which PCI function it is is not known"

func (l *look) efa() {
	nics := l.imported("efa")
	if len(nics) == 0 {
		l.skip("no EFA")
	}
	for _, n := range nics {
		if n.Importer.PCI == nil {
			l.unknown(n.Name, nil, noFunction)
			continue
		}
		f := l.function(*n.Importer.PCI)
		at := []string{"/sys/" + f.dir + "/device"}
		switch {
		case f.err != nil:
			l.unknown(n.Name, at, "%s", reading{err: f.err}.why())
		case f.Device >= 0xefa0 && f.Device <= 0xefa2:
			l.warn(n.Name, at, "%04x, of generation %d", f.Device, f.Device-0xefa0+1)
		default:
			l.pass(n.Name, at, "%04x", f.Device)
		}
	}
}

func (l *look) bnxt() {
	nics := l.imported("bnxt_en")
	if len(nics) == 0 {
		l.skip("no NIC of bnxt_re")
	}
	peers, at := l.there("sys/kernel/mm/memory_peers")
	for _, n := range nics {
		if peers == placement.No {
			l.pass(n.Name, at, "there is no peer memory to fall back to")
			continue
		}
		l.unknown(n.Name, at, "no file says what the plugin does")
	}
}

func (l *look) nicState() {
	l.perNIC(func(n NIC) {
		if len(n.Ports) == 0 {
			l.unknown(n.Name, []string{"/" + ibDir(n) + "/ports"}, "no port can be read")
		}
		for _, p := range n.Ports {
			r := l.read(ibDir(n), "ports", strconv.Itoa(p.Num), "state")
			switch {
			case r.err != nil:
				l.unread(portName(n, p), r)
			case r.text == "":
				l.unknown(portName(n, p), r.at(), "empty")
			case p.State == ibvfd.PortActive:
				l.pass(portName(n, p), r.at(), "%s", r.text)
			default:
				l.inactive(n, p, r)
			}
		}
	})
}

// inactive says more of a port that is down. Drivers of Ethernet call it disabled
// without a carrier as well as before somebody has set the network device up.
func (l *look) inactive(n NIC, p ibvfd.PortInfo, state reading) {
	at, read := state.at(), state.text
	phys := l.read(portDir(n, p, "phys_state"))
	if phys.err == nil && phys.text != "" {
		at, read = append(at, phys.where), read+", phys_state "+phys.text
	}
	f := l.warn(portName(n, p), at, "%s", read)
	devs := netDevs(n, p)
	switch {
	case p.LinkLayer == ibvfd.LinkInfiniBand && (p.State == ibvfd.PortInit || p.State == ibvfd.PortArmed):
		f.fix("look at the fabric's subnet manager: the link is there", "", "")
	case p.LinkLayer == ibvfd.LinkEthernet && strings.HasSuffix(phys.text, "Disabled") && len(devs) == 1:
		f.fix("set the network device up; if it is, look at the cable and the switch", "ip link set "+devs[0]+" up", "")
	case p.LinkLayer == ibvfd.LinkEthernet:
		f.fix("look at the cable and the switch", "", "")
	}
}

func portName(n NIC, p ibvfd.PortInfo) string { return fmt.Sprintf("%s/%d", n.Name, p.Num) }

func (l *look) firmware() {
	byBoard := map[string][]string{}
	var boards []string
	for _, n := range l.s.NICs {
		if n.Software {
			continue
		}
		version, board := l.read(ibDir(n), "fw_ver"), l.read(ibDir(n), "board_id")
		if version.err != nil {
			if version.gone() {
				l.pass(n.Name, version.at(), "it tells none").Expect = ""
			} else {
				l.unread(n.Name, version)
			}
			continue
		}
		if version.text == "" {
			l.unknown(n.Name, version.at(), "empty")
			continue
		}
		if board.err != nil && !board.gone() {
			l.unread(n.Name, board) // boards of other kinds have firmware of their own
			continue
		}
		kind := n.Importer.Driver + " " + board.text
		if byBoard[kind] == nil {
			boards = append(boards, kind)
		}
		if !slices.Contains(byBoard[kind], version.text) {
			byBoard[kind] = append(byBoard[kind], version.text)
		}
	}
	for _, kind := range boards {
		at := []string{"/sys/class/infiniband/*/fw_ver"}
		name := strings.TrimSpace(kind)
		if v := byBoard[kind]; len(v) > 1 {
			l.warn(name, at, "%s", strings.Join(v, ", "))
		} else {
			l.pass(name, at, "%s", v[0])
		}
	}
	if len(l.found) == 0 {
		l.skip("no RDMA hardware")
	}
}

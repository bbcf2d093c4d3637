// SPDX-License-Identifier: Apache-2.0

package hostcheck

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// Environment has the checks of what the program may see.
var Environment = []check.Check{
	{ID: "ENV-CFGSPACE", Title: "All of the configuration space can be read", Worst: p2p.ResultFail, Run: configSpace, Links: []chain.Link{chain.Decision, chain.Fabric},
		Expect: "all bytes of each GPU, NIC and port", Why: "The registers of ACS, translation and link control lie behind the first 64 bytes. The kernel shows a process without CAP_SYS_ADMIN in the first user namespace only those 64.",
		Fix: chain.Remedy{Change: "look again as root of the host", Command: "sudo p2pcheck"}, Ref: "pci_read_config()",
		ByHand: "head -c 4096 /sys/bus/pci/devices/FUNCTION/config | wc -c"},
	{ID: "ENV-CAPS", Title: "This program may look at everything", Worst: p2p.ResultWarn, Run: capabilities, Links: []chain.Link{chain.Fabric, chain.Log, chain.Proof},
		Expect: "CAP_SYS_ADMIN, CAP_SYSLOG, CAP_IPC_LOCK, CAP_BPF, CAP_PERFMON and CAP_NET_RAW", Why: "Without one of these capabilities the kernel refuses some files or system calls: their answers stay unknown, and programs that need them fail.",
		Fix: chain.Remedy{Change: "run as root; in a container give it the capabilities, too", Command: "--cap-add SYS_ADMIN --cap-add SYSLOG --cap-add IPC_LOCK --cap-add BPF --cap-add PERFMON --cap-add NET_RAW"}, Ref: "capabilities(7)",
		ByHand: "grep CapEff /proc/self/status"},
	{ID: "ENV-CONTAINER", Title: "The whole machine is seen", Worst: p2p.ResultWarn, Run: container,
		Expect: "no container", Why: "A container sees its own limits, devices and network, and a part of /proc and /sys.",
		Fix: chain.Remedy{Change: "run on the host, or mount the host's files and name them", Command: "p2pcheck --root /host"}, Ref: "namespaces(7)",
		ByHand: "readlink /proc/self/ns/user /proc/self/ns/pid"},
	{ID: "ENV-VM", Title: "This is no virtual machine", Worst: p2p.ResultWarn, Run: virtual, Links: []chain.Link{chain.Fabric},
		Expect: "no hypervisor", Why: "A guest sees the ports that the hypervisor made up, not those that its traffic passes: links, ACS and distances are not the real ones.",
		Fix: chain.Remedy{Change: "check the host as well"}, Ref: "NCCL's documentation on virtual machines",
		ByHand: "grep -c hypervisor /proc/cpuinfo\ncat /sys/class/dmi/id/product_name"},
	{ID: "ENV-NETNS", Title: "RDMA devices are not hidden in another namespace", Worst: p2p.ResultWarn, Run: namespaces,
		Expect: "an RDMA device in this namespace, or shared mode (rdma system)", Why: "In exclusive mode a device is visible only in the namespace that it was moved to.",
		Fix: chain.Remedy{Change: "move the device here; or share all, which the kernel refuses (EBUSY) while there is a network namespace but the first: stop the containers for it", Command: "rdma system set netns shared"}, Ref: "rdma-system(8)",
		ByHand: "ls /sys/class/infiniband\ncat /sys/module/ib_core/parameters/netns_mode"},
}

func configSpace(l *check.Look) {
	all := l.All()
	if len(all) == 0 {
		l.Skip("no GPU and no NIC on PCI")
	}
	for _, f := range all {
		at := []string{"/sys/" + f.Dir + "/config"}
		var err error
		if err = f.CfgErr; err == nil {
			if _, err = f.Config.ACS(); err == nil {
				_, _, err = f.Config.Express()
			}
		}
		switch {
		case errors.Is(err, pci.ErrTruncated):
			l.Unknown(f.PCI.String(), at, "only the beginning").AsRoot(l.Machine)
		case err != nil:
			l.Unknown(f.PCI.String(), at, "%s", machine.Reading{Err: err}.Why())
		case f.Config.Unreachable():
			l.Warn(f.PCI.String(), at, "256 bytes, of a PCI Express function: the kernel itself sees no ACS").Fix("let the firmware describe the extended configuration space (ECAM), and take pci=nommconf away", "", "")
		default:
			l.Pass(f.PCI.String(), at, "all of it")
		}
	}
}

func capabilities(l *check.Look) {
	caps, r := machine.Effective(l.Read("proc/self/status"))
	if r.Err != nil {
		l.Unread("", r)
		return
	}
	var missing, flags []string
	for _, w := range append(slices.Clone(machine.Wanted), machine.RawPackets) {
		if caps>>w.Bit&1 == 0 {
			missing = append(missing, fmt.Sprintf("%s (%s)", w.Name, w.Lost))
			flags = append(flags, "--cap-add "+strings.TrimPrefix(w.Name, "CAP_")) // Docker's flag takes one capability
		}
	}
	if len(missing) > 0 {
		f := l.Warn("", r.At(), "without %s", strings.Join(missing, ", "))
		if in, _, _ := check.InContainer(l); in == placement.No {
			f.AsRoot(l.Machine)
		} else {
			f.Fix("run as root, for another user of a container does not get them, and give them to the container", strings.Join(flags, " "), "")
		}
		return
	}
	l.Pass("", r.At(), "all of them")
}

func container(l *check.Look) {
	apart(l)
	switch in, why, where := check.InContainer(l); in {
	case placement.Yes:
		l.Warn("", where, "%s", why)
	case placement.No:
		l.Pass("", where, "%s", why)
	default:
		l.Unknown("", where, "%s", why)
	}
}

func virtual(l *check.Look) {
	switch v := l.Machine.Virtual; v.Is {
	case placement.Yes:
		l.Warn("", v.Where, "%s", v.Why)
	case placement.No:
		l.Pass("", v.Where, "%s", v.Why)
	default:
		l.Unknown("", v.Where, "%s", v.Why)
	}
}

func namespaces(l *check.Look) {
	devices, r := l.List("sys/class/infiniband")
	mode := l.Read("sys/module/ib_core/parameters/netns_mode")
	switch {
	case r.Err == nil && len(devices) > 0:
		l.Pass("", r.At(), "%s", human.Plural(len(devices), "RDMA device"))
	case r.Err != nil && !r.Gone():
		l.Unread("", r)
	case mode.Gone():
		l.Skip("no RDMA device, and no RDMA driver is loaded")
	case mode.Err != nil:
		l.Unread("", mode)
	case mode.Text == "N":
		l.Warn("", mode.At(), "exclusive mode, and no RDMA device in this namespace")
	case mode.Text == "Y":
		l.Pass("", mode.At(), "shared mode, and no RDMA device")
	default:
		l.Unknown("", mode.At(), "%q", mode.Text)
	}
}

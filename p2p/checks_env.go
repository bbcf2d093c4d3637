// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/placement"
)

var environmentChecks = []Check{
	{ID: "ENV-CFGSPACE", Title: "All of the configuration space can be read", Worst: ResultFail, run: (*look).configSpace,
		Expect: "all bytes of each GPU, NIC and port", Why: "ACS, translation and link control lie behind the 64 bytes that the kernel shows to whoever is not root in the first user namespace.",
		Fix: Remedy{Change: "look again as root of the host", Command: "sudo p2pcheck"}, Ref: "pci_read_config()"},
	{ID: "ENV-CAPS", Title: "This program may look at everything", Worst: ResultWarn, run: (*look).capabilities,
		Expect: "CAP_SYS_ADMIN, CAP_SYSLOG, CAP_IPC_LOCK, CAP_BPF, CAP_PERFMON and CAP_NET_RAW", Why: "Each one that is missing leaves something unknown, or keeps a program from something.",
		Fix: Remedy{Change: "run as root; in a container give it the capabilities, too", Command: "--cap-add SYS_ADMIN --cap-add SYSLOG --cap-add IPC_LOCK --cap-add BPF --cap-add PERFMON --cap-add NET_RAW"}, Ref: "capabilities(7)"},
	{ID: "ENV-CONTAINER", Title: "The whole machine is seen", Worst: ResultWarn, run: (*look).container,
		Expect: "no container", Why: "A container sees its own limits, devices and network, and a part of /proc and /sys.",
		Fix: Remedy{Change: "run on the host, or mount the host's files and name them", Command: "p2pcheck --root /host"}, Ref: "namespaces(7)"},
	{ID: "ENV-VM", Title: "This is no virtual machine", Worst: ResultWarn, run: (*look).virtual,
		Expect: "no hypervisor", Why: "A guest sees the ports that the hypervisor made up, not those that its traffic passes: links, ACS and distances are not the real ones.",
		Fix: Remedy{Change: "check the host as well"}, Ref: "NCCL's documentation on virtual machines"},
	{ID: "ENV-NETNS", Title: "RDMA devices are not hidden in another namespace", Worst: ResultWarn, run: (*look).namespaces,
		Expect: "RDMA devices, or that all namespaces share them", Why: "In exclusive mode a device is seen in the namespace only that it was moved to.",
		Fix: Remedy{Change: "move the device here; or share all, which the kernel refuses (EBUSY) while there is a network namespace but the first: stop the containers for it", Command: "rdma system set netns shared"}, Ref: "rdma-system(8)"},
}

func (l *look) configSpace() {
	all := l.all()
	if len(all) == 0 {
		l.skip("no GPU and no NIC on PCI")
	}
	for _, f := range all {
		at := []string{"/sys/" + f.dir + "/config"}
		var err error
		if err = f.cfgErr; err == nil {
			if _, err = f.config.ACS(); err == nil {
				_, _, err = f.config.Express()
			}
		}
		switch {
		case errors.Is(err, pci.ErrTruncated):
			l.unknown(f.PCI.String(), at, "only the beginning").asRoot(l.m)
		case err != nil:
			l.unknown(f.PCI.String(), at, "%s", reading{err: err}.why())
		case f.config.Unreachable():
			l.warn(f.PCI.String(), at, "256 bytes, of a PCI Express function: the kernel itself sees no ACS").fix("let the firmware describe the extended configuration space (ECAM), and take pci=nommconf away", "", "")
		default:
			l.pass(f.PCI.String(), at, "all of it")
		}
	}
}

type capability struct {
	bit        uint
	name, lost string
}

// wanted are capabilities, and what is unknown without.
var wanted = []capability{
	{21, "CAP_SYS_ADMIN", "ACS, links, tracing"},
	{34, "CAP_SYSLOG", "the kernel's log and symbols"},
	{14, "CAP_IPC_LOCK", "registrations beyond the limit"},
	{39, "CAP_BPF", "tracing"},
	{38, "CAP_PERFMON", "tracing"},
}

// rawPackets is what programs with queue pairs for raw packets need, and nothing here.
var rawPackets = capability{13, "CAP_NET_RAW", "queue pairs for raw packets"}

// effective are the capabilities in a process's status.
func effective(r reading) (uint64, reading) {
	text, ok := r.line("CapEff")
	n, err := strconv.ParseUint(text, 16, 64)
	if r.err == nil && (!ok || err != nil) {
		r.err = errors.New("it has no CapEff")
	}
	return n, r
}

func (l *look) capabilities() {
	caps, r := effective(l.read("proc/self/status"))
	if r.err != nil {
		l.unread("", r)
		return
	}
	var missing, flags []string
	for _, w := range append(slices.Clone(wanted), rawPackets) {
		if caps>>w.bit&1 == 0 {
			missing = append(missing, fmt.Sprintf("%s (%s)", w.name, w.lost))
			flags = append(flags, "--cap-add "+strings.TrimPrefix(w.name, "CAP_")) // Docker takes one with each
		}
	}
	if len(missing) > 0 {
		f := l.warn("", r.at(), "without %s", strings.Join(missing, ", "))
		if in, _, _ := l.inContainer(); in == placement.No {
			f.asRoot(l.m)
		} else {
			f.fix("run as root, for another user of a container does not get them, and give them to the container", strings.Join(flags, " "), "")
		}
		return
	}
	l.pass("", r.at(), "all of them")
}

// Names of the first namespaces: include/linux/proc_ns.h.
const (
	firstUser = "user:[4026531837]"
	firstPID  = "pid:[4026531836]"
)

// inContainer looks for the signs of one.
func (l *look) inContainer() (placement.Answer, string, []string) {
	for _, name := range []string{".dockerenv", "run/.containerenv"} {
		if there, where := l.there(name); there == placement.Yes {
			return placement.Yes, where[0] + " is there", where
		}
	}
	var unread []string // control groups
	for _, process := range []string{"1", "self"} {
		r := l.read("proc", process, "cgroup")
		if !r.gone() && !strings.Contains(r.text, ":/") {
			unread = append(unread, r.where)
		}
		for _, word := range []string{"docker", "kubepods", "containerd", "libpod", "lxc"} {
			if strings.Contains(r.text, word) {
				return placement.Yes, "process " + process + " is in a control group of " + word, r.at()
			}
		}
	}
	// A container can have the host's processes, and files of its own.
	own, first := l.link("proc/self/ns/mnt"), l.link("proc/1/ns/mnt")
	root, where, err := l.rootFileSystem()
	switch {
	case own.err == nil && first.err == nil && own.text != first.text:
		return placement.Yes, "this is another mount namespace than that of process 1", own.at()
	case (own.err != nil || first.err != nil) && root == "overlay":
		return placement.Yes, "the root is an overlay, as of a container's image", where
	}
	user, pid := l.link("proc/self/ns/user"), l.link("proc/self/ns/pid")
	switch {
	case (own.err != nil || first.err != nil) && err != nil:
		return placement.AnswerUnknown, "neither the mount namespace of process 1 can be read nor what is mounted at the root", where
	case unread != nil:
		return placement.AnswerUnknown, "the control groups cannot be read", unread
	case user.err != nil || pid.err != nil:
		return placement.AnswerUnknown, "the namespaces cannot be read", user.at()
	case user.text != firstUser:
		return placement.Yes, "this is another user namespace than the first", user.at()
	case pid.text != firstPID:
		return placement.Yes, "this is another PID namespace than the first", pid.at()
	}
	return placement.No, "this is the first user and PID namespace", append(user.at(), pid.at()...)
}

// rootFileSystem is the type of what is mounted at the root; "" if no line says so.
func (l *look) rootFileSystem() (string, []string, error) {
	mounts, err := l.m.proc.Mounts()
	at := []string{"/proc/self/mountinfo"}
	if err == nil && len(mounts) == 0 {
		err = errNotCopied
	}
	for _, m := range slices.Backward(mounts) {
		if m.Point == "/" {
			return m.Type, at, nil
		}
	}
	return "", at, err
}

func (l *look) container() {
	l.apart()
	switch in, why, where := l.inContainer(); in {
	case placement.Yes:
		l.warn("", where, "%s", why)
	case placement.No:
		l.pass("", where, "%s", why)
	default:
		l.unknown("", where, "%s", why)
	}
}

func (l *look) virtual() {
	switch v := l.m.virtual; v.is {
	case placement.Yes:
		l.warn("", v.where, "%s", v.why)
	case placement.No:
		l.pass("", v.where, "%s", v.why)
	default:
		l.unknown("", v.where, "%s", v.why)
	}
}

func (l *look) namespaces() {
	devices, r := l.list("sys/class/infiniband")
	mode := l.read("sys/module/ib_core/parameters/netns_mode")
	switch {
	case r.err == nil && len(devices) > 0:
		l.pass("", r.at(), "%s", plural(len(devices), "RDMA device"))
	case r.err != nil && !r.gone():
		l.unread("", r)
	case mode.gone():
		l.skip("no RDMA device, and no RDMA driver is loaded")
	case mode.err != nil:
		l.unread("", mode)
	case mode.text == "N":
		l.warn("", mode.at(), "exclusive mode, and no RDMA device in this namespace")
	case mode.text == "Y":
		l.pass("", mode.at(), "shared mode, and no RDMA device")
	default:
		l.unknown("", mode.at(), "%q", mode.text)
	}
}

// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/placement"
)

// Remedy is the one thing to change.
type Remedy struct {
	Change  string // in words
	Command string // a command, or a parameter of the kernel; "" if there is none
	Weakens string // what is given up for it; "" if nothing is
	// Direct says that with this alone the prediction is direct. Otherwise it
	// answers a question that is open, or more has to change.
	Direct bool
}

// Remedy says what to change for an importer that does not reach the memory,
// or whose prediction is unknown; nil for one that does. Where the kernel or
// its configuration decide, it is tried out: the prediction is made again for a
// machine that has changed in this one respect.
func (m *Machine) Remedy(e Exporter, i Importer) *Remedy {
	switch p := m.Predict(e, i); p.Outcome {
	case Direct:
		return nil
	case OutcomeUnknown:
		return m.find(p, e, i)
	default:
		return m.repair(p, e, i)
	}
}

// supposing is a machine like this one with another kernel.
func (m *Machine) supposing(k Kernel) *Machine {
	like := *m
	like.Kernel = k
	return &like
}

func (m *Machine) direct(e Exporter, i Importer) bool { return m.Predict(e, i).Outcome == Direct }

// find is for what is unknown.
func (m *Machine) find(p Prediction, e Exporter, i Importer) *Remedy {
	k := m.Kernel
	switch {
	case e.PCI != nil && m.silent(*e.PCI):
		return &Remedy{Change: goneGPU}
	case i.PCI != nil && m.silent(*i.PCI):
		return &Remedy{Change: "reboot, with the power off in between; if the NIC does not come back, exchange it"}
	case e.Driver == UnknownDriver:
		return &Remedy{Change: takeSnapshot, Command: "p2pcheck snapshot FILE"}
	case e.Proprietary:
		return &Remedy{Change: "install NVIDIA's open modules (GPUs from Turing on), or rely on nvidia-peermem: see NV-MODTYPE and NV-PEERMEM"}
	case e.Withheld != "":
		return &Remedy{Change: "see NV-CC and NV-DMABUF-ATTR: the driver exports nothing"}
	case e.Power != PowerAwake && m.direct(awake(e), i):
		return &Remedy{
			Change: "keep the GPU awake", Command: "echo on > /sys/bus/pci/devices/" + e.PCI.String() + "/power/control",
			Weakens: "an idle GPU no longer saves power", Direct: true,
		}
	case errors.Is(p.Decision.unread, pci.ErrTruncated):
		again := m.asRoot("as root, who sees ACS and the ports")
		return &again
	case k.Release == "":
		return &Remedy{Change: "say which kernel it is", Command: "p2pcheck --kernel RELEASE"}
	case m.config != nil && m.config.answer(configDMABuf) == placement.No:
		return &Remedy{Change: "run a kernel that is built for it", Command: configDMABuf + "=y"}
	case m.config == nil && (k.P2PDMA == placement.AnswerUnknown || i.Kind == Dynamic && k.MoveNotify == placement.AnswerUnknown):
		if k.denied {
			again := m.asRoot("as root, who may read the kernel's configuration")
			return &again
		}
		return &Remedy{Change: "show the kernel's configuration", Command: "p2pcheck --config /boot/config-" + k.Release}
	}
	if e.Driver == "" {
		return &Remedy{Change: "bind a driver to the GPU: without one nothing exports its memory"}
	}
	r := &Remedy{Change: "prove it by a registration under trace: no rule that was read covers this pair"}
	if e.PCI != nil {
		r.Command = "p2pcheck --live --gpu " + e.PCI.String() + " --nic " + anyNIC
	}
	return r
}

// anyNIC stands for a NIC's name in a command. Pair puts it there.
const anyNIC = "NIC"

// ofAll leaves the NIC out of a command, for findings of all pairs of a GPU.
func (r *Remedy) ofAll() *Remedy {
	if r == nil {
		return nil
	}
	all := *r
	if command, _, ok := strings.Cut(r.Command, " --nic "); ok {
		all.Command = command
	}
	return &all
}

// takeSnapshot is for what a file of somebody else's tool does not have.
const takeSnapshot = "take a snapshot on the node itself: it has the drivers and the kernel as well"

// goneGPU is for one that does not answer.
const goneGPU = "reboot, with the power off in between; if the GPU does not come back, reseat or exchange it"

func awake(e Exporter) Exporter {
	e.Power = PowerAwake
	return e
}

// repair is for what is staged or refused.
func (m *Machine) repair(p Prediction, e Exporter, i Importer) *Remedy {
	switch {
	case e.Class == ClassSystem:
		return &Remedy{Change: "nothing: this device has no memory of its own for a NIC to reach"}
	case m.registersNone():
		return &Remedy{
			Change: fmt.Sprintf("run a newer kernel: %v is the first that registers dma-bufs, and on %v mlx5 and efa import them", v5_12, v6_1),
			Direct: m.otherKernel(e, i) != nil,
		}
	case e.Class == ClassStaged && e.Driver == "nouveau":
		return &Remedy{Change: "install NVIDIA's open modules: nouveau exports system memory only"}
	case e.Class == ClassStaged:
		return &Remedy{Change: "nothing: this driver exports system memory only"}
	case e.Class == ClassI915 && i.Kind != NoImporter:
		return m.xe(e)
	case i.NoODP:
		with := i
		with.Kind, with.NoODP = rdmaDrivers[i.Driver].kindOn(m.Kernel), false
		return &Remedy{Change: "run a kernel that is built for it", Command: configODP + "=y", Direct: m.direct(e, with)}
	}
	if r := m.openWay(p, e, i); r != nil {
		return r
	}
	if r := m.otherKernel(e, i); r != nil {
		return r
	}
	switch {
	case p.Stage == StageDriver:
		return &Remedy{Change: "take a NIC whose hardware moves the data"}
	case i.Kind == NoImporter:
		return &Remedy{Change: "take a NIC whose driver imports dma-bufs on this kernel, as mlx5 and efa do from 6.1 on"}
	case e.Class == ClassVFIO && i.Kind == Pinned:
		return &Remedy{Change: "take a NIC that can be told to stop, as mlx5 can"}
	case !i.PeerToPeer:
		return &Remedy{Change: "take a NIC whose driver imports peer-to-peer memory: this one does not"}
	case i.PCI == nil:
		return &Remedy{Change: "take an RDMA device that is a PCI function: for one below none there is no peer-to-peer"}
	}
	return m.move(e, i)
}

// xe is the other driver of Intel's GPUs.
func (m *Machine) xe(e Exporter) *Remedy {
	r := &Remedy{
		Change:  "let the driver xe have the GPU, if it knows it: i915 exports system memory only",
		Weakens: "for a GPU that xe does not take by itself it is experimental",
	}
	if e.PCI == nil || e.Driver != "i915" {
		return r // the software GPU's
	}
	if f, err := pci.ReadFunction(m.sys, *e.PCI); err == nil {
		r.Command = m.forced("i915.force_probe", fmt.Sprintf("!%04x", f.Device)) + " " + m.forced("xe.force_probe", fmt.Sprintf("%04x", f.Device))
	}
	return r
}

// openWay tries the ports' ACS.
func (m *Machine) openWay(p Prediction, e Exporter, i Importer) *Remedy {
	open := m.supposing(m.Kernel)
	open.noRedirects = true
	if len(p.Decision.Redirects) == 0 || !open.direct(e, i) {
		return nil
	}
	r := m.openPorts(redirects([]Pair{{Prediction: p}}))
	r.Direct = true
	return &r
}

// openPorts is the kernel's parameter that stops ports from redirecting. The kernel
// keeps one list of them, the last: what is on its command line already is in this
// one, too, behind the new ports, for it reads up to the first entry that it does
// not understand. It separates them by ";", where GRUB's commands end.
func (m *Machine) openPorts(ports []string) Remedy {
	opened := m.openedPorts()
	kept := slices.DeleteFunc(slices.Clone(opened), func(entry string) bool { return isPort(entry, ports) })
	overruled := ""
	if m.setPorts(ports) {
		overruled = "; pci=config_acs= on the command line comes after it: take the ports out of that, or set their R and C bits to 0 there"
	}
	if len(ports) > 0 && allOpened(ports, opened) {
		return Remedy{Change: "find out what makes these ports redirect: the kernel's command line opens them already" + overruled}
	}
	all := slices.Concat(ports, kept)
	change := "let the ports on the way pass peer-to-peer traffic"
	if len(all) > 1 {
		change += ", by this parameter, which needs quotes of its own in GRUB's configuration: GRUB_CMDLINE_LINUX=\"… 'pci=…'\""
	}
	switch {
	case len(opened) > 0:
		change += "; it takes the place of the disable_acs_redir= that is there, and has its ports: the kernel keeps one list, the last"
	case m.read("proc/cmdline").err != nil:
		change += "; add the ports of a disable_acs_redir= that may be there: the command line could not be read, and the kernel keeps one list, the last"
	}
	return Remedy{
		Change:  change + overruled,
		Command: openParameter + strings.Join(all, ";"),
		Weakens: "devices below these ports reach each other past the IOMMU: not for machines that give them to different guests",
	}
}

// allOpened reports that each of the ports has an entry among those opened.
func allOpened(ports, opened []string) bool {
	for _, p := range ports {
		if !slices.ContainsFunc(opened, func(entry string) bool { return isPort(entry, []string{p}) }) {
			return false
		}
	}
	return true
}

// redirects are the ports in the way of all pairs, each once.
func redirects(pairs []Pair) []string {
	var out []string
	for _, p := range pairs {
		for _, r := range p.Prediction.Decision.Redirects {
			if port := r.PCI.String(); !slices.Contains(out, port) {
				out = append(out, port)
			}
		}
	}
	return out
}

// opening is the remedy of a pair's redirects. For pairs that reach the memory once
// their ports are open it is the one that Combine gives them, and nothing beyond
// that is opened for them. For others that gain by it, it has those ports, too: the
// kernel keeps one list. Where open ports help nothing, what does is the remedy.
func (l *look) opening(p Pair) *Remedy {
	var some func(Pair) bool
	at := &l.parameters.all
	switch {
	case p.opens():
		some, at = Pair.opens, &l.parameters.needed
	case l.m.gains(p):
		some = func(o Pair) bool { return o.opens() || l.m.gains(o) }
	default:
		return p.Remedy.ofAll()
	}
	if *at == nil {
		r := l.m.openPorts(redirects(slices.DeleteFunc(slices.Clone(l.pairs), func(o Pair) bool { return !some(o) })))
		*at = &r
	}
	r := **at
	return &r
}

// gains reports a pair for which ports that redirect make a difference: its traffic
// takes them, or they are in the way of it, perhaps beside something else.
func (m *Machine) gains(p Pair) bool {
	switch {
	case len(p.Prediction.Decision.Redirects) == 0:
		return false
	case p.opens() || p.Prediction.Outcome == Direct || p.Prediction.Outcome == OutcomeUnknown:
		return true
	}
	newer, e, i := m.later(p.GPU.Exporter, p.NIC.Importer)
	newer.noRedirects = true
	return newer.direct(e, i)
}

// Combine gives all pairs whose remedy is to open ports one parameter, with the
// ports of all of them.
func (m *Machine) Combine(pairs []Pair) {
	var bad []Pair
	for _, p := range pairs {
		if p.opens() {
			bad = append(bad, p)
		}
	}
	for i, p := range pairs {
		if p.opens() {
			r := m.openPorts(redirects(bad))
			r.Direct = p.Remedy.Direct
			pairs[i].Remedy = &r
		}
	}
}

func (p Pair) opens() bool {
	return p.Remedy != nil && strings.HasPrefix(p.Remedy.Command, openParameter)
}

const openParameter = "pci=disable_acs_redir="

// otherKernel tries the same kernel with other options, then the newest one
// that was read.
func (m *Machine) otherKernel(e Exporter, i Importer) *Remedy {
	k := m.Kernel
	var options []string
	if k.P2PDMA == placement.No {
		options = append(options, configP2PDMA+"=y")
	}
	built := k
	built.P2PDMA = placement.Yes
	if m.supposing(built).direct(e, i) {
		return &Remedy{Change: "run a kernel that is built for it", Command: strings.Join(options, " "), Direct: true}
	}
	if built.MoveNotify == placement.No {
		options = append(options, configMoveNotify+"=y")
		built.MoveNotify = placement.Yes
		if m.supposing(built).direct(e, i) {
			return &Remedy{Change: "run a kernel that is built for it", Command: strings.Join(options, " "), Direct: true}
		}
	}
	imports := i.Kind != NoImporter
	if k.version.cmp(v7_2) >= 0 {
		return nil
	}
	newer, e, i := m.later(e, i)
	if !newer.direct(e, i) {
		return nil
	}
	if !imports { // what a later kernel's exporters do is not the reason
		return &Remedy{
			Change: fmt.Sprintf("run Linux %v or later, built with %s=y, where %s imports dma-bufs; this kernel takes a NIC whose driver imports them, as mlx5 and efa do from 6.1 on", v7_2, configP2PDMA, i.driver()),
			Direct: true,
		}
	}
	return &Remedy{
		Change:  fmt.Sprintf("run Linux %v or later: its drivers pin GPU memory where it is, and it trusts more host bridges", v7_2),
		Command: configP2PDMA + "=y", Direct: true,
	}
}

// later is the newest kernel that was read, and what GPU and NIC are there.
func (m *Machine) later(e Exporter, i Importer) (*Machine, Exporter, Importer) {
	newer := Kernel{Release: v7_2.String(), P2PDMA: placement.Yes, MoveNotify: placement.Yes, version: v7_2}
	if e.Pin != PinByKernel {
		e.Pin = PinByKernel // the software GPU's stands for that of the kernel
	}
	if d, ok := rdmaDrivers[i.Driver]; ok {
		i.Kind = d.kindOn(newer)
	}
	return m.supposing(newer), e, i
}

// move is for a root that passes nothing.
func (m *Machine) move(e Exporter, i Importer) *Remedy {
	passes := m.supposing(m.Kernel)
	passes.trustsAll = true
	gate := e.Class == ClassNVIDIA
	switch {
	case !gate && !passes.direct(e, i):
	case m.unswitched(*e.PCI):
		return &Remedy{Change: guestSwitch, Direct: !gate || !i.ByCPU}
	default:
		return &Remedy{
			Change: fmt.Sprintf("use a NIC below one PCI switch with %v, or put this one there", *e.PCI),
			Direct: !gate || !i.ByCPU,
		}
	}
	return &Remedy{Change: "no single change helps: the reasons say what is in the way"}
}

// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// RemedyOf returns the change for an importer that does not reach the memory, or whose prediction is
// unknown; nil for an importer that reaches it. If the kernel or its configuration decides, RemedyOf
// tries the change: it predicts again for a machine that differs in this one fact.
func RemedyOf(m *machine.Machine, e drivers.Exporter, i drivers.Importer) *chain.Remedy {
	p, v := judge(m, e, i)
	switch {
	case v.Outcome() == chain.Direct:
		return nil
	case v.Outcome() == chain.OutcomeUnknown, p.Outcome == chain.OutcomeUnknown, p.Outcome == chain.Broken:
		return find(m, p, e, i)
	}
	return repair(m, p, e, i)
}

// supposing is a machine like this one with another kernel.
func supposing(m *machine.Machine, k machine.Kernel) *machine.Machine {
	like := *m
	like.Kernel = k
	return &like
}

// registers reports an importer that is predicted to get the GPU's memory. reaches also asks whether its
// traffic arrives.
func registers(m *machine.Machine, e drivers.Exporter, i drivers.Importer) bool {
	return drivers.Predict(m, e, i).Outcome == chain.Direct
}

func reaches(m *machine.Machine, e drivers.Exporter, i drivers.Importer) bool {
	_, v := judge(m, e, i)
	return v.Outcome() == chain.Direct
}

// find is the remedy for a pair whose prediction is unknown.
func find(m *machine.Machine, p drivers.Prediction, e drivers.Exporter, i drivers.Importer) *chain.Remedy {
	k := m.Kernel
	switch {
	case e.PCI != nil && m.Silent(*e.PCI):
		return &chain.Remedy{Change: GoneGPU}
	case i.PCI != nil && m.Silent(*i.PCI):
		return &chain.Remedy{Change: "reboot, with the power off in between; if the NIC does not come back, exchange it"}
	case e.Driver == drivers.UnknownDriver || i.Unplaced:
		return &chain.Remedy{Change: TakeSnapshot, Command: "p2pcheck snapshot FILE"}
	case e.Power != machine.PowerAwake && registers(m, awake(e), i):
		return &chain.Remedy{
			Change: "keep the GPU awake", Command: "echo on > /sys/bus/pci/devices/" + e.PCI.String() + "/power/control",
			Weakens: "an idle GPU no longer saves power", Direct: reaches(m, awake(e), i),
		}
	case e.Driver == "" && e.Class == drivers.ClassUnknown:
		return &chain.Remedy{Change: "bind a driver to the GPU: without one nothing exports its memory"}
	case errors.Is(p.Decision.Unread, pci.ErrTruncated):
		again := AsRoot(m, onlyRootReadsACS)
		return &again
	case k.Release == "" && m.Root != "/":
		return &chain.Remedy{Change: "take the copy again, or say which kernel it is of", Command: "p2pcheck --kernel RELEASE"}
	case k.Release == "":
		return &chain.Remedy{Change: "say which kernel it is", Command: "p2pcheck --kernel RELEASE"}
	case configDecides(m, i):
		if k.Denied {
			again := AsRoot(m, "as root: only root can read the kernel's configuration")
			return &again
		}
		if m.Root != "/" {
			return &chain.Remedy{Change: "take the copy again, with the kernel's configuration, or name the file", Command: "p2pcheck --config FILE"}
		}
		return &chain.Remedy{Change: "show the kernel's configuration", Command: "p2pcheck --config /boot/config-" + k.Release}
	}
	if p.Outcome == chain.Broken { // something is known to be in the way
		return repair(m, p, e, i)
	}
	r := &chain.Remedy{Change: "prove it by a registration under trace: no rule that was read covers this pair"}
	if e.PCI != nil {
		r.Command = "p2pcheck --live --gpu " + e.PCI.String() + " --nic " + anyNIC
	}
	return r
}

// configDecides reports a kernel whose options decide, and whose configuration was not found.
func configDecides(m *machine.Machine, i drivers.Importer) bool {
	k := m.Kernel
	return m.Config == nil && (k.P2PDMA == placement.AnswerUnknown || i.Kind == drivers.Dynamic && k.MoveNotify == placement.AnswerUnknown ||
		i.ODP == placement.AnswerUnknown && i.Driver == "mlx5_core" && !i.OutOfTree)
}

// anyNIC stands for a NIC's name in a command. Pair puts it there.
const anyNIC = "NIC"

// TakeSnapshot is the remedy if the dump of another tool lacks a file.
const TakeSnapshot = "take a snapshot on the node itself: it has the drivers and the kernel as well"

// GoneGPU is the remedy for a GPU that does not answer on PCI.
const GoneGPU = "reboot, with the power off in between; if the GPU does not come back, reseat or exchange it"

func awake(e drivers.Exporter) drivers.Exporter {
	e.Power = machine.PowerAwake
	return e
}

// repair is the remedy for a pair that is staged or refused.
func repair(m *machine.Machine, p drivers.Prediction, e drivers.Exporter, i drivers.Importer) *chain.Remedy {
	switch {
	case e.Proprietary:
		return &chain.Remedy{Change: "install the open modules (GPUs from Turing on), or rely on nvidia-peermem: see NV-MODTYPE and NV-PEERMEM"}
	case m.Config != nil && m.Config.Answer(machine.ConfigDMABuf) == placement.No:
		return &chain.Remedy{Change: "run a kernel that is built for it", Command: machine.ConfigDMABuf + "=y"}
	case p.Outcome == chain.Lost:
		return passThrough(m, e, i)
	case e.Class == drivers.ClassSystem:
		return &chain.Remedy{Change: "nothing: this device has no memory of its own for a NIC to reach"}
	case drivers.RegistersNone(m):
		return &chain.Remedy{
			Change: fmt.Sprintf("run a newer kernel: %v is the first that registers dma-bufs, and on %v mlx5 and efa import them", machine.V5_12, machine.V6_1),
			Direct: otherKernel(m, e, i) != nil,
		}
	case e.Class == drivers.ClassStaged && e.Driver == "nouveau":
		return &chain.Remedy{Change: "install NVIDIA's open modules: nouveau exports system memory only"}
	case e.Class == drivers.ClassStaged:
		return &chain.Remedy{Change: "nothing: this driver exports system memory only"}
	case e.Class == drivers.ClassI915 && i.Kind != drivers.NoImporter:
		return XeRemedy(m, e)
	case i.NoODP:
		with := i
		with.Kind, with.NoODP = drivers.RdmaDrivers[i.Driver].KindOn(m.Kernel), false
		return &chain.Remedy{Change: "run a kernel that is built for it", Command: machine.ConfigODP + "=y", Direct: reaches(m, e, with)}
	}
	if r := openWay(m, p, e, i); r != nil {
		return r
	}
	if r := otherKernel(m, e, i); r != nil {
		return r
	}
	switch {
	case p.Stage == chain.StageDriver:
		return &chain.Remedy{Change: "use a NIC whose hardware moves the data"}
	case i.Kind == drivers.NoImporter:
		return &chain.Remedy{Change: "use a NIC whose driver imports dma-bufs on this kernel, as mlx5 and efa do from 6.1 on"}
	case e.Class == drivers.ClassVFIO && i.Kind == drivers.Pinned:
		return &chain.Remedy{Change: "use a NIC whose driver can revoke a registration, as mlx5 can"}
	case !i.PeerToPeer:
		return &chain.Remedy{Change: "use a NIC whose driver imports peer-to-peer memory: this NIC's driver does not"}
	case i.PCI == nil:
		return &chain.Remedy{Change: "use an RDMA device that is a PCI function: there is no peer-to-peer with any other device"}
	}
	return move(m, e, i)
}

// passThrough is the remedy for a pair whose traffic the IOMMU blocks. It says which link is still not known
// with it.
func passThrough(m *machine.Machine, e drivers.Exporter, i drivers.Importer) *chain.Remedy {
	r := passDMA(m)
	like := supposing(m, m.Kernel)
	like.PassesDMA = true
	switch _, v := judge(like, e, i); {
	case v.Outcome() == chain.Direct:
		r.Direct = true
	case v.Outcome() == chain.OutcomeUnknown:
		if link, ok := v.Decides(); ok {
			r.Change += fmt.Sprintf("; the link %q is still not known then: prove the pair", link)
		}
	}
	return r
}

// passDMA is the kernel's parameter by which the IOMMU passes DMA through.
func passDMA(m *machine.Machine) *chain.Remedy {
	return &chain.Remedy{Change: "let the IOMMU pass DMA through", Command: m.CPU.PassThrough(), Weakens: "a device can reach all memory of the host"}
}

// XeRemedy returns the remedy to let xe drive a GPU of i915. It has a command if the GPU's device ID is
// known.
func XeRemedy(m *machine.Machine, e drivers.Exporter) *chain.Remedy {
	r := &chain.Remedy{
		Change:  "let the driver xe have the GPU, if it knows it: i915 exports system memory only",
		Weakens: "xe is experimental for a GPU that it does not take by itself",
	}
	if e.PCI == nil || e.Driver != "i915" {
		return r // the software GPU's
	}
	if f, err := pci.ReadFunction(m.Sys, *e.PCI); err == nil {
		r.Command = m.Forced("i915.force_probe", fmt.Sprintf("!%04x", f.Device)) + " " + m.Forced("xe.force_probe", fmt.Sprintf("%04x", f.Device))
	}
	return r
}

// openWay is the remedy to open the ports on the way, if that helps.
func openWay(m *machine.Machine, p drivers.Prediction, e drivers.Exporter, i drivers.Importer) *chain.Remedy {
	open := supposing(m, m.Kernel)
	open.NoRedirects = true
	if len(p.Decision.Redirects) == 0 || !registers(open, e, i) {
		return nil
	}
	ports := Redirecting([]Pair{{Prediction: p}})
	if r := PlannedRemedy(m, ports); r != nil {
		return r
	}
	r := OpenPorts(m, ports)
	r.Direct = reaches(open, e, i)
	return &r
}

// OpenPorts returns the remedy with the kernel's parameter that stops ports from redirecting. The kernel
// uses only the last list on its command line, and reads it up to the first entry that it does not
// understand. So the list has the new ports first, and then the ports that are on the command line
// already. The kernel separates ports by ";", which ends a command in GRUB.
//
// If the machine's plan decides the ACS of one of the ports, OpenPorts returns PlannedRemedy instead. If
// the command line has all ports already, the remedy has no command.
func OpenPorts(m *machine.Machine, ports []string) chain.Remedy {
	if r := PlannedRemedy(m, ports); r != nil {
		return *r
	}
	opened := m.OpenedPorts()
	kept := slices.DeleteFunc(slices.Clone(opened), func(entry string) bool { return machine.IsPort(entry, ports) })
	overruled := ""
	if m.SetPorts(ports) {
		overruled = "; pci=config_acs= on the command line comes after it: take the ports out of that, or set their R and C bits to 0 there"
	}
	if len(ports) > 0 && allOpened(ports, opened) {
		return chain.Remedy{Change: "find out why these ports still redirect: the kernel's command line opens them already" + overruled}
	}
	all := slices.Concat(ports, kept)
	change := "let the ports on the way pass peer-to-peer traffic"
	if len(all) > 1 {
		change += ", by this parameter, which needs quotes of its own in GRUB's configuration: GRUB_CMDLINE_LINUX=\"… 'pci=…'\""
	}
	switch {
	case len(opened) > 0:
		change += "; it replaces the disable_acs_redir= that is there, and contains its ports: the kernel uses only the last list"
	case m.Read("proc/cmdline").Err != nil:
		change += "; add the ports of a disable_acs_redir= that may be there: the command line could not be read, and the kernel uses only the last list"
	}
	return chain.Remedy{
		Change:  change + overruled,
		Command: OpenParameter + strings.Join(all, ";"),
		Weakens: "devices below these ports reach each other past the IOMMU: not for machines that give them to different guests",
	}
}

// allOpened reports that each of the ports has an entry among those opened.
func allOpened(ports, opened []string) bool {
	for _, p := range ports {
		if !slices.ContainsFunc(opened, func(entry string) bool { return machine.IsPort(entry, []string{p}) }) {
			return false
		}
	}
	return true
}

// Redirecting returns the ports that redirect the traffic of any pair, each once, by their addresses.
func Redirecting(pairs []Pair) []string {
	var out []string
	for _, p := range pairs {
		for _, r := range p.Prediction.Decision.Redirects {
			if port := r.PCI.String(); !slices.Contains(out, port) {
				out = append(out, port)
			}
		}
	}
	slices.Sort(out)
	return out
}

// Gains reports whether a pair is better if ports do not redirect: its traffic passes such ports, or they
// keep the pair from being direct, perhaps together with another cause.
func Gains(m *machine.Machine, p Pair) bool {
	switch {
	case len(p.Prediction.Decision.Redirects) == 0:
		return false
	case p.Opens() || p.Prediction.Outcome == chain.Direct || p.Prediction.Outcome == chain.OutcomeUnknown:
		return true
	}
	newer, e, i := later(m, p.GPU.Exporter, p.NIC.Importer)
	newer.NoRedirects = true
	return registers(newer, e, i)
}

// Opens reports whether the pair's remedy stops ports from redirecting (pci=disable_acs_redir=).
func (p Pair) Opens() bool { return opensPorts(p.Remedy) }

func opensPorts(r *chain.Remedy) bool {
	return r != nil && strings.HasPrefix(r.Command, OpenParameter)
}

// OpenParameter is the kernel's parameter that stops ports from redirecting. A list of ports follows it.
const OpenParameter = "pci=disable_acs_redir="

// otherKernel tries the same kernel with other options, then the newest one
// that was read.
func otherKernel(m *machine.Machine, e drivers.Exporter, i drivers.Importer) *chain.Remedy {
	k := m.Kernel
	var options []string
	if k.P2PDMA == placement.No {
		options = append(options, machine.ConfigP2PDMA+"=y")
	}
	built := k
	built.P2PDMA = placement.Yes
	if like := supposing(m, built); registers(like, e, i) {
		return &chain.Remedy{Change: "run a kernel that is built for it", Command: strings.Join(options, " "), Direct: reaches(like, e, i)}
	}
	if built.MoveNotify == placement.No {
		options = append(options, machine.ConfigMoveNotify+"=y")
		built.MoveNotify = placement.Yes
		if like := supposing(m, built); registers(like, e, i) {
			return &chain.Remedy{Change: "run a kernel that is built for it", Command: strings.Join(options, " "), Direct: reaches(like, e, i)}
		}
	}
	imports := i.Kind != drivers.NoImporter
	if k.Version.Cmp(machine.V7_2) >= 0 {
		return nil
	}
	newer, e, i := later(m, e, i)
	if !registers(newer, e, i) {
		return nil
	}
	if !imports { // the importer is the reason, and not a later kernel's exporters
		return &chain.Remedy{
			Change: fmt.Sprintf("run Linux %v or later, built with %s=y, where %s imports dma-bufs; or, on this kernel, use a NIC whose driver imports them, as mlx5 and efa do from 6.1 on", machine.V7_2, machine.ConfigP2PDMA, i.DriverName()),
			Direct: reaches(newer, e, i),
		}
	}
	return &chain.Remedy{
		Change:  fmt.Sprintf("run Linux %v or later: its drivers pin GPU memory where it is, and it trusts more host bridges", machine.V7_2),
		Command: machine.ConfigP2PDMA + "=y", Direct: reaches(newer, e, i),
	}
}

// later is a machine with the newest kernel of the tables, and the exporter and importer on it.
func later(m *machine.Machine, e drivers.Exporter, i drivers.Importer) (*machine.Machine, drivers.Exporter, drivers.Importer) {
	newer := machine.Kernel{Release: machine.V7_2.String(), P2PDMA: placement.Yes, MoveNotify: placement.Yes, Version: machine.V7_2}
	if e.Pin != drivers.PinByKernel {
		e.Pin = drivers.PinByKernel // the software GPU's stands for that of the kernel
	}
	if d, ok := drivers.RdmaDrivers[i.Driver]; ok {
		i.Kind = d.KindOn(newer)
	}
	return supposing(m, newer), e, i
}

// move is the remedy where the root complex does not pass the traffic.
func move(m *machine.Machine, e drivers.Exporter, i drivers.Importer) *chain.Remedy {
	passes := supposing(m, m.Kernel)
	passes.TrustsAll = true
	gate := e.Class == drivers.ClassNVIDIA
	switch {
	case !gate && !registers(passes, e, i):
	case m.Unswitched(*e.PCI):
		return &chain.Remedy{Change: machine.GuestSwitch, Direct: gate && !i.ByCPU || reaches(passes, e, i)}
	default:
		return &chain.Remedy{
			Change: fmt.Sprintf("use a NIC below one PCI switch with %v, or put this one there", *e.PCI),
			Direct: gate && !i.ByCPU || reaches(passes, e, i),
		}
	}
	return &chain.Remedy{Change: "no single change helps: the reasons say what is in the way"}
}

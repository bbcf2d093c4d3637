// SPDX-License-Identifier: Apache-2.0

package pciecheck

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/directnic"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Isolation has the checks of the IOMMU and of ACS.
var Isolation = []check.Check{
	{ID: "ISO-IOMMU-MODE", Title: "The IOMMU lets peer-to-peer pass", Worst: p2p.ResultFail, Run: iommuMode, Links: []chain.Link{chain.Addresses, chain.Fabric},
		Expect: "no IOMMU, or one that passes through (identity)", Why: "With an IOMMU that translates, addresses lead to the root and back even below one switch. NVIDIA's driver maps its memory in it up to Linux 6.11 only, and with DmaRemapPeerMmio 0 never: it then hands out addresses that the IOMMU does not know, and the IOMMU blocks accesses that go over the root.",
		Fix: chain.Remedy{Change: "let the IOMMU pass DMA through", Command: machine.PassThrough, Weakens: "a device can reach all memory of the host"}, Ref: "nv_dma_use_map_resource(), nv-dma.c; NVIDIA/open-gpu-kernel-modules#1324; ROCm/rccl#1129",
		ByHand: "cat /sys/bus/pci/devices/GPU/iommu_group/type"},
	{ID: "ISO-ACS-SOURCE", Title: "The kernel itself turned no redirection on", Worst: p2p.ResultWarn, Run: acsSource, Links: []chain.Link{chain.Decision, chain.Fabric},
		Expect: "no port that redirects", Why: "With an IOMMU the kernel turns on source validation, request and completion redirect and upstream forwarding (0x1d) on each port that can: the firmware is not to blame.",
		Fix: chain.Remedy{Change: "tell the kernel for which ports not to", Command: "pci=disable_acs_redir=PORTS", Weakens: "devices below these ports reach each other past the IOMMU"}, Ref: "pci_std_enable_acs()",
		ByHand: "sudo lspci -vvv -s PORT | grep ACSCtl"},
	{ID: "ISO-ACS-PORT", Title: "The ACS of each port is known", Worst: p2p.ResultFail, Run: acsPorts, Links: []chain.Link{chain.Decision, chain.Fabric},
		Expect: "a control register that can be read", Why: "A port whose ACS cannot be read may redirect.", Ref: "PCI Express Base Specification, Access Control Services",
		ByHand: "sudo lspci -vvv -s PORT | grep ACSCtl"},
	{ID: "ISO-ACS-QUIRK", Title: "No port has ACS registers of another form", Worst: p2p.ResultWarn, Run: acsQuirks, Links: []chain.Link{chain.Decision, chain.Fabric},
		Expect: "no root port of Intel's Sunrise Point or Union Point", Why: "These ports have 32-bit ACS registers: a read at the standard offsets returns other bits.", Ref: "drivers/pci/quirks.c, INTEL_SPT_ACS_CTRL",
		ByHand: "cat /sys/bus/pci/devices/PORT/vendor /sys/bus/pci/devices/PORT/device"},
	{ID: "ISO-ATS", Title: "Redirection, translation and ordering fit together", Worst: p2p.ResultFail, Run: translation, Links: []chain.Link{chain.Fabric},
		Expect: "no port on the way that redirects, or ATS and relaxed ordering that make up for it", Why: "Requests and completions that take different ways get lost: redirected requests need translated addresses, redirected completions relaxed ordering.",
		Fix: chain.Remedy{Change: "turn ATS on in the NIC's firmware, or relaxed ordering, or redirection off"}, Ref: "drivers/infiniband/hw/mlx5/mlx5_ib.h, mlx5_umem_needs_ats()",
		ByHand: "sudo lspci -vvv -s FUNCTION | grep -E 'ATSCtl|RlxdOrd'\nsudo lspci -vvv -s PORT | grep ACSCtl"},
	{ID: "ISO-RO", Title: "Traffic over the root may be reordered", Worst: p2p.ResultWarn, Run: ordering, Links: []chain.Link{chain.Fabric},
		Expect: "relaxed ordering on where a port redirects, and asked for where the processor needs it between root ports", Why: "Without relaxed ordering, completions that go over the root delay all traffic behind them. Some processors write from one root port to another at full rate only if the registration asks for relaxed ordering: that the device may use it is not enough.",
		Fix: chain.Remedy{Change: "turn relaxed ordering on, in the firmware or for the device", Command: "setpci -s DEVICE CAP_EXP+8.w=10:10", Weakens: p2p.Relaxing}, Ref: "mlx5_umem_needs_ats(); openucx/ucx#10955, #8062",
		ByHand: "sudo lspci -vvv -s FUNCTION | grep RlxdOrd"},
	{ID: "ISO-GROUP", Title: "The IOMMU groups are known", Worst: p2p.ResultWarn, Run: groups, Links: []chain.Link{chain.Attach},
		Expect: "a group of GPU and NIC each, or no IOMMU", Why: "Different groups are no fault: a port between the two can redirect, and with an IOMMU that translates most likely does. NVIDIA's mapping with the flag for PCIe wants one group (P2P-NV-FORCEPCIE).", Ref: "Documentation/driver-api/vfio.rst; rdma_topo check",
		ByHand: "readlink /sys/bus/pci/devices/GPU/iommu_group /sys/class/infiniband/NIC/device/iommu_group"},
	{ID: "ISO-ACS-PLAN", Title: "Ports that need a certain ACS have it", Worst: p2p.ResultWarn, Run: acsPlan, Links: []chain.Link{chain.Fabric},
		Expect: "the ACS, IOMMU groups and ATS that rdma_topo wants", Why: "A ConnectX-8 or -9 beside a GPU moves data by a function of its own or through a switch of its own, and the ports between the two need bits that differ from port to port. Without them GPUDirect RDMA is slow or fails, and opening all ports breaks it as well.",
		Fix: chain.Remedy{Change: "have the kernel set the ACS that these ports need", Command: "rdma_topo write-grub-acs"}, Ref: "rdma-core, kernel-boot/rdma_topo; NVIDIA/nodewright-packages#111",
		ByHand: "sudo lspci -vvv -s PORT | grep ACSCtl\nrdma_topo check"},
	{ID: "ISO-GIVEN-AWAY", Title: "GPU and NIC of a guest reach each other on the host", Worst: p2p.ResultWarn, Run: givenAway,
		Expect: "ATS on in the NIC, and direct translated requests on at the switch's port above it", Why: "In a guest the IOMMU makes all addresses. A NIC that asks it for translations (ATS) reaches the GPU through the switch; otherwise everything goes to the root and back, and is slow. The guest does not see these settings.",
		Fix: chain.Remedy{Change: "turn ATS on in the NIC's firmware, and direct translated on at its port"}, Ref: "NVIDIA/nccl-tests#380; NVIDIA/nccl#1464, #2171",
		ByHand: "sudo lspci -vvv -s FUNCTION | grep ATSCtl\nsudo lspci -vvv -s PORT | grep ACSCtl"},
	{ID: "ISO-FAULTS", Title: "The IOMMU has blocked nothing", Worst: p2p.ResultFail, Run: faults, Links: []chain.Link{chain.Log},
		Expect: "no fault of a device that matters", Why: "A blocked transfer can report success, although the memory keeps its old bytes.",
		Fix: chain.Remedy{Change: "let the IOMMU pass DMA through, or find the driver that uses an address after it was unmapped", Command: machine.PassThrough, Weakens: "a device can reach all memory of the host"}, Ref: "NVIDIA/cuda-samples#48",
		ByHand: "sudo dmesg | grep -E 'DMAR|AMD-Vi|arm-smmu'"},
	{ID: "ISO-INTERRUPT", Title: "Interrupts of devices given away are safe", Worst: p2p.ResultWarn, Run: interrupts,
		Expect: "N", Why: "Without interrupt remapping a device that a guest has can raise any interrupt of the host.",
		Fix: chain.Remedy{Change: "turn interrupt remapping on in the firmware"}, Ref: "drivers/vfio/vfio_iommu_type1.c",
		ByHand: "cat /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"},
}

// iommuMode reports each device's IOMMU domain. One that translates is a failure for a pair whose
// exporter maps nothing in it and whose traffic meets it, and a cost for others.
func iommuMode(l *check.Look) {
	all := l.Endpoints()
	if len(all) == 0 {
		l.Skip("no GPU and no NIC on PCI")
	}
	for _, f := range all {
		at := []string{"/sys/" + f.Dir + "/iommu_group/type"}
		switch {
		case f.Err != nil || f.IOMMUErr != nil:
			err := f.Err
			if err == nil {
				err = f.IOMMUErr
			}
			l.Unknown(f.Name, at, "%s", machine.Reading{Err: err}.Why())
		case f.IOMMU == "":
			l.Pass(f.Name, at, "no IOMMU")
		case f.IOMMU == "identity":
			l.Pass(f.Name, at, "identity")
		case f.IOMMU == "blocked":
			l.Fail(f.Name, at, "blocked: the device reaches nothing")
		case f.IOMMU == "DMA" || f.IOMMU == "DMA-FQ":
			translated(l, f, at)
		default:
			l.Unknown(f.Name, at, "%q", f.IOMMU)
		}
	}
}

// translated adds the finding for a device behind an IOMMU that translates. The result follows from the outcome of
// the device's pairs.
func translated(l *check.Look, f *check.Function, at []string) {
	pairs := check.Select(l.Pairs, func(p p2p.Pair) bool {
		return p.GPU.Exporter.PCI != nil && *p.GPU.Exporter.PCI == f.PCI || p.NIC.Importer.PCI != nil && *p.NIC.Importer.PCI == f.PCI && !p.NIC.Software
	})
	lost := check.LostBehindIOMMU(pairs)
	switch {
	case len(pairs) > 0 && len(check.Breaking(pairs, chain.Library)) == len(pairs):
		l.Say(p2p.ResultSkip, f.Name, at, "%s: the IOMMU translates, and the vendor's library gives out no memory of these pairs", f.IOMMU)
	case len(pairs) == 0 && directnic.GivenAway(f.Driver):
		l.Say(p2p.ResultSkip, f.Name, at, "the device is given to guests: VFIO makes the IOMMU domain of a guest")
	case check.AllCoherent(pairs):
		l.Pass(f.Name, at, "%s: the IOMMU translates, and the driver maps the GPU's memory in it, as system memory is", f.IOMMU).Expect = ""
	case len(lost) == 0:
		l.Warn(f.Name, at, "%s: the IOMMU translates", f.IOMMU)
	case len(lost) < len(pairs):
		l.Fail(f.Name, at, "%s: the IOMMU translates, and NVIDIA's driver maps no memory in it: the NIC's accesses are blocked in %s", f.IOMMU, human.Plural(len(lost), "pair"))
	default:
		l.Fail(f.Name, at, "%s: the IOMMU translates, and NVIDIA's driver maps no memory in it: the NIC's accesses are blocked", f.IOMMU)
	}
}

// standardACS has the bits that the kernel turns on if there is an IOMMU.
const standardACS = pci.ACSSourceValidation | pci.ACSRequestRedirect | pci.ACSCompletionRedirect | pci.ACSUpstreamForward

func acsSource(l *check.Look) {
	ports := l.Ports()
	if len(ports) == 0 {
		l.Skip("no port above a GPU or NIC")
	}
	counts := map[pciaddr.Addr]*chain.Remedy{} // ports that redirect the traffic of a pair that this concerns
	var unread error                           // why the way of some pair is not known
	for _, p := range l.Pairs {
		if d := p.Prediction.Decision; d.Steps < 0 {
			unread = machine.FirstError(unread, d.Unread)
		}
		if !p2p.Gains(l.Machine, p) {
			continue
		}
		for _, r := range p.Prediction.Decision.Redirects {
			if counts[r.PCI] == nil || p.Opens() {
				counts[r.PCI] = check.Opening(l, p)
			}
		}
	}
	iommu := slices.ContainsFunc(l.Endpoints(), func(f *check.Function) bool { return f.IOMMU != "" })
	for _, f := range ports {
		at := []string{"/sys/" + f.Dir + "/config"}
		setter, sure := p2p.ACSSetter(l.Machine, f.Function)
		switch {
		case f.Err != nil || f.ACSErr != nil || f.Config.Unreachable():
			l.Unknown(f.Name, at, "not known: %s", machine.Reading{Err: machine.FirstError(f.Err, f.ACSErr, beyond(f, "ACS"))}.Why())
		case f.ACS.Redirects() == 0:
			l.Pass(f.Name, at, "it does not redirect")
		case counts[f.PCI] == nil && unread != nil:
			l.Unknown(f.Name, at, "it redirects, and whether that concerns a pair is not known: %s", machine.Reading{Err: unread}.Why())
		case counts[f.PCI] == nil:
			l.Pass(f.Name, at, "it redirects, and breaks no pair").Expect = ""
		case sure:
			l.Warn(f.Name, at, "%#x, %s", uint16(f.ACS.Ctrl), setter).Remedy = counts[f.PCI]
		case iommu && f.ACS.Ctrl&standardACS == f.ACS.Cap&standardACS:
			l.Warn(f.Name, at, "%#x, as the kernel sets it where there is an IOMMU", uint16(f.ACS.Ctrl)).Remedy = counts[f.PCI]
		default:
			l.Warn(f.Name, at, "%#x, %s", uint16(f.ACS.Ctrl), cmp.Or(setter, "from the firmware or set since")).Remedy = counts[f.PCI]
		}
	}
}

// acsLetters are the bits as lspci and the kernel's config_acs have them.
var acsLetters = []struct {
	bit  pci.ACSBits
	name string
}{
	{pci.ACSSourceValidation, "SV"}, {pci.ACSTranslationBlock, "TB"}, {pci.ACSRequestRedirect, "RR"}, {pci.ACSCompletionRedirect, "CR"},
	{pci.ACSUpstreamForward, "UF"}, {pci.ACSEgressControl, "EC"}, {pci.ACSDirectTranslated, "DT"},
}

// ACSLetters writes an ACS control register as lspci does: "SV+ TB- RR+ …".
func ACSLetters(control uint16) string {
	var bits []string
	for _, b := range acsLetters {
		sign := "-"
		if pci.ACSBits(control)&b.bit != 0 {
			sign = "+"
		}
		bits = append(bits, b.name+sign)
	}
	return strings.Join(bits, " ")
}

func acsPorts(l *check.Look) {
	ports := l.Ports()
	if len(ports) == 0 {
		l.Skip("no port above a GPU or NIC")
	}
	for _, f := range ports {
		at := []string{"/sys/" + f.Dir + "/config"}
		switch {
		case f.Err != nil || f.ACSErr != nil:
			l.Unknown(f.Name, at, "%s", machine.Reading{Err: machine.FirstError(f.Err, f.ACSErr)}.Why()).AsRoot(l.Machine)
		case oddACS(f):
			l.Unknown(f.Name, at, "%04x:%04x: its ACS registers have another form, which is not decoded", f.Vendor, f.Device)
		case f.Config.Unreachable():
			l.Unknown(f.Name, at, "256 bytes can be read, and ACS lies behind them: the kernel assumes none, and whether the port redirects is not known").AsRoot(l.Machine)
		case !f.ACS.Present:
			l.Pass(f.Name, at, "no ACS")
		default:
			l.Pass(f.Name, at, "%s", ACSLetters(uint16(f.ACS.Ctrl)))
		}
	}
}

// oddPorts are Intel's root ports with ACS registers of another form, by device ID.
var oddPorts = [][2]uint16{{0xa110, 0xa11f}, {0xa167, 0xa16a}, {0xa290, 0xa29f}, {0xa2e7, 0xa2ee}}

func oddACS(f *check.Function) bool {
	return slices.ContainsFunc(oddPorts, func(r [2]uint16) bool { return f.Vendor == machine.VendorIntel && f.Device >= r[0] && f.Device <= r[1] })
}

func acsQuirks(l *check.Look) {
	ports := l.Ports()
	if len(ports) == 0 {
		l.Skip("no port above a GPU or NIC")
	}
	for _, f := range ports {
		at := []string{"/sys/" + f.Dir + "/device"}
		switch {
		case f.Err != nil:
			l.Unknown(f.Name, at, "%s", machine.Reading{Err: f.Err}.Why())
		case oddACS(f):
			l.Warn(f.Name, at, "%04x:%04x: its ACS is decoded as that of other ports, and may be wrong", f.Vendor, f.Device)
		default:
			l.Pass(f.Name, at, "registers as in the specification")
		}
	}
}

// between returns the ports between the devices of a pair and their common bridge, and the bridge; nil if they
// have no common bridge.
func between(l *check.Look, p p2p.Pair) []*check.Function {
	d := p.Prediction.Decision
	if d.Common == nil {
		return nil
	}
	var out []*check.Function
	for _, end := range []pciaddr.Addr{*p.GPU.Exporter.PCI, *p.NIC.Importer.PCI} {
		for _, up := range l.Function(end).Upstream {
			if up == *d.Common {
				break
			}
			out = append(out, l.Function(up))
		}
	}
	return append(out, l.Function(*d.Common))
}

// translation reports whether the ports between the devices of a pair send requests and completions the same way.
// The result is that of the pair's link Fabric.
func translation(l *check.Look) {
	below := false
	for _, p := range l.Pairs {
		ports := between(l, p)
		if ports == nil || p.NIC.Software {
			continue
		}
		below = true
		fabric := p.Verdict.Link(chain.Fabric)
		nic := l.Function(*p.NIC.Importer.PCI)
		at := []string{"/sys/" + nic.Dir + "/config"}
		if o := p.Prediction.Outcome; o == chain.Staged || o == chain.Refused {
			l.Say(p2p.ResultSkip, p.Name(), nil, "%v: no traffic goes between the two", o)
			continue
		}
		switch bits, state := redirected(nic, ports); {
		case fabric.State == chain.NotAsked:
			l.Say(p2p.ResultSkip, p.Name(), nil, "%s", cmp.Or(fabric.Text(), "nothing goes between the two"))
		case p.Prediction.Address == drivers.AddressIOVA:
			l.Pass(p.Name(), at, "the addresses are the IOMMU's: all traffic goes to the root, whatever the ports do")
		case fabric.State == chain.Breaks && bits != 0:
			l.Fail(p.Name(), at, "%s: requests and completions take different ways", state).Remedy = fabric.Remedy
		case fabric.State == chain.Costs && bits != 0:
			l.Warn(p.Name(), at, "%s: all goes over the root", state).Remedy = fabric.Remedy
		case fabric.State.Good():
			l.Pass(p.Name(), at, "no request and no completion gets lost")
		default:
			l.Unknown(p.Name(), at, "%s", fabric.Text()).Remedy = fabric.Remedy
		}
	}
	if !below {
		l.Skip("no pair below a common bridge")
	}
}

// redirected returns the bits by which ports redirect the traffic of a NIC, and describes them and the NIC's ATS and
// relaxed ordering in words.
func redirected(nic *check.Function, ports []*check.Function) (bits pci.ACSBits, state string) {
	for _, f := range ports {
		if f.ACS.Present {
			bits |= f.ACS.Ctrl & (pci.ACSRequestRedirect | pci.ACSCompletionRedirect | pci.ACSDirectTranslated)
		}
	}
	_, ats, _ := nic.Config.ATS()
	express, _, _ := nic.Config.Express()
	return bits, fmt.Sprintf("redirects: %v; ATS %s, relaxed ordering %s", bits, onOff(ats), onOff(express.RelaxedOrdering))
}

// beyond returns the error for a capability that lies behind the part of the configuration space that can be
// read; nil if all of it can be read.
func beyond(f *check.Function, capability string) error {
	if !f.Config.Unreachable() {
		return nil
	}
	return fmt.Errorf("%v: 256 bytes of its configuration can be read, and %s lies behind them", f.PCI, capability)
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

// faults reports the lines of the log about transfers that the IOMMU blocked. A line that contradicts a pair is a
// failure. A line about another address, or about a device that is no NIC, is a warning.
func faults(l *check.Look) {
	log := l.Log()
	if log.Err != nil {
		check.UnreadLog(l, log)
		return
	}
	hits := check.LogLines(l, log, l.Check.ID)
	said := map[string]bool{}
	for _, p := range check.Breaking(l.Pairs, chain.Log) {
		line := check.Contrary(p)
		if !check.Says(line, l.Check.ID) {
			continue
		}
		said[line] = true
		mend(l, l.Fail(p.Name(), log.At(), "%s%s", line, check.FaultedIn(l, line)))
	}
	for _, h := range hits {
		switch {
		case said[h.Line]:
		case len(p2p.PCIAddress.FindAllString(h.Line, -1)) == 0:
			mend(l, l.Unknown("", log.At(), "%s (the line names no device)", h.Line))
		default:
			mend(l, l.Warn("", log.At(), "%s%s", h.Line, check.FaultedIn(l, h.Line)))
		}
	}
	if len(l.Found) == 0 {
		l.Quiet(log, "no fault")
	}
}

func mend(l *check.Look, f *check.Finding) {
	if passedThrough(l) {
		f.Fix("find the driver that uses an address after it was unmapped: the IOMMU passes DMA through already", "", "")
	}
}

// passedThrough reports whether the IOMMU is known to pass the DMA of all devices through.
func passedThrough(l *check.Look) bool {
	all := l.Endpoints()
	return len(all) > 0 && !slices.ContainsFunc(all, func(f *check.Function) bool { return f.Err != nil || f.IOMMUErr != nil || f.IOMMU != "identity" })
}

func interrupts(l *check.Look) {
	if len(l.Driven(drivers.VfioDrivers...)) == 0 {
		l.Skip("no GPU of vfio-pci")
		return
	}
	r := l.Read("sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts")
	switch {
	case r.Gone():
		l.Pass("", r.At(), "vfio_iommu_type1 is not loaded")
	case r.Err != nil:
		l.Unread("", r)
	case r.Text == "N":
		l.Pass("", r.At(), "N")
	case r.Text == "Y":
		l.Warn("", r.At(), "Y: unsafe interrupts are allowed")
	default:
		l.Unknown("", r.At(), "%q", r.Text)
	}
}

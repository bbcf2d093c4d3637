// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
)

var isolationChecks = []Check{
	{ID: "ISO-IOMMU-MODE", Title: "The IOMMU lets peer-to-peer pass", Worst: ResultFail, run: (*look).iommuMode,
		Expect: "no IOMMU, or one that passes through (identity)", Why: "With an IOMMU that translates, addresses lead to the root and back even below one switch, and old drivers hand out addresses that it does not know.",
		Fix: Remedy{Change: "let the IOMMU pass DMA through", Command: passThrough, Weakens: "a device can reach all memory of the host"}, Ref: "AMD's and NVIDIA's tuning guides; ROCm/rccl#1129"},
	{ID: "ISO-ACS-SOURCE", Title: "The kernel itself turned no redirection on", Worst: ResultWarn, run: (*look).acsSource,
		Expect: "no port that redirects", Why: "With an IOMMU the kernel turns on source validation, request and completion redirect and upstream forwarding (0x1d) on each port that can: the firmware is not to blame.",
		Fix: Remedy{Change: "tell the kernel for which ports not to", Command: "pci=disable_acs_redir=PORTS", Weakens: "devices below these ports reach each other past the IOMMU"}, Ref: "pci_std_enable_acs()"},
	{ID: "ISO-ACS-PORT", Title: "The ACS of each port is known", Worst: ResultFail, run: (*look).acsPorts,
		Expect: "a control register that can be read", Why: "What is not known cannot be ruled out.", Ref: "PCI Express Base Specification, Access Control Services"},
	{ID: "ISO-ACS-QUIRK", Title: "No port has ACS registers of another form", Worst: ResultWarn, run: (*look).acsQuirks,
		Expect: "no root port of Intel's Sunrise Point or Union Point", Why: "These have 32-bit registers: what is read where ACS should be is something else.", Ref: "drivers/pci/quirks.c, INTEL_SPT_ACS_CTRL"},
	{ID: "ISO-ATS", Title: "Redirection, translation and ordering fit together", Worst: ResultFail, run: (*look).translation,
		Expect: "no port on the way that redirects, or ATS and relaxed ordering that make up for it", Why: "Requests and completions that take different ways get lost: redirected requests need translated addresses, redirected completions relaxed ordering.",
		Fix: Remedy{Change: "turn ATS on in the NIC's firmware, or relaxed ordering, or redirection off"}, Ref: "drivers/infiniband/hw/mlx5/mlx5_ib.h, mlx5_umem_needs_ats()"},
	{ID: "ISO-RO", Title: "Redirected traffic may be reordered", Worst: ResultWarn, run: (*look).ordering,
		Expect: "relaxed ordering on, where a port redirects", Why: "Without it, completions that go over the root hold up everything behind them.",
		Fix: Remedy{Change: "turn relaxed ordering on, in the firmware or for the device", Command: "setpci -s DEVICE CAP_EXP+8.w=10:10", Weakens: relaxing}, Ref: "mlx5_umem_needs_ats()"},
	{ID: "ISO-GROUP", Title: "The IOMMU groups are known", Worst: ResultWarn, run: (*look).groups,
		Expect: "a group of GPU and NIC each, or no IOMMU", Why: "Different groups are no fault: a port between the two can redirect, and with an IOMMU that translates most likely does. NVIDIA's mapping with the flag for PCIe wants one group (P2P-NV-FORCEPCIE).", Ref: "Documentation/driver-api/vfio.rst; rdma_topo check"},
	{ID: "ISO-FAULTS", Title: "The IOMMU has blocked nothing", Worst: ResultFail, run: (*look).faults,
		Expect: "no fault of a device that matters", Why: "A blocked transfer can end with success, and leave the old bytes.",
		Fix: Remedy{Change: "let the IOMMU pass DMA through, or find who uses an address after it was unmapped", Command: passThrough, Weakens: "a device can reach all memory of the host"}, Ref: "NVIDIA/cuda-samples#48"},
	{ID: "ISO-INTERRUPT", Title: "Interrupts of devices given away are safe", Worst: ResultWarn, run: (*look).interrupts,
		Expect: "N", Why: "Without interrupt remapping a device that a guest has can raise any interrupt of the host.",
		Fix: Remedy{Change: "turn interrupt remapping on in the firmware"}, Ref: "drivers/vfio/vfio_iommu_type1.c"},
}

// relaxing is what is given up for relaxed ordering.
const relaxing = "a later write may arrive before an earlier one; where the kernel turned it off for a faulty root port (Xeon E5 v3 and v4), leave it off"

// nvidiaParam reads a parameter of NVIDIA's driver.
func (l *look) nvidiaParam(name string) (string, reading) {
	r := l.read("proc/driver/nvidia/params")
	value, ok := r.line(name)
	if r.err == nil && !ok {
		return "", r
	}
	return value, r
}

func (l *look) iommuMode() {
	all := l.endpoints()
	if len(all) == 0 {
		l.skip("no GPU and no NIC on PCI")
	}
	for _, f := range all {
		at := []string{"/sys/" + f.dir + "/iommu_group/type"}
		switch {
		case f.err != nil || f.IOMMUErr != nil:
			err := f.err
			if err == nil {
				err = f.IOMMUErr
			}
			l.unknown(f.name, at, "%s", reading{err: err}.why())
		case f.IOMMU == "":
			l.pass(f.name, at, "no IOMMU")
		case f.IOMMU == "identity":
			l.pass(f.name, at, "identity")
		case f.IOMMU == "blocked":
			l.fail(f.name, at, "blocked: the device reaches nothing")
		case f.IOMMU == "DMA" || f.IOMMU == "DMA-FQ":
			if remap, r := l.nvidiaParam("DmaRemapPeerMmio"); remap == "0" && len(l.driven("nvidia")) > 0 {
				l.fail(f.name, append(at, r.where), "%s, and NVIDIA's driver does not map its memory in it (DmaRemapPeerMmio: 0)", f.IOMMU)
				continue
			}
			l.warn(f.name, at, "%s: it translates", f.IOMMU)
		default:
			l.unknown(f.name, at, "%q", f.IOMMU)
		}
	}
}

// standardACS is what the kernel sets.
const standardACS = pci.ACSSourceValidation | pci.ACSRequestRedirect | pci.ACSCompletionRedirect | pci.ACSUpstreamForward

func (l *look) acsSource() {
	ports := l.ports()
	if len(ports) == 0 {
		l.skip("no port above a GPU or NIC")
	}
	counts := map[Addr]*Remedy{} // ports that redirect what a pair sends, to whom that matters
	var unread error             // why the way of some pair is not known
	for _, p := range l.pairs {
		if d := p.Prediction.Decision; d.Steps < 0 {
			unread = firstError(unread, d.unread)
		}
		if !l.m.gains(p) {
			continue
		}
		for _, r := range p.Prediction.Decision.Redirects {
			if counts[r.PCI] == nil || p.opens() {
				counts[r.PCI] = l.opening(p)
			}
		}
	}
	iommu := slices.ContainsFunc(l.endpoints(), func(f *function) bool { return f.IOMMU != "" })
	for _, f := range ports {
		at := []string{"/sys/" + f.dir + "/config"}
		setter, sure := l.m.acsSetter(f.Function)
		switch {
		case f.err != nil || f.ACSErr != nil || f.config.Unreachable():
			l.unknown(f.name, at, "not known: %s", reading{err: firstError(f.err, f.ACSErr, beyond(f, "ACS"))}.why())
		case f.ACS.Redirects() == 0:
			l.pass(f.name, at, "it does not redirect")
		case counts[f.PCI] == nil && unread != nil:
			l.unknown(f.name, at, "it redirects, and whether that concerns a pair is not known: %s", reading{err: unread}.why())
		case counts[f.PCI] == nil:
			l.pass(f.name, at, "it redirects, which keeps no pair here from anything").Expect = ""
		case sure:
			l.warn(f.name, at, "%#x, %s", uint16(f.ACS.Ctrl), setter).Remedy = counts[f.PCI]
		case iommu && f.ACS.Ctrl&standardACS == f.ACS.Cap&standardACS:
			l.warn(f.name, at, "%#x, as the kernel sets it where there is an IOMMU", uint16(f.ACS.Ctrl)).Remedy = counts[f.PCI]
		default:
			l.warn(f.name, at, "%#x, %s", uint16(f.ACS.Ctrl), cmp.Or(setter, "from the firmware or set since")).Remedy = counts[f.PCI]
		}
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
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

func (l *look) acsPorts() {
	ports := l.ports()
	if len(ports) == 0 {
		l.skip("no port above a GPU or NIC")
	}
	for _, f := range ports {
		at := []string{"/sys/" + f.dir + "/config"}
		switch {
		case f.err != nil || f.ACSErr != nil:
			l.unknown(f.name, at, "%s", reading{err: firstError(f.err, f.ACSErr)}.why()).asRoot(l.m)
		case oddACS(f):
			l.unknown(f.name, at, "%04x:%04x: its ACS registers have another form, which is not decoded", f.Vendor, f.Device)
		case f.config.Unreachable():
			l.unknown(f.name, at, "256 bytes, and ACS lies behind them: the kernel goes by none, and what the port does is not known").asRoot(l.m)
		case !f.ACS.Present:
			l.pass(f.name, at, "no ACS")
		default:
			l.pass(f.name, at, "%s", ACSLetters(uint16(f.ACS.Ctrl)))
		}
	}
}

// oddPorts are root ports with registers of their own, by device.
var oddPorts = [][2]uint16{{0xa110, 0xa11f}, {0xa167, 0xa16a}, {0xa290, 0xa29f}, {0xa2e7, 0xa2ee}}

func oddACS(f *function) bool {
	return slices.ContainsFunc(oddPorts, func(r [2]uint16) bool { return f.Vendor == intel && f.Device >= r[0] && f.Device <= r[1] })
}

func (l *look) acsQuirks() {
	ports := l.ports()
	if len(ports) == 0 {
		l.skip("no port above a GPU or NIC")
	}
	for _, f := range ports {
		at := []string{"/sys/" + f.dir + "/device"}
		switch {
		case f.err != nil:
			l.unknown(f.name, at, "%s", reading{err: f.err}.why())
		case oddACS(f):
			l.warn(f.name, at, "%04x:%04x: its ACS is decoded as that of other ports, and may be wrong", f.Vendor, f.Device)
		default:
			l.pass(f.name, at, "registers as in the specification")
		}
	}
}

// route is what becomes of traffic by mlx5's table, from what the ports
// redirect and what the NIC uses.
type route int

const (
	routeGood route = iota
	routeSlow
	routeLost
)

func routeOf(completions, requests, translated, ats, relaxed bool) route {
	switch {
	case !completions && !requests:
		return routeGood
	case !completions: // requests go to the root, completions do not
		if translated && ats {
			return routeGood
		}
		return routeLost
	case !requests:
		if relaxed {
			return routeGood
		}
		return routeLost
	case translated && ats: // requests go the short way, completions do not
		if relaxed {
			return routeGood
		}
		return routeLost
	}
	return routeSlow
}

// between are the ports on the way of a pair below a common bridge; nil without
// one.
func (l *look) between(p Pair) []*function {
	d := p.Prediction.Decision
	if d.Common == nil {
		return nil
	}
	var out []*function
	for _, end := range []Addr{*p.GPU.Exporter.PCI, *p.NIC.Importer.PCI} {
		for _, up := range l.function(end).Upstream {
			if up == *d.Common {
				break
			}
			out = append(out, l.function(up))
		}
	}
	return append(out, l.function(*d.Common))
}

func (l *look) translation() {
	below := false
	for _, p := range l.pairs {
		ports := l.between(p)
		if ports == nil || p.NIC.Software {
			continue
		}
		below = true
		if o := p.Prediction.Outcome; o == Staged || o == Refused {
			l.say(ResultSkip, p.name(), nil, "%v: nothing goes between the two", o)
			continue
		}
		nic := l.function(*p.NIC.Importer.PCI)
		at := []string{"/sys/" + nic.dir + "/config"}
		_, ats, err := nic.config.ATS()
		express, _, err2 := nic.config.Express()
		err = firstError(nic.cfgErr, err, err2, beyond(nic, "ATS"))
		worst, bits := routeGood, pci.ACSBits(0)
		for _, f := range ports {
			err = firstError(err, f.err, f.ACSErr, beyond(f, "ACS"))
			c := f.ACS.Ctrl
			if !f.ACS.Present {
				c = 0
			}
			r := routeOf(c&pci.ACSCompletionRedirect != 0, c&pci.ACSRequestRedirect != 0, c&pci.ACSDirectTranslated != 0, ats, express.RelaxedOrdering)
			if r > worst {
				worst, bits = r, c
			}
		}
		state := fmt.Sprintf("redirects: %v; ATS %s, relaxed ordering %s", bits&(pci.ACSRequestRedirect|pci.ACSCompletionRedirect|pci.ACSDirectTranslated), onOff(ats), onOff(express.RelaxedOrdering))
		switch {
		case err != nil:
			l.unknown(p.name(), at, "%s", reading{err: err}.why()).asRoot(l.m)
		case worst == routeLost:
			l.fail(p.name(), at, "%s: requests and completions take different ways", state).Remedy = routeRemedy(bits, ats, express.RelaxedOrdering)
		case worst == routeSlow:
			l.warn(p.name(), at, "%s: all goes over the root", state).Remedy = routeRemedy(bits, ats, express.RelaxedOrdering)
		default:
			l.pass(p.name(), at, "nothing gets lost")
		}
	}
	if !below {
		l.skip("no pair below a common bridge")
	}
}

// beyond is the error of a capability that is behind what can be read.
func beyond(f *function, capability string) error {
	if !f.config.Unreachable() {
		return nil
	}
	return fmt.Errorf("%v: 256 bytes of its configuration can be read, and %s lies behind them", f.PCI, capability)
}

// routeRemedy names what makes a port's traffic go one way, as far as it is not
// so already.
func routeRemedy(bits pci.ACSBits, ats, relaxed bool) *Remedy {
	good := func(ats, relaxed bool) bool {
		return routeOf(bits&pci.ACSCompletionRedirect != 0, bits&pci.ACSRequestRedirect != 0, bits&pci.ACSDirectTranslated != 0, ats, relaxed) == routeGood
	}
	const off = "turn the port's redirection off"
	switch {
	case !relaxed && good(ats, true):
		return &Remedy{Change: "turn relaxed ordering on, or " + off, Weakens: relaxing}
	case !ats && good(true, relaxed):
		return &Remedy{Change: "turn ATS on in the NIC's firmware, or " + off}
	case !ats && !relaxed && good(true, true):
		return &Remedy{Change: "turn ATS on in the NIC's firmware and relaxed ordering on, or " + off, Weakens: relaxing}
	}
	return &Remedy{Change: off, Weakens: "devices below it reach each other past the IOMMU"}
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

func (l *look) ordering() {
	all := l.endpoints()
	if len(all) == 0 {
		l.skip("no GPU and no NIC on PCI")
	}
	for _, f := range all {
		at := []string{"/sys/" + f.dir + "/config"}
		x, ok, err := f.config.Express()
		err = firstError(f.err, f.cfgErr, err)
		redirected := false
		var unread error // whether a port redirects
		for _, up := range f.Upstream {
			port := l.function(up)
			redirected = redirected || port.ACS.Redirects() != 0
			unread = firstError(unread, port.err, port.ACSErr)
		}
		switch {
		case err != nil:
			l.unknown(f.name, at, "%s", reading{err: err}.why()).asRoot(l.m)
		case !ok:
			l.pass(f.name, at, "no PCI Express function")
		case x.RelaxedOrdering:
			l.pass(f.name, at, "on")
		case !redirected && unread != nil:
			l.unknown(f.name, at, "off, and whether a port above redirects is not known: %s", reading{err: unread}.why()).asRoot(l.m)
		case !redirected:
			l.pass(f.name, at, "off, and no port above redirects")
		default:
			l.unlocked(l.warn(f.name, at, "off, and a port above redirects"), "turn relaxed ordering on, in the firmware or for the device",
				"setpci -s "+f.PCI.String()+" CAP_EXP+8.w=10:10", relaxing, "turn relaxed ordering on in the firmware")
		}
	}
}

func (l *look) faults() {
	log := l.log()
	if log.err != nil {
		l.unreadLog(log)
		return
	}
	hits := log.of(l, l.check.ID)
	if len(hits) == 0 {
		l.quiet(log, "no fault")
	}
	for _, h := range hits {
		f := l.fail("", log.at(), "%s%s", h.line, l.faultedIn(h.line))
		if l.passedThrough() {
			f.fix("find who uses an address after it was unmapped: the IOMMU passes DMA through already", "", "")
		}
	}
}

// passedThrough reports that the IOMMU translates for none of the devices.
func (l *look) passedThrough() bool {
	all := l.endpoints()
	return len(all) > 0 && !slices.ContainsFunc(all, func(f *function) bool { return f.err != nil || f.IOMMUErr != nil || f.IOMMU != "identity" })
}

func (l *look) interrupts() {
	if len(l.driven(vfioDrivers...)) == 0 {
		l.skip("no GPU of vfio-pci")
		return
	}
	r := l.read("sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts")
	switch {
	case r.gone():
		l.pass("", r.at(), "vfio_iommu_type1 is not loaded")
	case r.err != nil:
		l.unread("", r)
	case r.text == "N":
		l.pass("", r.at(), "N")
	case r.text == "Y":
		l.warn("", r.at(), "Y: unsafe interrupts are allowed")
	default:
		l.unknown("", r.at(), "%q", r.text)
	}
}

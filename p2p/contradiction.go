// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Lines of the kernel's log that contradict a pair.
var (
	// blocked matches an IOMMU's line about a transfer that it stopped: Intel's, AMD's, Arm's.
	blocked = regexp.MustCompile(`DMAR: \[DMA (Write|Read)[^\]]*\] Request device|AMD-Vi: Event logged \[IO_PAGE_FAULT|arm-smmu-v3 .*event(: F_\w+ client: \S+| 0x1[0-3]\b)`)
	// noWay matches the kernel's refusal of a pair, which it prints for drivers that ask it to.
	noWay = regexp.MustCompile(`cannot be used for peer-to-peer DMA as the client and provider`)
	// gateClosed matches a refusal of NVIDIA's driver for the ordinary mapping.
	gateClosed = regexp.MustCompile(`NVRM: .*PCI topology not supported for dma-buf`)
	// noPages matches NVIDIA's refusal of an importer that does not allow peer-to-peer: from 580 on, and
	// before.
	noPages = regexp.MustCompile(`NVRM: .*(importer unable to handle MMIO|failed to map dynamic attachment with no P2P support)`)
	// fallenOff matches the driver's line about a GPU that it has lost.
	fallenOff = regexp.MustCompile(`NVRM: Xid \(PCI:([0-9a-f:]+)\): 79,`)
	// peermemFailed matches nvidia-peermem's error about a registration.
	peermemFailed = regexp.MustCompile(`nvidia_peermem.*error -?\d+ while calling nvidia_p2p_(get_pages|dma_map_pages)`)

	contraries = []*regexp.Regexp{blocked, noWay, gateClosed, noPages, fallenOff, peermemFailed}
)

// contradiction looks for lines of the kernel's log against a pair. A line can only break the verdict: a
// log that was not read changes none. Lines up to the record with the number proven are older than a proof
// of the pair, and do not count; nil is for a pair without a proof.
func contradiction(m *machine.Machine, e drivers.Exporter, i drivers.Importer, p drivers.Prediction, proven *uint64) chain.Answer {
	log := cachedLog(m)
	switch {
	case log.Err != nil:
		return chain.Open("the kernel's log was not read: %s", machine.Reading{Err: log.Err, Where: log.Where}.Why()).With(log.Where, "not read")
	case e.Class == drivers.ClassSystem || e.PCI == nil || i.PCI == nil:
		return chain.Skip("")
	}
	for _, line := range slices.Backward(contrary(m)) {
		outcome, means := against(m, line.text, e, i, p)
		switch {
		case means == "":
		case proven != nil && line.numbered && line.number <= *proven:
			return chain.Hold("the kernel's log has lines against this pair, and all of them are older than the proof: %s", line.text).With(log.Where, "%s", line.text)
		default:
			return chain.Break(outcome, "%s: %s", means, line.text).With(log.Where, "%s", line.text)
		}
	}
	if log.Cut {
		return chain.Open("no line of the kernel's log contradicts, and the beginning of the log was overwritten").With(log.Where, "")
	}
	for _, line := range slices.Backward(contrary(m)) {
		if blocked.MatchString(line.text) && names(line.text, *i.PCI) {
			return chain.Hold("the IOMMU stopped a transfer of this NIC, to an address in no region of this GPU").With(log.Where, "%s", line.text)
		}
	}
	return chain.Hold("").With(log.Where, "no line against this pair")
}

// cachedLog is the kernel's log, read once.
func cachedLog(m *machine.Machine) *machine.KernelLog {
	return machine.Once(m, "kernel log", m.KernelLog)
}

// logged is a line of the kernel's log, and the number of its record if that is known.
type logged struct {
	text     string
	number   uint64
	numbered bool
}

// contrary are the lines that can contradict a pair, out of many thousands.
func contrary(m *machine.Machine) []logged {
	return machine.Once(m, "contrary lines", func() []logged {
		var out []logged
		log := cachedLog(m)
		for i, text := range log.Lines {
			if !slices.ContainsFunc(contraries, func(r *regexp.Regexp) bool { return r.MatchString(text) }) {
				continue
			}
			line := logged{text: text, numbered: log.Numbers != nil}
			if line.numbered {
				line.number = log.Numbers[i]
			}
			out = append(out, line)
		}
		return out
	})
}

// against says what a line of the log means for a pair: "" if the line is about another pair. The
// outcome is unknown where the line does not name the importer or the result.
func against(m *machine.Machine, line string, e drivers.Exporter, i drivers.Importer, p drivers.Prediction) (chain.Outcome, string) {
	switch {
	case blocked.MatchString(line) && names(line, *i.PCI):
		return blockedBy(m, line, e, *i.PCI, p)
	case noWay.MatchString(line) && names(line, *i.PCI) && names(line, *e.PCI) && drivers.AsksKernel(e):
		return chain.Broken, "the kernel refused this pair"
	case noWay.MatchString(line) && names(line, *i.PCI) && names(line, *e.PCI):
		return chain.OutcomeUnknown, "the kernel refused this pair when another driver asked, and the GPU's driver does not ask"
	case noPages.MatchString(line) && e.Class == drivers.ClassNVIDIA && (i.OutOfTree || !belowOne(m, *e.PCI, *i.PCI)):
		return chain.OutcomeUnknown, "NVIDIA's driver refused an importer without peer-to-peer, and the line does not say which"
	case gateClosed.MatchString(line) && e.Class == drivers.ClassNVIDIA && !belowOne(m, *e.PCI, *i.PCI):
		return chain.OutcomeUnknown, "NVIDIA's driver refused an importer, and the line does not say which"
	case fallenOff.MatchString(line) && xidOf(line, *e.PCI):
		return chain.OutcomeUnknown, "the GPU fell off the bus"
	case peermemFailed.MatchString(line) && p.ByPeerMem:
		return chain.OutcomeUnknown, "nvidia-peermem could not register a GPU's memory"
	}
	return chain.OutcomeUnknown, ""
}

// blockedBy judges a transfer of the NIC that the IOMMU stopped. Its address shows the memory that it was
// meant for, unless the IOMMU makes the addresses.
func blockedBy(m *machine.Machine, line string, e drivers.Exporter, nic pciaddr.Addr, p drivers.Prediction) (chain.Outcome, string) {
	match := FaultAddress.FindStringSubmatch(line)
	switch {
	case (nic.Domain != 0 || hasTwin(m, nic)) && !slices.Contains(PCIAddress.FindAllString(line, -1), nic.String()):
		return chain.OutcomeUnknown, "the IOMMU stopped a transfer of this NIC, or of another PCI domain's function with the same number"
	case match == nil || p.Address == drivers.AddressIOVA || e.Class == drivers.ClassNVIDIACoherent: // memory with pages is in no BAR
		return chain.OutcomeUnknown, "the IOMMU stopped a transfer of this NIC"
	}
	gpu := *e.PCI
	at, err := strconv.ParseUint(match[1], 0, 64)
	if err != nil {
		return chain.OutcomeUnknown, "the IOMMU stopped a transfer of this NIC"
	}
	bars, err := pci.BARs(m.Sys, gpu)
	for _, b := range bars {
		if at >= b.Start && at-b.Start < b.Size {
			return chain.Lost, "the IOMMU stopped a transfer of this NIC to this GPU's memory"
		}
	}
	if err != nil || len(bars) == 0 {
		return chain.OutcomeUnknown, "the IOMMU stopped a transfer of this NIC, and where the GPU's memory is was not read"
	}
	return chain.OutcomeUnknown, ""
}

// hasTwin reports a function of another PCI domain with the same number.
func hasTwin(m *machine.Machine, a pciaddr.Addr) bool {
	return machine.Once(m, "twin of "+a.String(), func() bool {
		names, _ := m.Sys.List("bus/pci/devices")
		return slices.ContainsFunc(names, func(name string) bool {
			b, err := pciaddr.Parse(name)
			twin := b
			twin.Domain = a.Domain
			return err == nil && b != a && twin == a
		})
	})
}

// slot is how VT-d's faults of Linux 5.12 to 5.18 write a function: [0x14:0x00.0].
var slot = regexp.MustCompile(`\[0x([0-9a-f]{2}):0x([0-9a-f]{2}\.[0-7])\]`)

// names reports a line that names a PCI function. An address without a domain counts for every domain.
func names(line string, a pciaddr.Addr) bool {
	line = slot.ReplaceAllString(line, "[$1:$2]")
	return slices.ContainsFunc(PCIAddress.FindAllString(line, -1), func(name string) bool {
		b, err := pciaddr.Parse(name)
		if strings.Count(name, ":") == 1 {
			b.Domain = a.Domain
		}
		return err == nil && b == a
	})
}

// xidOf reports a line on a GPU: NVIDIA's driver writes it without a function.
func xidOf(line string, gpu pciaddr.Addr) bool {
	match := XidDevice.FindStringSubmatch(line)
	if match == nil {
		return false
	}
	b, err := pciaddr.Parse(match[1] + ".0")
	return err == nil && b == gpu
}

// belowOne reports a bridge above both.
func belowOne(m *machine.Machine, gpu, nic pciaddr.Addr) bool {
	up := m.Node(nic).Up
	return slices.ContainsFunc(m.Node(gpu).Up, func(a pciaddr.Addr) bool { return slices.Contains(up, a) })
}

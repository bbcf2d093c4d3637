// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"regexp"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/machine"
)

// Pattern matches a line of the kernel's log about peer-to-peer.
type Pattern struct {
	Check  string // the check that reports it
	Match  *regexp.Regexp
	Result Result
	Means  string
}

// Patterns match the lines that the kernel and its drivers print.
var Patterns = []Pattern{
	{"KRN-KMSG", regexp.MustCompile(`ACS redirect is set between the client and provider`), ResultWarn, "a port on the way redirects to the root"},
	{"KRN-KMSG", regexp.MustCompile(`to disable ACS redirect for this path, add the kernel parameter: (pci=\S+)`), ResultWarn, "the kernel names the ports"},
	{"KRN-KMSG", regexp.MustCompile(`Host bridge not in P2PDMA whitelist`), ResultWarn, "the kernel does not trust the host bridge"},
	{"KRN-KMSG", regexp.MustCompile(`cannot be used for peer-to-peer DMA as the client and provider`), ResultFail, "the kernel refused a pair"},
	{"KRN-KMSG", regexp.MustCompile(`NVRM: .*importer unable to handle MMIO`), ResultFail, "the importer wants pages"},
	{"KRN-KMSG", regexp.MustCompile(`NVRM: .*topology not supported for mapping type FORCE_PCIE`), ResultFail, "NVIDIA's gate refused a mapping for PCIe: the GPU is not coherent, or the IOMMU groups differ"},
	{"KRN-KMSG", regexp.MustCompile(`NVRM: .*dma-buf attach failed`), ResultFail, "NVIDIA's gate refused an importer"},
	{"KRN-KMSG", regexp.MustCompile(`NVRM: Xid \(PCI:([0-9a-f:]+)\): 79,`), ResultFail, "the GPU has fallen off the bus"},
	{"KRN-KMSG", regexp.MustCompile(`NVRM: Xid \(PCI:([0-9a-f:]+)\): [0-9]+,`), ResultWarn, "NVIDIA's driver reports an error of a GPU, or of a program on it"},
	{"KRN-KMSG", regexp.MustCompile(`PCIe P2P access from peer device \S+ is not supported by the chipset`), ResultWarn, "amdgpu: two GPUs do not reach each other"},
	{"ISO-FAULTS", regexp.MustCompile(`DMAR: \[DMA (Write|Read)[^\]]*\] Request device \[([^\]]+)\]`), ResultFail, "the IOMMU blocked a transfer"},
	{"ISO-FAULTS", regexp.MustCompile(`AMD-Vi: Event logged \[IO_PAGE_FAULT`), ResultFail, "the IOMMU blocked a transfer"},
	// F_TRANSLATION, F_ADDR_SIZE, F_ACCESS and F_PERMISSION, by number up to
	// some 6.x, by name since.
	{"ISO-FAULTS", regexp.MustCompile(`arm-smmu-v3 .*event 0x1[0-3]\b`), ResultFail, "the IOMMU blocked a transfer"},
	{"ISO-FAULTS", regexp.MustCompile(`arm-smmu-v3 .*event: F_\w+ client: \S+`), ResultFail, "the IOMMU blocked a transfer"},
	{"NV-PEERMEM", regexp.MustCompile(`nv(idia)?_peer_?mem: (disagrees about version of symbol|Unknown symbol) ib_(un)?register_peer_memory_client`), ResultWarn, "nvidia-peermem does not fit the loaded ib_core"},
	{"NV-PEERMEM-KMSG", regexp.MustCompile(`nvidia_peermem.*detected invalid context`), ResultWarn, "a context that is gone was used"},
	{"PCIE-AER", regexp.MustCompile(`AER: .*error|PCIe Bus Error`), ResultWarn, "a link had errors"},
	{"PCIE-LINK", regexp.MustCompile(`available PCIe bandwidth, limited by`), ResultWarn, "a link is narrower than the device could use"},
	{"PCIE-BAR-ASSIGNED", regexp.MustCompile(`BAR \d+.*(can't assign; no space|failed to assign)`), ResultFail, "a BAR found no room"},
}

// Command is the kernel's own proposal, if the line has one.
func (p Pattern) Command(line string) string {
	if m := p.Match.FindStringSubmatch(line); len(m) == 2 && strings.HasPrefix(m[1], "pci=") {
		return m[1]
	}
	return ""
}

// Loggable reports a line of the kernel's log that a check or a link looks for.
func Loggable(line string) bool {
	return machine.EncryptionLine.MatchString(line) || slices.ContainsFunc(Patterns, func(p Pattern) bool { return p.Match.MatchString(line) })
}

// FaultAddress matches the address in a fault of an IOMMU: Intel's (DMAR), AMD's, Arm's (SMMU).
var FaultAddress = regexp.MustCompile(`(?:fault addr |address=|iova: )(0x[0-9a-f]+)`)

// PCIAddress matches the address of a PCI function in the kernel's log, with a domain or without one.
var PCIAddress = regexp.MustCompile(`(?:[0-9a-f]{4,}:)?[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]`)

// XidDevice is how NVIDIA's driver writes a GPU: without a function.
var XidDevice = regexp.MustCompile(`NVRM: Xid \(PCI:([0-9a-f:]+)\)`)

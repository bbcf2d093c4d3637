// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/p2p"
)

// lines has one line for each of p2p.Patterns, in their order, as the kernel and the drivers print it.
var lines = []string{
	"pci 0000:14:00.0: ACS redirect is set between the client and provider (0000:13:00.0)",
	"pci 0000:14:00.0: to disable ACS redirect for this path, add the kernel parameter: pci=disable_acs_redir=0000:10:00.0;0000:11:00.0",
	"pci 0000:14:00.0: Host bridge not in P2PDMA whitelist: 8086:2f00",
	"pci 0000:14:00.0: cannot be used for peer-to-peer DMA as the client and provider (0000:13:00.0) do not share an upstream bridge or whitelisted host bridge",
	"NVRM: nv_dma_buf_map: importer unable to handle MMIO without struct page",
	"NVRM: nv_dma_buf_attach: topology not supported for mapping type FORCE_PCIE",
	"NVRM: nv_dma_buf_attach: dma-buf attach failed: topology not supported",
	"NVRM: Xid (PCI:0000:13:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
	"NVRM: Xid (PCI:0000:13:00): 31, pid=41234, name=python3, Ch 00000008, intr 00000000. MMU Fault",
	"amdgpu 0000:13:00.0: amdgpu: PCIe P2P access from peer device 0000:15:00.0 is not supported by the chipset",
	"DMAR: [DMA Write NO_PASID] Request device [14:00.0] fault addr 0x38000000000 [fault reason 0x05] PTE Write access is not set",
	"mlx5_core 0000:14:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000a address=0x38000000000 flags=0x0020]",
	"arm-smmu-v3 arm-smmu-v3.0.auto: event 0x10 received:",
	"arm-smmu-v3 arm-smmu-v3.0.auto: event: F_TRANSLATION client: 0000:14:00.0 sid: 0x1400 ssid: 0x0 iova: 0x38000000000 ipa: 0x0",
	"nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client",
	"nvidia_peermem: nv_get_p2p_free_callback: detected invalid context, skipping further processing",
	"pcieport 0000:12:00.0: AER: Corrected error received: 0000:13:00.0",
	"mlx5_core 0000:14:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at 0000:12:00.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)",
	"pci 0000:13:00.0: BAR 1 [mem size 0x2000000000 64bit pref]: can't assign; no space",
}

// A line in a snapshot is found by the same pattern as on the machine, with the same fields, addresses and devices.
func TestLinesAreFoundAgain(t *testing.T) {
	if len(lines) != len(p2p.Patterns) {
		t.Fatalf("%d lines for %d patterns", len(lines), len(p2p.Patterns))
	}
	first := func(line string) int {
		return slices.IndexFunc(p2p.Patterns, func(p p2p.Pattern) bool { return p.Match.MatchString(line) })
	}
	others := []string{
		"x86/mm: Memory Encryption Features active: AMD SEV SEV-ES SEV-SNP", "pci 0000:13:00.0: BAR 1 [mem size 0x2000000000 64bit pref]: failed to assign", "AMD Secure Encrypted Virtualization (SEV) active",
		"pcieport 0000:12:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)", "nv_peer_mem: Unknown symbol ib_unregister_peer_memory_client (err -2)",
	}
	for i, line := range append(slices.Clone(lines), others...) {
		now := New().Line(line)
		if i < len(lines) && first(line) != i {
			t.Errorf("line %d is found by pattern %d", i, first(line))
		}
		if first(now) != first(line) || p2p.Loggable(now) != p2p.Loggable(line) {
			t.Errorf("%q is found by pattern %d, not %d", now, first(now), first(line))
			continue
		}
		if a, b := p2p.PCIAddress.FindAllString(line, -1), p2p.PCIAddress.FindAllString(now, -1); !slices.Equal(a, b) {
			t.Errorf("%q: %q, want %q", now, b, a)
		}
		if a, b := p2p.FaultAddress.FindStringSubmatch(line), p2p.FaultAddress.FindStringSubmatch(now); !slices.Equal(a, b) {
			t.Errorf("%q: %q, want %q", now, b, a)
		}
		if n := first(line); n >= 0 {
			p := p2p.Patterns[n]
			if a, b := p.Match.FindStringSubmatch(line), p.Match.FindStringSubmatch(now); len(a) > 1 && !slices.Equal(a[1:], b[1:]) || p.Command(line) != p.Command(now) {
				t.Errorf("%q: %q, want %q", now, b, a)
			}
		}
	}
}

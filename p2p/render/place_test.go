// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/p2p/result"
)

// A parameter says where it goes, and a command to type does not.
func TestPlace(t *testing.T) {
	for command, want := range map[string]string{
		"iommu=pt":            "on the kernel's command line",
		"iommu.passthrough=1": "on the kernel's command line",
		"pci=pcie_bus_perf":   "on the kernel's command line",
		"xe.vram_bar_size=0":  "on the kernel's command line",
		"i915.force_probe=!56a0 xe.force_probe=56a0":       "on the kernel's command line",
		"options nvidia NVreg_GrdmaPciTopoCheckOverride=1": "in a file NAME.conf in /etc/modprobe.d",
		"": "", "modprobe mlx5_ib": "", "p2pcheck --live": "", "NCCL_DMABUF_ENABLE=1": "", "CONFIG_PCI_P2PDMA=y CONFIG_DMABUF_MOVE_NOTIFY=y": "",
		"sysctl kernel.numa_balancing=0": "", "mlxconfig -d 0009:01:00.0 set ATS_ENABLED=false": "", "-global q35-pcihost.pci-hole64-size=2T": "",
	} {
		if got := Place(command); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	var b strings.Builder
	Remedy(&b, Style{}, &result.Remedy{Change: "let it pass", Command: "iommu=pt"}, nil)
	Remedy(&b, Style{}, &result.Remedy{Change: "GRUB_CMDLINE_LINUX: let it pass", Command: "pci=x"}, nil)
	if want := "  change: let it pass; put this on the kernel's command line:\n          iommu=pt\n  change: GRUB_CMDLINE_LINUX: let it pass\n          pci=x\n"; b.String() != want {
		t.Errorf("%s, want %s", b.String(), want)
	}
}

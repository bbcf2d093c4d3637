// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

func TestKernelLog(t *testing.T) {
	name := filepath.Join(t.TempDir(), "kmsg")
	if err := os.WriteFile(name, []byte("6,7,1,-;nvme 0000:13:00.0: first\n SUBSYSTEM=pci\n6,8,2,-;second;third\n\x00\xff\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := machine.ReadLog(name)
	if k.Err != nil || !k.Cut || !slices.Equal(k.Lines, []string{"nvme 0000:13:00.0: first", "second;third"}) {
		t.Errorf("%+v", k)
	}
	if k := machine.ReadLog(name + "none"); !errors.Is(k.Err, unix.ENOENT) {
		t.Error(k.Err)
	}
	if !p2p.Loggable("DMAR: [DMA Write NO_PASID] Request device [04:00.0] fault addr 0xfb020000") || p2p.Loggable("hello") {
		t.Error("Loggable is wrong")
	}
}

// Lines that kernels and drivers print, and the results that the checks give them.
func TestLogTexts(t *testing.T) {
	for _, c := range []struct {
		line, check string
		want        p2p.Result
		says        string
	}{
		{"pci 0000:10:00.0: Host bridge not in P2PDMA whitelist: 8086:09a2", "KRN-KMSG", p2p.ResultWarn, "does not trust the host bridge"},
		{"pci 0000:99:00.0: Host bridge not in P2PDMA whitelist: 8086:09a2", "KRN-KMSG", p2p.ResultPass, "no such line"},
		{"amdgpu 0000:13:00.0: ACS redirect is set between the client and provider (0000:14:00.0)", "KRN-KMSG", p2p.ResultWarn, "redirects to the root"},
		{"NVRM: dma-buf attach failed: importer unable to handle MMIO without struct page", "KRN-KMSG", p2p.ResultFail, "the importer wants pages"},
		{"NVRM: dma-buf attach failed: PCI topology not supported for dma-buf", "KRN-KMSG", p2p.ResultFail, "gate refused an importer"},
		{"NVRM: dma-buf attach failed: topology not supported for mapping type FORCE_PCIE", "KRN-KMSG", p2p.ResultWarn, "mapping for PCIe"},
		{"amdgpu 0000:13:00.0: amdgpu: PCIe P2P access from peer device 0000:15:00.0 is not supported by the chipset", "KRN-KMSG", p2p.ResultWarn, "two GPUs"},
		{"amdgpu 0000:13:00.0: [drm] PCIe P2P access from peer device 0000:15:00.0 is not supported by the chipset", "KRN-KMSG", p2p.ResultWarn, "two GPUs"},
		{"pcieport 0000:12:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)", "PCIE-AER", p2p.ResultWarn, "severity=Corrected"},
		{"pcieport 0000:12:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Receiver ID)", "PCIE-AER", p2p.ResultWarn, "severity=Uncorrectable"},
		{"pcieport 0000:99:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)", "PCIE-AER", p2p.ResultPass, "none"},
	} {
		on := "small-hgx"
		if strings.Contains(c.line, "dma-buf attach") {
			on = "wrong-socket" // below one bridge the gate refuses no pair
		}
		found := checked(t, testenv.Machines[on](), check.Live{}, c.check, log(c.line))
		says := slices.ContainsFunc(found, func(f check.Finding) bool { return f.Result == c.want && strings.Contains(f.Read, c.says) })
		if worst(found) != c.want || !says {
			t.Errorf("%s: %v", c.line, said(found))
		}
	}
}

// The kernel proposes ports for one pair. The remedy has them and those for the other pairs, as the kernel uses one list.
func TestKernelsProposal(t *testing.T) {
	const line = "amdgpu 0000:13:00.0: to disable ACS redirect for this path, add the kernel parameter: pci="
	for _, c := range []struct {
		proposal, acs, command string
	}{
		{"disable_acs_redir=0000:12:00.0", "0x00", "pci=disable_acs_redir=0000:12:00.0"},
		{"disable_acs_redir=0000:12:00.0", "0x1d", "pci=disable_acs_redir=0000:12:00.0;0000:12:01.0;0000:12:02.0;0000:12:03.0"},
		{"disable_acs_redir=0000:99:00.0", "0x1d", "pci=disable_acs_redir=0000:12:00.0;0000:12:01.0;0000:12:02.0;0000:12:03.0;0000:99:00.0"},
		{"disable_acs_redir=", "0x1d", ""},
		{"another=0000:12:00.0", "0x1d", ""},
	} {
		command := ""
		for _, f := range checked(t, testenv.Machines["small-mi300"](), check.Live{}, "KRN-KMSG", swap("acs=0x00", "acs="+c.acs), log(line+c.proposal)) {
			if f.Remedy != nil {
				command = f.Remedy.Command
			}
		}
		if command != c.command {
			t.Errorf("%+v: %q", c, command)
		}
	}
}

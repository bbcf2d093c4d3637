// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// A finding names the file, the line or the size that is missing.
func TestMissingIsNamed(t *testing.T) {
	for _, c := range []struct {
		on, id, words string
		edits         []edit
	}{
		{"small-mi300", "P2P-DMAMASK", "there is no dma_mask_bits", []edit{swap("dma_mask_bits=64", "dma_mask_bits=-")}},
		{"small-mi300", "AMD-LARGEBAR", "there is no mem_info_vis_vram_total", []edit{drop(amdGPU + "/mem_info_vis")}},
		{"small-mi300", "PCIE-BAR-ASSIGNED", "there is no resource", []edit{gone(amdGPU + "/resource")}},
		{"small-mi300", "PCIE-BAR-SIZE", "256 MiB of ", []edit{put(amdGPU+"/resource", "0x20000000000 0x2000fffffff 0x14220c")}},
		{"small-mi300", "LIB-MOVENOTIFY", "no line CONFIG_DMABUF_MOVE_NOTIFY=y", nil},
		{"small-mi300", "KRN-CFG-DMABUF", "whether CONFIG_DMA_SHARED_BUFFER is set is not known: no configuration was found, and no list of the kernel's symbols", []edit{config("-")}},
		{"small-mi300", "LIB-UCX", "/dev/kfd", []edit{gone("dev")}},
	} {
		found := checked(t, testenv.Machines[c.on](), check.Live{}, c.id, c.edits...)
		if text := strings.Join(said(found), "\n"); !strings.Contains(text, c.words) {
			t.Errorf("%s: %s; want %q", c.id, text, c.words)
		}
	}
}

// A configuration that may not be read is not one that is missing.
func TestDeniedConfiguration(t *testing.T) {
	root := testenv.Machines["small-mi300"]().Write(t)
	testenv.WatchFiles(t, root, func(name string) error {
		if strings.Contains(name, "boot/config-") {
			return unix.EACCES
		}
		return nil
	})
	m, s, _ := only(root, "KRN-CONFIG-SRC", check.Live{})
	found := Run(m, s)
	if worst(found) != unknown || !strings.Contains(found[0].Read, "cannot be read: permission denied") || found[0].Remedy == nil || !strings.Contains(found[0].Remedy.Change, "as root") {
		t.Errorf("%v, %+v", said(found), found[0].Remedy)
	}
	for _, p := range s.Pairs {
		if p.Prediction.Outcome == chain.OutcomeUnknown && (p.Remedy == nil || !strings.Contains(p.Remedy.Change, "as root")) {
			t.Errorf("%+v", p.Remedy)
		}
	}
}

// If p2pcheck already runs as root, the remedy names the missing capability or namespace. It keeps
// --pid.
func TestLookAgain(t *testing.T) {
	for _, c := range []struct {
		root          bool
		pid           int
		change, shell string
		edits         []edit
	}{
		{false, 0, "look again as root", "sudo p2pcheck", nil},
		{false, 4711, "look again as root", "sudo p2pcheck --pid 4711", nil},
		{true, 4711, "this process is root already", "", nil},
		{true, 0, "without CAP_SYSLOG", "", []edit{put("proc/self/status", "CapEff:\t000001fbffffffff")}},
		{true, 0, "another user namespace", "", []edit{text("proc/self/ns/user", "user:[4026532000]")}},
	} {
		m := machine.Source{Root: written(t, testenv.Machines["small-mi300"](), c.edits), Process: c.pid}.Open()
		if r := p2p.Again(m, "as root", c.root); !strings.Contains(r.Change, c.change) || r.Command != c.shell {
			t.Errorf("%+v; want %+v", r, c)
		}
	}
}

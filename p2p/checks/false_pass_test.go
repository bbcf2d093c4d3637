// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// results are the worst that each check finds.
func results(root string) map[string]p2p.Result {
	m := machine.Open(root)
	byCheck := map[string][]check.Finding{}
	for _, f := range Run(m, subject(m)) {
		byCheck[f.Check.ID] = append(byCheck[f.Check.ID], f)
	}
	out := map[string]p2p.Result{}
	for id, all := range byCheck {
		out[id] = worst(all)
	}
	return out
}

// A file that is empty, full of noise or unreadable makes no check pass that did not pass before. The
// machines have as many faults as possible, and the test mangles each file in turn.
func TestNoFalsePass(t *testing.T) {
	testenv.Exhaustive(t)
	for _, machine := range []struct {
		name  string
		edits []edit
	}{
		{"small-mi300", []edit{
			cpu(machinetest.Xeon), config(machinetest.WithoutP2P), release("6.12.1"), swap("acs=0x00", "acs=0x1d"), swap("vendor=0x1022 device=0x14a4", "vendor=0x8086 device=0x1"), swap(":identity", ":DMA"),
			swap("dma_mask_bits=64", "dma_mask_bits=40 devctl=0x10"), put(amdGPU+"/mem_info_vis_vram_total", "1"), put(amdGPU+"/resource", "0x20000000000 0x2000fffffff 0x14220c"),
			put("proc/self/limits", "Max locked memory 1 1 bytes"), put("proc/self/status", "CapEff:\t0"), put(aPort+"/state", "1: DOWN"), put("sys/class/net/eth0/mtu", "1500"),
			put("proc/cmdline", "pci=noats"), put("proc/sys/kernel/numa_balancing", "1"), put("sys/module/amdgpu/parameters/pcie_p2p", "N"), put("proc/self/environ", "NCCL_DMABUF_ENABLE=0"),
			put(amdGPU+"/power/runtime_status", "suspended"), log("AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:14:00.0]"), put(amdNIC+"/current_link_width", "4"), put(amdNIC+"/aer_dev_fatal", "TOTAL_ERR_FATAL 1"),
		}},
		{"small-hgx", []edit{
			put("proc/driver/nvidia/version", "Kernel Module"), put("sys/module/nvidia/taint", "POE"), swap("DmaRemapPeerMmio: 1", "DmaRemapPeerMmio: 0"), swap(":identity", ":DMA"),
			put("sys/module/nvidia_peermem/version", "570"), put(amdGPU+"/resource0_resize", "0000000000040000"), put("sys/module/mlx5_ib/taint", "OE"), drop("sys/class/infiniband_verbs/abi"), swap("numa_node=0", "numa_node=1"), swap("Ethernet", "InfiniBand"),
		}},
	} {
		tree := testenv.Machines[machine.name]()
		for _, e := range machine.edits {
			e(&tree)
		}
		root := tree.Write(t)
		whole := results(root)
		times := map[string]int{}
		err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			// A device without these is none: the inventory says so. Some files
			// may be empty: a taint is, of the kernel's own modules.
			base := filepath.Base(name)
			if times[base]++; times[base] > 2 {
				return nil // of alike devices
			}
			if base == "class" || base == "vendor" || base == "device" {
				return nil
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			for what, spoil := range map[string]func() error{
				"empty":      func() error { return os.WriteFile(name, nil, 0o600) },
				"noise":      func() error { return os.WriteFile(name, []byte("\xff\xfe noise\n\x00"), 0o600) },
				"unreadable": func() error { return errors.Join(os.Remove(name), os.Symlink(filepath.Base(name), name)) },
			} {
				if err := spoil(); err != nil {
					return err
				}
				for id, r := range results(root) {
					if what == "empty" && (base == "taint" || base == "cmdline" || base == "environ") {
						continue
					}
					if r == p2p.ResultPass && whole[id] != p2p.ResultPass && whole[id] != p2p.ResultSkip {
						t.Errorf("%s: with %s in %s, %s passes", machine.name, what, strings.TrimPrefix(name, root), id)
					}
				}
				if err := errors.Join(os.Remove(name), os.WriteFile(name, text, 0o600)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

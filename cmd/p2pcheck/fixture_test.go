// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

var update = flag.Bool("update", false, "write testdata anew; read it before you commit it")

// server has two GPUs and a NIC below one switch (one of them below a port that
// redirects), a NIC and an i915 GPU on ports of their own, a NIC whose driver
// imports nothing below a second root on another node, a display without
// memory, and software NICs.
const server = `
pci0000:00/0000:00:00.0 vendor=0x8086 device=0x29c0 class=0x060000 config=256
pci0000:00/0000:00:01.0 class=0x060400 type=4 vendor=0x8086 device=0x347a
pci0000:00/0000:00:01.0/0000:01:00.0 class=0x060400 type=5 vendor=0x1000 device=0xc030 current_link_speed=32.0_GT/s_PCIe current_link_width=16 max_link_speed=32.0_GT/s_PCIe max_link_width=16
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0 class=0x060400 type=6 acs=0x00
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0 class=0x120000 vendor=0x1002 device=0x74a1 driver:amdgpu mem_info_vram_total=206141652992 mem_info_vis_vram_total=206141652992 numa_node=0 current_link_speed=16.0_GT/s_PCIe current_link_width=8 max_link_speed=32.0_GT/s_PCIe max_link_width=16
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0 class=0x060400 type=6 acs=0x00
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0 class=0x020000 vendor=0x15b3 device=0x1021 driver:mlx5_core rdma:mlx5_0 numa_node=0
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:02.0 class=0x060400 type=6 acs=PORT
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:02.0/0000:05:00.0 class=0x120000 vendor=0x1002 device=0x74a1 driver:amdgpu mem_info_vram_total=206141652992 mem_info_vis_vram_total=206141652992 numa_node=0
pci0000:00/0000:00:02.0 class=0x060400 type=4
pci0000:00/0000:00:02.0/0000:08:00.0 class=0x020000 vendor=0x15b3 device=0x1021 driver:mlx5_core rdma:mlx5_1 numa_node=0
pci0000:80/0000:80:01.0 class=0x060400 type=4
pci0000:80/0000:80:01.0/0000:81:00.0 class=0x020000 vendor=0x15b3 device=0x1007 driver:mlx4_core rdma:mlx4_0 numa_node=1
`

// others are devices of the server that are not as they should be.
const others = `
pci0000:00/0000:00:03.0 class=0x030000 vendor=0x8086 device=0x56a0 driver:i915
pci0000:00/0000:00:04.0 class=0x030000 vendor=0x10de device=0x2330
pci0000:00/0000:00:05.0 class=0x030000 vendor=0x1af4 device=0x1050 driver:virtio-pci
`

func machineTree(functions, port string) testenv.Tree {
	tree := testenv.Tree{
		CPU:       testenv.Xeon,
		Functions: strings.ReplaceAll(functions, "PORT", port),
		Files: map[string]string{
			"sys/module/amdgpu/taint":  "\n",
			"sys/module/i915/taint":    "\n",
			"sys/module/mlx5_ib/taint": "\n", "sys/class/infiniband_verbs/abi_version": "6\n",
			"sys/module/mlx4_ib/taint": "\n", "sys/devices/virtual/infiniband/rxe0/importer": "dynamic\n", // the test bed's
			"sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0/resource": "0x20000000000 0x23fffffffff 0x14220c\n",
		},
		Links: map[string]string{
			"sys/class/infiniband/rxe0":                          "sys/devices/virtual/infiniband/rxe0",
			"sys/devices/pci0000:00/0000:00:05.0/virtio0/driver": "sys/bus/virtio/drivers/virtio_gpu",
		},
	}
	for line := range strings.Lines(tree.Functions) {
		if dir, attributes, _ := strings.Cut(line, " "); strings.Contains(attributes, "driver:amdgpu") {
			tree.Files["sys/devices/"+dir+"/power/runtime_status"] = "active\n"
		}
	}
	return tree
}

// outcome is one run of the command.
type outcome struct {
	status   int
	out, err string
}

// run runs the command in a directory where the tree is ROOT: how long its real name is makes no
// difference to lines that are folded.
func run(tree testenv.Tree, t *testing.T, args ...string) outcome {
	t.Helper()
	there := t.TempDir()
	here, err1 := os.Getwd()
	if err := errors.Join(err1, os.Symlink(tree.Write(t), filepath.Join(there, "ROOT")), os.Chdir(there)); err != nil {
		t.Fatal(err)
	}
	r := command(args...)
	if err := os.Chdir(here); err != nil {
		t.Fatal(err)
	}
	return r
}

// flat is a text without its lines.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// golden compares a text with a file that a person has read.
func golden(t *testing.T, name, got string) {
	t.Helper()
	name = "testdata/" + name
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("not what %s has:\n%s", name, got)
	}
}

// treeOf has the files below a directory in memory.
func treeOf(t *testing.T, root string) *files.Tree {
	t.Helper()
	tree := files.NewTree()
	err := filepath.WalkDir(root, func(name string, e os.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		in := strings.TrimPrefix(name, root+"/")
		switch {
		case e.IsDir():
			return tree.AddDir(in)
		case e.Type() == os.ModeSymlink:
			to, err := os.Readlink(name)
			if err != nil {
				return err
			}
			if filepath.IsAbs(to) {
				to, err = filepath.Rel(filepath.Dir(name), root+to)
			}
			return errors.Join(err, tree.AddLink(in, to))
		}
		data, err := os.ReadFile(name)
		return errors.Join(err, tree.AddFile(in, data))
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

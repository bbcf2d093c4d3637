// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/snapshot"
)

// renamed is a machine with other names of devices.
func renamed(tree testenv.Tree, names ...string) testenv.Tree {
	rename := strings.NewReplacer(names...).Replace
	tree.Functions = rename(tree.Functions)
	for name, text := range maps.Clone(tree.Files) {
		delete(tree.Files, name)
		tree.Files[rename(name)] = rename(text)
	}
	for name, target := range maps.Clone(tree.Links) {
		delete(tree.Links, name)
		tree.Links[rename(name)] = rename(target)
	}
	return tree
}

// oddMachines are machines whose snapshots have been judged in another way than the machines.
func oddMachines(t *testing.T) map[string]testenv.Tree {
	out := map[string]testenv.Tree{}
	add := func(what string, change func(tree *testenv.Tree)) {
		tree := testenv.Machines["small-hgx"]()
		change(&tree)
		out[what] = tree
	}
	for what, flags := range map[string]string{"a blank at the end": "fpu vme de pse ", "a tab": "fpu\thypervisor de", "a carriage return": "fpu vme de pse\r", "no flags": "", "a hypervisor": "fpu hypervisor"} {
		add("flags with "+what, func(tree *testenv.Tree) {
			tree.CPU = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nflags\t\t: " + flags + "\n\n"
		})
	}
	add("a processor that was cut", func(tree *testenv.Tree) {
		tree.CPU = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nflags\t\t: fpu vm"
	})
	for _, entry := range []string{
		"FI_VERBS_USE_DMABUF=Off", "UCX_IB_GPU_DIRECT_RDMA=YES", "UCX_IB_GPU_DIRECT_RDMA=TRY", "UCX_CUDA_COPY_DMABUF=On", "UCX_IB_PCI_RELAXED_ORDERING=Try", "FI_PROVIDER=VERBS", "FI_HMEM_CUDA_USE_GDRCOPY=FALSE",
		"OFI_NCCL_DISABLE_DMABUF=FALSE", "NCCL_NET=SOCKET", "NCCL_NET=Acme", "MC_DISABLE_GPU_DIRECT_RDMA=Off", "NCCL_IB_DISABLE=00001", "UCX_CUDA_COPY_MAX_REG_RATIO=0.99999", "NVSHMEM_IB_DISABLE_DMABUF=falcon", "NVSHMEM_IB_DISABLE_DMABUF=acme",
		"NCCL_IB_HCA=mlx5_", "NCCL_IB_HCA=mlx", "NCCL_IB_HCA=^mlx5_", "NCCL_IB_HCA==mlx5_1", "NCCL_IB_HCA=acme", "UCX_NET_DEVICES=mlx5_[0-1]:1", "UCX_NET_DEVICES=all", "NCCL_IB_HCA=mlx5_0:1,mlx5_1:1", "NCCL_P2P_LEVEL=phb", "NCCL_P2P_LEVEL=PHB", "NCCL_P2P_LEVEL=4",
		"NCCL_TOPO_FILE=/home/alice/10/20/30/40/topo.xml", "NCCL_IB_GID_INDEX=3", "NCCL_IB_GID_INDEX=-1", "NCCL_DMABUF_ENABLE=", "NCCL_UNKNOWN=1",
	} {
		add(entry, func(tree *testenv.Tree) { tree.Files["proc/self/environ"] = entry + "\x00" })
	}
	for _, c := range [][2]string{{"stor1000 stor1001", "NCCL_IB_HCA=stor"}, {"storage_a storage_b", "NCCL_IB_HCA=storage"}, {"rail0port0 rail0port1", "NCCL_IB_HCA=rail0"}, {"rocexa088c20300000001 rocexa088c20300000002", "NCCL_IB_HCA=rocex"}, {"storage0 mlx5_1", "NCCL_IB_HCA=^storage"}, {"mlx5_bond_0 mlx5_1", "NCCL_IB_HCA=mlx5_bond"}} {
		to := strings.Fields(c[0])
		tree := renamed(testenv.Machines["small-hgx"](), "mlx5_0", to[0], "mlx5_1", to[1])
		tree.Files["proc/self/environ"] = c[1] + "\x00"
		out[c[0]+", "+c[1]] = tree
	}
	out["an RDMA device with a network device's name"] = renamed(testenv.Machines["small-hgx"](), "mlx5_0", "eth0", "mlx5_1", "eth1")
	for what, line := range map[string]string{
		"no space": "pci 0000:13:00.0: BAR 1 [mem size 0x2000000000 64bit pref]: can't assign; no space", "a fault": "DMAR: [DMA Write NO_PASID] Request device [14:00.0] fault addr 0x38000000000 [fault reason 0x05] PTE Write access is not set",
		"an Xid": "NVRM: Xid (PCI:0000:13:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "a whitelist": "mlx5_core 0000:14:00.0: cannot be used for peer-to-peer DMA as the client and provider (0000:13:00.0) do not share an upstream bridge or whitelisted host bridge",
	} {
		add("a log with "+what, func(tree *testenv.Tree) { tree.Files["dev/kmsg"] = "6,0,0,-;Linux version\n4,1,1,-;" + line + "\n" })
	}
	add("a configuration of more than 4 MiB", func(tree *testenv.Tree) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, err := z.Write([]byte(strings.Repeat("# a comment\n", 400_000) + tree.Config))
		if err := errors.Join(err, z.Close()); err != nil {
			t.Fatal(err)
		}
		tree.Config, tree.Files["proc/config.gz"] = "-", b.String()
	})
	for name, text := range map[string]string{"sys/kernel/numa_balancing": "0", "proc/cmdline": "iommu=pt pci=noats,disable_acs_redir=0000:10:01.0;0000:11:00.0 intel_iommu=on,sm_on -- iommu=off\n", "proc/sys/kernel/osrelease": "6.12.9-acme-5.el9.x86_64\n"} {
		add(name, func(tree *testenv.Tree) { tree.Files[name] = text })
	}
	return out
}

// The snapshot of an odd machine is judged as the machine.
func TestSnapshotsOfOddMachines(t *testing.T) {
	for what, tree := range oddMachines(t) {
		root := tree.Write(t)
		file, s := snapshotOf(t, root)
		sameAsMachine(t, what, root, file, s)
	}
}

// An RDMA device may be called as a directory of sysfs is.
func TestSnapshotOfADeviceCalledNet(t *testing.T) {
	root := renamed(testenv.Machines["small-hgx"](), "mlx5_0", "net").Write(t)
	file, _ := snapshotOf(t, root)
	whole, copied := command("--root", root), command("--snapshot", file)
	if copied.status != whole.status || !strings.Contains(copied.out, "4 direct") || !strings.Contains(whole.out, "4 direct") {
		t.Errorf("status %d and %d\n%s", whole.status, copied.status, copied.out)
	}
}

// A link with more ".." than there are directories above it ends at the root, in a snapshot as well.
func TestSnapshotFollowsLinksAsTheKernelDoes(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	for _, name := range []string{"sys/class/infiniband/mlx5_0", "sys/bus/pci/devices/0000:13:00.0"} {
		at := filepath.Join(root, name)
		real, err := filepath.EvalSymlinks(at)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(at); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(strings.Repeat("../", 14)+strings.TrimPrefix(real, root+"/"), at); err != nil {
			t.Fatal(err)
		}
	}
	file, s := snapshotOf(t, root)
	sameAsMachine(t, "links to above the root", root, file, s)
	if r := command("--snapshot", file); !strings.Contains(r.out, "4 direct") {
		t.Error(r.out)
	}
}

// An archive of a few files that links make many ends as soon as one with as many files would.
func TestArchivesThatRepeatThemselves(t *testing.T) {
	testenv.Exhaustive(t)
	root := testenv.Machines["small-hgx"]().Write(t)
	if err := hostileCopies["100 devices of 100 ports of 100 addresses by links"](root, ""); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "archive")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := snapshot.WriteFiles(f, version, treeOf(t, root).All()); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	out, _, spent := runMeasured(t, "--json", "--snapshot", file)
	t.Log(spent)
	if spent.above(copyBounds) {
		t.Errorf("%v, where the bounds are %v", spent, copyBounds)
	}
	if !bytes.Contains(out, []byte("again and again")) {
		t.Error("nothing says that the archive repeats itself")
	}
}

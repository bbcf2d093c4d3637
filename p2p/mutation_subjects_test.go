// SPDX-License-Identifier: Apache-2.0

package p2p_test

import (
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// subject is a pair that is direct, of a machine that is no guest, and what is known of it from
// its description. The expectations of mutations go by these words, never by a verdict.
type subject struct {
	name     string // of the machine: of the corpus, or of [testenv.Machines]
	as       string // how the subject differs from the machine; "" if it does not
	gpu, nic string
	at       string // the NIC's PCI address

	exporter exporter
	importer string // "mlx5", "bnxt"
	ofed     bool   // the RDMA modules are MLNX_OFED's
	peer     bool   // a peer-memory client is registered
	dmabuf   bool   // the pair is direct by a dma-buf

	below string // the bridge above both; "" where the way leads over the root
	root  root   // whether the processor's root complex is known to pass peer-to-peer

	series int    // of NVIDIA's driver
	kernel string // "5.15", as in the release
	iommu  string // of the NIC: "none", "identity", "DMA"
	change func(*testenv.Tree)
}

type exporter string

const (
	nvidia   exporter = "nvidia"   // memory behind a BAR
	coherent exporter = "coherent" // Grace's GPU: memory with pages
	amdgpu   exporter = "amdgpu"   // the kernel's own
	amdDKMS  exporter = "amdgpu-dkms"
)

func (e exporter) ofNVIDIA() bool { return e == nvidia || e == coherent }

type root string

const (
	listed root = "listed" // its first function is on the kernel's list
	zen    root = "zen"    // AMD from Zen on: all pass
	grace  root = "grace"  // NVIDIA holds it unable to pass peer-to-peer traffic
)

// subjects are bare-metal machines of different kinds.
var subjects = []*subject{
	{name: "small-hgx", gpu: "0000:13:00.0", nic: "mlx5_0", at: "0000:14:00.0", exporter: nvidia, importer: "mlx5", dmabuf: true,
		below: "0000:11:00.0", root: listed, series: 580, kernel: "7.2", iommu: "identity"},
	{name: "wrong-socket", gpu: "0000:11:00.0", nic: "mlx5_0", at: "0000:81:00.0", exporter: nvidia, importer: "mlx5", dmabuf: true,
		root: listed, series: 580, kernel: "7.2", iommu: "none"},
	{name: "small-mi300", gpu: "0000:13:00.0", nic: "bnxt_re0", at: "0000:14:00.0", exporter: amdgpu, importer: "bnxt", dmabuf: true,
		below: "0000:11:00.0", root: zen, kernel: "7.2", iommu: "identity"},
	{name: "mi300x-mlx5-no-move-notify", as: "with CONFIG_DMABUF_MOVE_NOTIFY", gpu: "0000:19:00.0", nic: "mlx5_0", at: "0000:18:00.0", exporter: amdgpu, importer: "mlx5", dmabuf: true,
		below: "0000:16:00.0", root: zen, kernel: "6.8", iommu: "identity",
		change: func(t *testenv.Tree) {
			t.Config = strings.ReplaceAll(t.Config, "# CONFIG_DMABUF_MOVE_NOTIFY is not set", "CONFIG_DMABUF_MOVE_NOTIFY=y")
		}},
	{name: "case-10-w7900-coreos", gpu: "0000:15:00.0", nic: "mlx5_0", at: "0000:16:00.0", exporter: amdgpu, importer: "mlx5", dmabuf: true,
		below: "0000:11:00.0", root: zen, kernel: "6.19", iommu: "identity"},
	{name: "rccl-mi300x-cx7", gpu: "0000:0c:00.0", nic: "mlx5_0", at: "0000:07:00.0", exporter: amdDKMS, importer: "mlx5", ofed: true, peer: true,
		below: "0000:05:00.0", root: listed, kernel: "5.15", iommu: "none"},
	{name: "case-06-gb300-azure", gpu: "0008:01:00.0", nic: "mlx5_0", at: "0000:01:00.0", exporter: coherent, importer: "mlx5", dmabuf: true,
		root: grace, series: 580, kernel: "6.14", iommu: "identity"},
	{name: "case-09-gh200", gpu: "0009:01:00.0", nic: "mlx5_0", at: "0000:01:00.0", exporter: coherent, importer: "mlx5", dmabuf: true,
		root: grace, series: 570, kernel: "6.8", iommu: "identity"},
	{name: "grace", gpu: "0008:01:00.0", nic: "mlx5_0", at: "0009:01:00.0", exporter: coherent, importer: "mlx5", dmabuf: true,
		root: grace, series: 580, kernel: "6.12", iommu: "DMA"},
	{name: "case-08-emerald-rapids", gpu: "0000:16:00.0", nic: "mlx5_0", at: "0000:18:00.0", exporter: nvidia, importer: "mlx5", dmabuf: true,
		root: listed, series: 570, kernel: "6.8", iommu: "identity"},
	{name: "case-08-emerald-rapids", as: "with an IOMMU that translates", gpu: "0000:16:00.0", nic: "mlx5_0", at: "0000:18:00.0", exporter: nvidia, importer: "mlx5", dmabuf: true,
		root: listed, series: 570, kernel: "6.8", iommu: "DMA",
		change: func(t *testenv.Tree) { t.Functions = strings.ReplaceAll(t.Functions, ":identity", ":DMA-FQ") }},
	{name: "case-17-memlock", gpu: "0000:13:00.0", nic: "mlx5_0", at: "0000:14:00.0", exporter: nvidia, importer: "mlx5", dmabuf: true,
		below: "0000:11:00.0", root: listed, series: 570, kernel: "6.8", iommu: "identity"},
	{name: "case-18-l40s-bnxt", gpu: "0000:21:00.0", nic: "bnxt_re0", at: "0000:c2:00.0", exporter: nvidia, importer: "bnxt", dmabuf: true,
		root: zen, series: 580, kernel: "6.17", iommu: "identity"},
	{name: "ogkm-1253-threadripper", gpu: "0000:01:00.0", nic: "mlx5_0", at: "0000:41:00.0", exporter: nvidia, importer: "mlx5", dmabuf: true,
		root: zen, series: 595, kernel: "6.17", iommu: "identity"},
	{name: "case-14-lag-bond", gpu: "0000:13:00.0", nic: "mlx5_bond_0", at: "0000:14:00.0", exporter: nvidia, importer: "mlx5", ofed: true, peer: true, dmabuf: true,
		below: "0000:11:00.0", root: listed, series: 550, kernel: "5.15", iommu: "identity"},
	{name: "mscclpp-657-peermem", gpu: "0000:1b:00.0", nic: "mlx5_0", at: "0000:18:00.0", exporter: nvidia, importer: "mlx5", ofed: true, peer: true,
		below: "0000:16:00.0", root: listed, series: 580, kernel: "5.15", iommu: "none"},
	{name: "ucx-6327-v100", gpu: "0000:1a:00.0", nic: "mlx5_0", at: "0000:1b:00.0", exporter: nvidia, importer: "mlx5", ofed: true, peer: true,
		below: "0000:15:00.0", root: listed, series: 450, kernel: "3.10", iommu: "none"},
	{name: "hgx-6.14-translating-no-acs", gpu: "0000:1b:00.0", nic: "mlx5_0", at: "0000:18:00.0", exporter: nvidia, importer: "mlx5", dmabuf: true,
		below: "0000:16:00.0", root: listed, series: 580, kernel: "6.14", iommu: "DMA"},
	{name: "daos-h100-nvl-rocky10", gpu: "0000:ba:00.0", nic: "mlx5_0", at: "0000:17:00.0", exporter: nvidia, importer: "mlx5", ofed: true, dmabuf: true,
		root: listed, series: 580, kernel: "6.12", iommu: "identity"},
}

func (s *subject) title() string {
	if s.as == "" {
		return s.name
	}
	return s.name + ", " + s.as
}

var corpusOnce = sync.OnceValue(func() map[string]testenv.CorpusMachine { return map[string]testenv.CorpusMachine{} })

var corpusLock sync.Mutex

// machineOfCorpus is a machine of the corpus by its name.
func machineOfCorpus(t testing.TB, name string) testenv.CorpusMachine {
	t.Helper()
	corpusLock.Lock()
	defer corpusLock.Unlock()
	all := corpusOnce()
	if len(all) == 0 {
		for _, c := range testenv.Corpus(t) {
			all[c.Name] = c
		}
	}
	c, ok := all[name]
	if !ok {
		t.Fatalf("the corpus has no machine %s", name)
	}
	return c
}

// tree is the subject's machine without the host bridges that have no part in the pair.
func (s *subject) tree(t testing.TB) testenv.Tree {
	t.Helper()
	var tree testenv.Tree
	if built, ok := testenv.Machines[s.name]; ok {
		tree = built()
	} else {
		tree = machineOfCorpus(t, s.name).Tree
	}
	buses := map[string]bool{}
	lines := slices.Collect(strings.Lines(tree.Functions))
	bus := func(line string) string {
		root, _, _ := strings.Cut(line, "/")
		return root
	}
	for _, line := range lines {
		dir, _, _ := strings.Cut(line, " ")
		if name := path.Base(dir); name == s.gpu || name == s.at {
			buses[bus(line)] = true
		}
	}
	if len(buses) == 0 {
		t.Fatalf("%s has neither %s nor %s", s.name, s.gpu, s.at)
	}
	tree.Functions = strings.Join(slices.DeleteFunc(lines, func(line string) bool { return !buses[bus(line)] }), "")
	if s.change != nil {
		s.change(&tree)
	}
	return tree
}

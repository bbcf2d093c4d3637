// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// The findings of the checks on machines of public reports. The folder of the corpus names the reports.
func TestReports(t *testing.T) {
	testenv.Exhaustive(t)
	type said struct {
		id      string
		result  p2p.Result
		read    string
		change  string // of the remedy
		command string
		none    bool // it has no remedy
	}
	for name, c := range map[string]struct {
		outcome chain.Outcome // of all pairs
		says    []said
		fails   []string // all checks that fail
		never   string   // a text that no remedy has
		edits   []edit   // files that the corpus leaves out
	}{
		"case-01-translating-iommu": {chain.Lost, []said{
			{id: "ISO-IOMMU-MODE", result: fail, read: "are blocked", change: "pass DMA through", command: "iommu=pt"},
			{id: "NV-PARAMS", result: fail, read: "whatever DmaRemapPeerMmio says", change: "pass DMA through", command: "iommu=pt"},
		}, []string{"GPU-EXPORTER-OPS", "ISO-IOMMU-MODE", "NV-PARAMS"}, "NVreg_DmaRemapPeerMmio", nil},
		"case-05-talos-no-p2pdma": {chain.Direct, []said{
			{id: "KRN-CFG-P2PDMA", result: pass, read: "NVIDIA's driver does not ask", none: true},
			{id: "P2P-VERDICT", result: pass, read: "no port on the way redirects", none: true},
			{id: "NV-PEERMEM", result: warn, read: "dma-bufs do not need it", change: "ibv_reg_mr() on GPU memory need DOCA-OFED or MLNX_OFED"},
		}, nil, "CONFIG_PCI_P2PDMA", []edit{config(machinetest.WithoutP2P)}},
		"case-06-gb300-azure": {chain.Direct, []said{
			{id: "P2P-NV-FORCEPCIE", result: warn, read: "refused with ENOTSUPP (524)", change: "export without that flag", command: "options nvidia NVreg_GrdmaPciTopoCheckOverride=1"},
		}, nil, "NCCL_NET_GDR_C2C=0", nil},
		"case-07-gb300-data-direct": {chain.Direct, []said{
			{id: "P2P-NV-FORCEPCIE", result: warn, read: "not with Data Direct: its DMA function", change: "export without that flag"},
		}, nil, "config_acs", nil},
		"case-08-emerald-rapids": {chain.Direct, []said{
			{id: "ISO-RO", result: warn, read: "not enough between root ports of Intel Emerald Rapids", change: "IBV_ACCESS_RELAXED_ORDERING", command: "UCX_IB_PCI_RELAXED_ORDERING=y"},
			{id: "LIB-UCX-ENV", result: warn, read: "16 GB/s in place of more than 40 GB/s", change: "relaxed ordering", command: "UCX_IB_PCI_RELAXED_ORDERING=y"},
		}, nil, "RELAXED_ORDERING=0", nil},
		"case-09-gh200": {chain.Direct, []said{
			{id: "LIB-NCCL-LEVEL", result: warn, read: "over C2C", change: "NCCL 2.27 or later", command: "NCCL_NET_GDR_C2C=1"},
			{id: "NV-COHERENT", result: pass, read: "C2C is the way to it", none: true},
		}, nil, "NCCL_NET_GDR_C2C=0", nil},
		"case-10-w7900-coreos": {chain.Direct, []said{
			{id: "KRN-CONFIG-SRC", result: warn, read: "perftest, and older UCX and RCCL, look nowhere else", change: "copy the configuration", command: "cp "},
			{id: "LIB-MOVENOTIFY", result: warn, read: "where perftest and older RCCL and UCX look", change: "copy the configuration", command: "cp "},
		}, nil, "run a kernel", []edit{put("boot/loader/entries", "")}},
		"case-14-lag-bond": {chain.Direct, []said{
			{id: "NIC-LAG", result: warn, read: "a LAG", change: "nothing, if both ports are below one switch"},
			{id: "LIB-UCX-ENV", result: warn, read: "lag_tx_port_affinity", change: "leave out gga_mlx5", command: "UCX_TLS=^gga_mlx5"},
		}, nil, "modprobe", nil},
		"case-17-memlock": {chain.Direct, []said{
			{id: "LIM-MEMLOCK", result: fail, read: "8 MiB", change: "systemctl edit docker, with LimitMEMLOCK=infinity", command: "docker run --ulimit memlock=-1"},
		}, []string{"LIM-MEMLOCK"}, "", []edit{put(".dockerenv", "")}},
		"case-18-l40s-bnxt": {chain.Direct, []said{
			{id: "LIB-UCX-ENV", result: warn, read: "stages through system memory for 0000:21:00.0", change: "UCX_IB_GPU_DIRECT_RDMA=y", command: "UCX_RNDV_SCHEME=get_zcopy"},
			{id: "LIB-NCCL-LEVEL", result: warn, read: "farther, up to SYS", change: "as far as the nearest direct NIC", command: "NCCL_NET_GDR_LEVEL=SYS"},
		}, nil, "UCX_IB_GPU_DIRECT_RDMA=n", nil},
	} {
		corpus := testenv.Corpus(t)
		i := slices.IndexFunc(corpus, func(m testenv.CorpusMachine) bool { return m.Name == name })
		if i < 0 {
			t.Errorf("%s is not there", name)
			continue
		}
		m := machine.Open(written(t, corpus[i].Tree, c.edits))
		s := subject(m)
		for _, p := range s.Pairs {
			if p.Verdict.Outcome() != c.outcome {
				t.Errorf("%s: %s: %v", name, p.Name(), p.Verdict)
			}
		}
		found := Run(m, s)
		var failed []string
		for _, f := range found {
			if f.Result == fail {
				failed = append(failed, f.Check.ID)
			}
			if f.Remedy != nil && c.never != "" && strings.Contains(f.Remedy.Change+" "+f.Remedy.Command, c.never) {
				t.Errorf("%s: %s proposes %+v", name, f.Check.ID, f.Remedy)
			}
		}
		slices.Sort(failed)
		if failed = slices.Compact(failed); !slices.Equal(failed, c.fails) {
			t.Errorf("%s: %v fail, want %v", name, failed, c.fails)
		}
		for _, w := range c.says {
			if !slices.ContainsFunc(found, func(f check.Finding) bool {
				r := f.Remedy
				return f.Check.ID == w.id && f.Result == w.result && strings.Contains(f.Read, w.read) &&
					(w.none && r == nil || !w.none && r != nil && strings.Contains(r.Change, w.change) && strings.HasPrefix(r.Command, w.command))
			}) {
				t.Errorf("%s: %+v: not in %v", name, w, saidOf(found, w.id))
			}
		}
	}
}

// saidOf is what one check says, for messages.
func saidOf(found []check.Finding, id string) (out []string) {
	for _, f := range found {
		if f.Check.ID == id {
			out = append(out, said([]check.Finding{f})...)
			if f.Remedy != nil {
				out = append(out, f.Remedy.Change, f.Remedy.Command)
			}
		}
	}
	return out
}

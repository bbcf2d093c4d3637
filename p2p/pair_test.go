// SPDX-License-Identifier: Apache-2.0

package p2p_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// A line of the log against a pair counts if it came while the pair was tried or later, and not if the
// proof is newer. All outputs count the pair alike.
func TestLogAndProof(t *testing.T) {
	const fault = "DMAR: [DMA Write NO_PASID] Request device [14:00.0] PTE Write access is not set"
	logged := func(records string) *machine.Machine {
		tree := testenv.HGX()
		tree.Files = maps.Clone(tree.Files)
		tree.Files["dev/kmsg"] = "6,100,0,-;Linux\n" + records + "6,110,9,-;x\n"
		return machine.Open(tree.Write(t))
	}
	last := uint64(105)
	for name, c := range map[string]struct {
		before, during, after string
		want                  chain.Outcome
	}{
		"no line":               {want: chain.Direct},
		"a line before":         {before: "4,104,5,-;" + fault + "\n", after: "4,104,5,-;" + fault + "\n", want: chain.Direct},
		"a line meanwhile":      {during: fault, want: chain.OutcomeUnknown},
		"a line after":          {after: "4,106,5,-;" + fault + "\n", want: chain.OutcomeUnknown},
		"a line on another NIC": {after: "4,106,5,-;DMAR: [DMA Write] Request device [16:00.0] x\n", want: chain.Direct},
	} {
		m := logged(c.before)
		gpus, err1 := drivers.GPUs(m)
		nics, err2 := drivers.NICs(m)
		if err1 != nil || err2 != nil || gpus[1].Name != "0000:13:00.0" || nics[0].Name != "mlx5_0" {
			t.Fatal(err1, err2)
		}
		pair := p2p.Judge(m, gpus[1], nics[0])
		proof := p2p.NewProof()
		proof.Outcome, proof.Watch.Last = chain.Direct, &last
		for r := range proof.Steps {
			proof.Steps[r].Result = p2p.ResultPass
		}
		if c.during != "" {
			proof.Watch.Lines = []string{c.during}
		}
		pair.Prove(m, proof)
		pair.Heed(logged(c.after))
		shown := result.PairOf(pair)
		if pair.Verdict.Outcome() != c.want || shown.Outcome != c.want.String() || result.Became(shown) != c.want.String() {
			t.Errorf("%s: %v; shown %s, counted %s; want %v", name, pair.Verdict, shown.Outcome, result.Became(shown), c.want)
		}
	}
}

// A GPU on no PCI bus whose driver has NVIDIA's name is judged, and is not direct.
func TestGPUOffPCI(t *testing.T) {
	for _, series := range []string{"580.65.06", "550.90.07", "999.10"} {
		for _, peers := range []bool{true, false} {
			for _, iommu := range []string{":identity", ":DMA-FQ"} {
				tree := testenv.HGX()
				tree.Functions = strings.ReplaceAll(tree.Functions, ":identity", iommu)
				tree.Files, tree.Links = maps.Clone(tree.Files), maps.Clone(tree.Links)
				if tree.Links == nil {
					tree.Links = map[string]string{}
				}
				tree.Files["sys/devices/platform/nvidia/drm/card9/x"] = ""
				tree.Files["sys/module/nvidia/version"] = series
				tree.Files["proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " + series + "  Release Build\n"
				if peers {
					tree.Files["sys/kernel/mm/memory_peers/nv_mem/version"] = "1\n"
				}
				tree.Links["sys/devices/platform/nvidia/drm/card9/device"] = "sys/devices/platform/nvidia"
				tree.Links["sys/class/drm/card9"] = "sys/devices/platform/nvidia/drm/card9"
				m := machine.Open(tree.Write(t))
				gpus, err1 := drivers.GPUs(m)
				nics, err2 := drivers.NICs(m)
				i := slices.IndexFunc(gpus, func(g drivers.GPU) bool { return g.Exporter.PCI == nil })
				if err1 != nil || err2 != nil || i < 0 {
					t.Fatal(err1, err2, i)
				}
				if v := p2p.Judge(m, gpus[i], nics[0]).Verdict; v.Outcome() == chain.Direct {
					t.Errorf("%s, peers %v, IOMMU %s: %v", series, peers, iommu, v)
				}
			}
		}
	}
}

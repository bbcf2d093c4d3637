// SPDX-License-Identifier: Apache-2.0

package task

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/deploy/slurm/nicplan"
)

// node is a plan of four GPUs, the last of which has no NIC.
func node(order, vendor string) *nicplan.Plan {
	p := &nicplan.Plan{Schema: nicplan.Schema, Order: order, Unordered: "so it is"}
	for i := range 4 {
		g := nicplan.GPU{File: fmt.Sprint("/dev/nvidia", i), PCI: fmt.Sprintf("0000:1%d:00.0", i), Vendor: vendor, NICs: []nicplan.NIC{{Name: fmt.Sprint("mlx5_", i), Ports: []int{1}}}}
		if i == 3 {
			g.NICs, g.Why = nil, "it has none"
		}
		p.GPUs = append(p.GPUs, g)
	}
	return p
}

// Which GPUs a task has is certain, or it has no NIC.
func TestVariables(t *testing.T) {
	ordered, other, amd := node(nicplan.PCIOrder, "nvidia"), node("", "nvidia"), node(nicplan.KFDOrder, "amd")
	unknown := node(nicplan.PCIOrder, "nvidia")
	unknown.GPUs[1].PCI, unknown.GPUs[1].Why = "", "nobody knows it"
	hostile := node(nicplan.PCIOrder, "nvidia")
	hostile.GPUs[0].NICs[0].Name = "mlx5_0\nexport LD_PRELOAD=/tmp/x"
	address := node(nicplan.PCIOrder, "nvidia")
	address.GPUs[0].PCI = "0000:10:00.0\nexport LD_PRELOAD=/tmp/x"
	whole := node(nicplan.PCIOrder, "nvidia")
	whole.GPUs = whole.GPUs[:3]
	for name, c := range map[string]struct {
		p    *nicplan.Plan
		env  string // NAME=VALUE and blanks
		want string // of GPURDMA_PAIRS without addresses, or a part of the error
	}{
		"one":                       {ordered, "SLURM_STEP_GPUS=1 CUDA_VISIBLE_DEVICES=1", "1"},
		"two":                       {ordered, "SLURM_STEP_GPUS=0,2 CUDA_VISIBLE_DEVICES=0,2", "0 2"},
		"hidden by a control group": {ordered, "SLURM_STEP_GPUS=1,2 CUDA_VISIBLE_DEVICES=0,1", "1 2"},
		"the same, in no order":     {other, "SLURM_STEP_GPUS=1,2 CUDA_VISIBLE_DEVICES=0,1", "1 2"},
		"the same, FASTEST_FIRST":   {ordered, "SLURM_STEP_GPUS=2 CUDA_VISIBLE_DEVICES=0 CUDA_DEVICE_ORDER=FASTEST_FIRST", "2"},
		"PCI_BUS_ID by the job":     {ordered, "SLURM_STEP_GPUS=2 CUDA_VISIBLE_DEVICES=2 CUDA_DEVICE_ORDER=PCI_BUS_ID", "2"},
		"FASTEST_FIRST":             {ordered, "SLURM_STEP_GPUS=2 CUDA_VISIBLE_DEVICES=2 CUDA_DEVICE_ORDER=FASTEST_FIRST", "CUDA_DEVICE_ORDER is FASTEST_FIRST"},
		"all, FASTEST_FIRST":        {whole, "SLURM_STEP_GPUS=0,1,2 CUDA_VISIBLE_DEVICES=0,1,2 CUDA_DEVICE_ORDER=FASTEST_FIRST", "0 1 2"},
		"no order":                  {other, "SLURM_STEP_GPUS=0 CUDA_VISIBLE_DEVICES=0", "so it is"},
		"a batch script":            {ordered, "SLURM_JOB_GPUS=1 CUDA_VISIBLE_DEVICES=1", "1"},
		"a batch script of 24.11":   {ordered, "SLURM_JOB_GPUS=1 CUDA_VISIBLE_DEVICES=1 SLURM_STEP_ID=4294967291", "1"},
		"a step without GPUs":       {ordered, "SLURM_JOB_GPUS=1 CUDA_VISIBLE_DEVICES=1 SLURM_STEP_ID=0", ErrNoGPU.Error()},
		"no GPU":                    {ordered, "", ErrNoGPU.Error()},
		"AMD":                       {amd, "SLURM_STEP_GPUS=1 ROCR_VISIBLE_DEVICES=1 CUDA_VISIBLE_DEVICES=1", "1"},
		"AMD without its variable":  {amd, "SLURM_STEP_GPUS=1 CUDA_VISIBLE_DEVICES=1", "ROCR_VISIBLE_DEVICES is not set"},
		"no variable":               {ordered, "SLURM_STEP_GPUS=1", "CUDA_VISIBLE_DEVICES is not set"},
		"MIG":                       {ordered, "SLURM_STEP_GPUS=1 CUDA_VISIBLE_DEVICES=MIG-a", "only numbers are"},
		"changed":                   {ordered, "SLURM_STEP_GPUS=1 CUDA_VISIBLE_DEVICES=2", "something has changed"},
		"fewer":                     {ordered, "SLURM_STEP_GPUS=1,2 CUDA_VISIBLE_DEVICES=0", "something has changed"},
		"not of the node":           {ordered, "SLURM_STEP_GPUS=7 CUDA_VISIBLE_DEVICES=7", "the plan of this node has 4 GPUs"},
		"no number":                 {ordered, "SLURM_STEP_GPUS=a CUDA_VISIBLE_DEVICES=0", "not numbers of GPUs"},
		"negative":                  {ordered, "SLURM_STEP_GPUS=-1 CUDA_VISIBLE_DEVICES=0", "not numbers of GPUs"},
		"twice":                     {ordered, "SLURM_STEP_GPUS=1,1 CUDA_VISIBLE_DEVICES=1", "not numbers of GPUs"},
		"a GPU without a NIC":       {ordered, "SLURM_STEP_GPUS=2,3 CUDA_VISIBLE_DEVICES=2,3", "GPU 0000:13:00.0 has no NIC: it has none"},
		"a file without a GPU":      {unknown, "SLURM_STEP_GPUS=1 CUDA_VISIBLE_DEVICES=1", "/dev/nvidia1: nobody knows it"},
		"a hostile address":         {address, "SLURM_STEP_GPUS=0 CUDA_VISIBLE_DEVICES=0", "a blank for GPURDMA_PAIRS"},
		"a hostile plan":            {hostile, "SLURM_STEP_GPUS=0 CUDA_VISIBLE_DEVICES=0", "a blank"},
	} {
		t.Run(name, func(t *testing.T) {
			set, _, err := Variables(c.p, environment(c.env))
			if err != nil {
				if !strings.Contains(err.Error(), c.want) || len(set) > 0 {
					t.Errorf("%v %v", set, err)
				}
				return
			}
			got := values(set)
			var want []string
			for n := range strings.FieldsSeq(c.want) {
				want = append(want, "0000:1"+n+":00.0=mlx5_"+n)
			}
			if got[Pairs] != strings.Join(want, ",") {
				t.Errorf("%v", got)
			}
		})
	}
}

func environment(text string) Env {
	all := map[string]string{}
	for word := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(word, "=")
		all[name] = value
	}
	return look(all)
}

func look(all map[string]string) Env {
	return func(name string) (string, bool) { v, is := all[name]; return v, is }
}

func values(set []Set) map[string]string {
	out := map[string]string{}
	for _, s := range set {
		out[s.Name] = s.Value
	}
	return out
}

// A step that inherits the variables of its batch script gets its own; those that the job has set stay.
func TestInherited(t *testing.T) {
	p := node(nicplan.PCIOrder, "nvidia")
	batch := map[string]string{"SLURM_JOB_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": "0,1"}
	set, _, err := Variables(p, look(batch))
	if err != nil {
		t.Fatal(err)
	}
	step := maps.Clone(batch)
	maps.Copy(step, values(set))
	maps.Copy(step, map[string]string{"SLURM_STEP_ID": "0", "SLURM_STEP_GPUS": "1", "CUDA_VISIBLE_DEVICES": "1", "UCX_NET_DEVICES": "eth0"})
	set, kept, err := Variables(p, look(step))
	if got := values(set); err != nil || got["NCCL_IB_HCA"] != "=mlx5_1" || got["CUDA_DEVICE_ORDER"] != "PCI_BUS_ID" || !slices.Equal(kept, []string{"UCX_NET_DEVICES"}) {
		t.Errorf("%v %v %v", got, kept, err)
	}
	delete(step, "SLURM_STEP_GPUS")
	if _, _, err := Variables(p, look(step)); !errors.Is(err, ErrNoGPU) {
		t.Error(err)
	}
	if got := Stale(look(step)); !slices.Equal(got, []string{"NCCL_IB_HCA", "NVSHMEM_HCA_LIST", "CUDA_DEVICE_ORDER", Pairs, Own}) {
		t.Error(got)
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package task finds the NICs for a task of a Slurm job, and writes the variables by which libraries use them. To
// set another variable, or to read another one of Slurm's, change it.
//
// It runs as the job's user, before each task. Where it is not certain which GPUs the task uses, it says why and
// sets nothing: the libraries then choose by themselves.
package task

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/deploy/slurm/nicplan"
)

// Set is a variable for the task.
type Set struct{ Name, Value string }

// ErrNoGPU says that the task has no GPU.
var ErrNoGPU = errors.New("the task has no GPU")

// Variables returns the variables for a task with this environment. A variable that the job has set is left as
// it is, and named in kept.
func Variables(p *nicplan.Plan, env func(string) (string, bool)) (set []Set, kept []string, err error) {
	gpus, order, err := given(p, env)
	if err != nil {
		return nil, nil, err
	}
	var pairs, hcas, ports []string
	for _, g := range gpus {
		if len(g.NICs) == 0 {
			return nil, nil, fmt.Errorf("GPU %s has no NIC: %s", named(g), g.Why)
		}
		for _, n := range g.NICs {
			pairs = append(pairs, g.PCI+"="+n.Name)
			if slices.Contains(hcas, n.Name) {
				continue
			}
			hcas = append(hcas, n.Name)
			for _, port := range n.Ports {
				ports = append(ports, n.Name+":"+strconv.Itoa(port))
			}
		}
	}
	all := []Set{
		{"GPURDMA_PAIRS", strings.Join(pairs, ",")},
		{"NCCL_IB_HCA", "=" + strings.Join(hcas, ",")}, // "=": these names, and none that begins like one
		{"UCX_NET_DEVICES", strings.Join(ports, ",")},
		{"NVSHMEM_HCA_LIST", strings.Join(ports, ",")},
	}
	if order {
		all = append(all, Set{cudaOrder, nicplan.PCIOrder})
	}
	for _, s := range all {
		if _, is := env(s.Name); is && s.Name != "GPURDMA_PAIRS" {
			kept = append(kept, s.Name)
			continue
		}
		if strings.ContainsAny(s.Value, "\n\r\x00") {
			return nil, nil, fmt.Errorf("the plan has a name with a line break for %s", s.Name)
		}
		set = append(set, s)
	}
	return set, kept, nil
}

func named(g nicplan.GPU) string {
	if g.PCI == "" {
		return g.File
	}
	return g.PCI
}

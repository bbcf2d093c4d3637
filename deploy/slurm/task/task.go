// SPDX-License-Identifier: Apache-2.0

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

// Names of variables that are this package's own.
const (
	Pairs = "GPURDMA_PAIRS" // the GPUs of the task, each with its NICs
	// Own has the other variables that were set here, and their values. A step inherits the variables of its batch
	// script, which are of that one's GPUs and node: by Own they are told from those that the job has set itself.
	Own = "GPURDMA_NICS_SET"
	// Why is why there are no NICs: Slurm gives a TaskProlog no standard error.
	Why = "GPURDMA_NO_NICS"
)

// ErrNoGPU says that the task has no GPU.
var ErrNoGPU = errors.New("the task has no GPU")

// Env is the environment of a task.
type Env func(name string) (value string, is bool)

// Variables returns the variables for a task with this environment. A variable that the job has set is left as
// it is, and named in kept.
func Variables(p *nicplan.Plan, env Env) (set []Set, kept []string, err error) {
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
		{"NCCL_IB_HCA", "=" + strings.Join(hcas, ",")}, // "=": these names, and none that begins like one
		{"UCX_NET_DEVICES", strings.Join(ports, ",")},
		{"NVSHMEM_HCA_LIST", strings.Join(ports, ",")},
	}
	if order {
		all = append(all, Set{cudaOrder, nicplan.PCIOrder})
	}
	names := Set{Pairs, strings.Join(pairs, ",")}
	for _, s := range append(all, names) { // a line feed in one would begin a line of the plan's own
		if strings.ContainsFunc(s.Value, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return nil, nil, fmt.Errorf("the plan has a name with a blank for %s", s.Name)
		}
	}
	var own []string
	for _, s := range all {
		if _, is := env(s.Name); is && !inherited(s.Name, env) {
			kept = append(kept, s.Name)
			continue
		}
		set = append(set, s)
		own = append(own, s.Name+"="+s.Value)
	}
	return append(set, names, Set{Own, strings.Join(own, " ")}), kept, nil
}

// Stale returns the variables of a batch script that a task without NICs is not to inherit.
func Stale(env Env) (names []string) {
	for _, name := range []string{"NCCL_IB_HCA", "UCX_NET_DEVICES", "NVSHMEM_HCA_LIST", cudaOrder, Pairs, Own} {
		if _, is := env(name); is && (name == Pairs || name == Own || inherited(name, env)) {
			names = append(names, name)
		}
	}
	return names
}

// inherited reports whether a variable has the value that was set here for the batch script.
func inherited(name string, env Env) bool {
	value, is := env(name)
	own, _ := env(Own)
	return is && slices.Contains(strings.Split(own, " "), name+"="+value)
}

func named(g nicplan.GPU) string {
	if g.PCI == "" {
		return g.File
	}
	return g.PCI
}

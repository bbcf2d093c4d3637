// SPDX-License-Identifier: Apache-2.0

package task

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/deploy/slurm/nicplan"
)

const cudaOrder = "CUDA_DEVICE_ORDER"

// given returns the GPUs that a task uses, and whether CUDA has to count by PCI address for that.
//
// Slurm says in SLURM_STEP_GPUS which lines of gres.conf the task has; in a batch script SLURM_JOB_GPUS says so. The
// program takes its GPUs by CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES: indices in the library's own order.
// The two are the same GPUs only under the conditions of sameGPUs.
func given(p *nicplan.Plan, env Env) (gpus []nicplan.GPU, order bool, err error) {
	name := "SLURM_STEP_GPUS"
	text, _ := env(name)
	if text == "" {
		if _, step := env("SLURM_STEP_ID"); step && !isBatch(env) {
			return nil, false, ErrNoGPU // SLURM_JOB_GPUS is inherited, and of the batch script's node
		}
		name = "SLURM_JOB_GPUS"
		if text, _ = env(name); text == "" {
			return nil, false, ErrNoGPU
		}
	}
	slurm, ok := numbers(text)
	if !ok {
		return nil, false, fmt.Errorf("%s is %q, and not numbers of GPUs", name, text)
	}
	for _, n := range slurm {
		if n >= len(p.GPUs) {
			return nil, false, fmt.Errorf("%s has GPU %d, and the plan of this node has %d GPUs: has gres.conf been changed? The next health check makes the plan anew", name, n, len(p.GPUs))
		}
		g := p.GPUs[n]
		if g.PCI == "" {
			return nil, false, fmt.Errorf("%s: %s", g.File, g.Why)
		}
		gpus = append(gpus, g)
	}
	order, err = sameGPUs(p, slurm, gpus[0].Vendor, env)
	return gpus, order, err
}

// isBatch reports whether this is the batch script, not a step: Slurm names it by a number above all steps'.
func isBatch(env Env) bool {
	id, _ := env("SLURM_STEP_ID")
	n, err := strconv.ParseInt(id, 10, 64)
	return err == nil && (n < 0 || n >= 0xfffffff0)
}

// indices are the variables by which the libraries of a vendor take GPUs.
var indices = map[string]string{"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "ROCR_VISIBLE_DEVICES", "": "ZE_AFFINITY_MASK"}

// sameGPUs checks that the indices that the program goes by mean the GPUs that Slurm has given to the task. It is so
//
//   - if the task has all GPUs of the node, in whichever order they are counted;
//   - if Slurm has numbered them anew from 0, as it does where a control group hides the other GPUs;
//   - if the library counts as Slurm does. CUDA does so if gres.conf has all GPUs by PCI address, and
//     CUDA_DEVICE_ORDER is PCI_BUS_ID, which is set then.
func sameGPUs(p *nicplan.Plan, slurm []int, vendor string, env Env) (order bool, err error) {
	name := indices[vendor]
	text, is := env(name)
	if !is {
		return false, fmt.Errorf("%s is not set, so that the program sees all GPUs of the node, not only those of its job", name)
	}
	list, ok := numbers(text)
	if !ok {
		return false, fmt.Errorf("%s is %q: it is not known which GPUs these are (only numbers are; not MIG, UUIDs)", name, text)
	}
	own, _ := env(cudaOrder)
	if inherited(cudaOrder, env) {
		own = ""
	}
	byPCI := own == "" || own == nicplan.PCIOrder
	switch {
	case len(slurm) == len(p.GPUs) && p.Order != "" && len(list) == len(slurm):
		return false, nil // all of the node
	case !slices.Equal(list, slurm) && fromZero(list) && len(list) == len(slurm):
		return false, nil // those that the control group shows, in whichever order
	case !slices.Equal(list, slurm):
		return false, fmt.Errorf("%s is %s, and Slurm's numbers are %s: something has changed one of them", name, text, joined(slurm))
	case p.Order == nicplan.PCIOrder && byPCI:
		return own == "", nil
	case p.Order == nicplan.PCIOrder:
		return false, fmt.Errorf("%s is %s, by which CUDA's numbers are not those of Slurm: leave it out, or set it to %s", cudaOrder, own, nicplan.PCIOrder)
	case p.Order == nicplan.KFDOrder:
		return false, nil
	}
	return false, fmt.Errorf("%s: the library may count GPUs in another order than Slurm: %s", name, p.Unordered)
}

// numbers reads a list of indices as "0,2".
func numbers(text string) (out []int, ok bool) {
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil || slices.Contains(out, int(n)) {
			return nil, false
		}
		out = append(out, int(n))
	}
	return out, true
}

func joined(list []int) string {
	var out []string
	for _, n := range list {
		out = append(out, strconv.Itoa(n))
	}
	return strings.Join(out, ",")
}

// fromZero reports whether a list is 0, 1, 2 and so on.
func fromZero(list []int) bool {
	for i, n := range list {
		if i != n {
			return false
		}
	}
	return true
}

// SPDX-License-Identifier: Apache-2.0

package variables

import (
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/placement"
)

const (
	nvshmemEnv = "nvshmem src/modules/transport/common/env_defs.h"
	hcaPrefix  = "NVSHMEM_HCA_PREFIX"
	ibgda      = "NVSHMEM_IB_ENABLE_IBGDA"
	peMapping  = "NVSHMEM_ENABLE_NIC_PE_MAPPING"
	nvshmemHCA = "NVSHMEM_HCA_LIST"
)

// nvshmemEntries are those that choose NVSHMEM's registration and ordering.
var nvshmemEntries = []entry{
	{Variable: Variable{
		Name: "NVSHMEM_IB_DISABLE_DMABUF", Library: "NVSHMEM", Default: "0",
		Effect: "1: GPU memory is registered by a peer-memory client only",
		Source: nvshmemEnv + "; src/modules/transport/common/transport_ib_common.cpp",
	}, vendors: []Vendor{NVIDIA}, set: func(j *judging, value string) verdict {
		if !ofNVSHMEM(value) {
			return pass("NVSHMEM registers GPU memory by dma-buf where there is a route")
		}
		return j.byRegMR("NVSHMEM registers GPU memory by ibv_reg_mr()").away()
	}},
	{Variable: Variable{
		Name: "NVSHMEM_DISABLE_DATA_DIRECT", Library: "NVSHMEM", Default: "0",
		Effect: "1: NVSHMEM does not use the Data Direct function of a NIC",
		Source: nvshmemEnv,
	}, vendors: []Vendor{NVIDIA}, set: func(j *judging, value string) verdict {
		return j.dataDirect("NVSHMEM", !ofNVSHMEM(value))
	}},
	{Variable: Variable{
		Name: "NVSHMEM_IB_ENABLE_RELAXED_ORDERING", Library: "NVSHMEM", Default: "1",
		Effect: "0: strict ordering",
		Source: nvshmemEnv,
	}, vendors: []Vendor{NVIDIA}, set: func(j *judging, value string) verdict {
		if ofNVSHMEM(value) {
			return j.relaxed("NVSHMEM")
		}
		return j.strict("NVSHMEM", "")
	}},
	{Variable: Variable{
		Name: "NVSHMEM_DISABLE_CUDA_VMM", Library: "NVSHMEM", Default: "0; 1 on POWER9",
		Effect: "1: the heap comes from cudaMalloc(), in one piece, which has to be registered at the start",
		Source: "nvshmem src/include/host/env/env_defs.h",
	}, vendors: []Vendor{NVIDIA}, set: func(j *judging, value string) verdict {
		if !ofNVSHMEM(value) {
			return pass("the heap comes from the virtual memory API, and grows")
		}
		return j.whole("NVSHMEM registers the heap as a whole")
	}},
	{Variable: Variable{
		Name: ibgda, Library: "NVSHMEM", Default: "0",
		Effect: "1: GPUs post to mlx5 NICs themselves, whose queues are in GPU memory that the NIC reads",
		Source: "nvshmem src/include/host/env/env_defs.h; src/modules/transport/ibgda/ibgda.cpp; NVIDIA/open-gpu-kernel-modules#1253",
	}, vendors: []Vendor{NVIDIA}, set: func(j *judging, value string) verdict {
		switch {
		case !ofNVSHMEM(value):
			return pass("the CPU posts to the NICs")
		case !slices.ContainsFunc(j.NICs, func(n NIC) bool { return n.Driver == mlx5 }):
			return fail("GPUs post to mlx5 NICs only, and this machine has none").away()
		}
		return j.queues().away()
	}},
	{Variable: Variable{
		Name: "NVSHMEM_IBGDA_FORCE_NIC_BUF_MEMTYPE", Library: "NVSHMEM", Default: "gpumem",
		Effect: "gpumem: the queues of IBGDA are in GPU memory, which the NIC reads; hostmem: in system memory",
		Source: nvshmemEnv,
	}, vendors: []Vendor{NVIDIA}, driver: mlx5, set: func(j *judging, value string) verdict {
		switch {
		case value == "hostmem":
			return pass("the queues of IBGDA are in system memory")
		case value == "gpumem":
			return j.queues()
		}
		return pass("NVSHMEM chooses the memory for the queues of IBGDA")
	}},
}

// queues is the verdict on queues in GPU memory: the NIC has to read there, too.
func (j *judging) queues() verdict {
	switch j.direct(NVIDIA) {
	case placement.Yes:
		return pass("the NIC reads its queues in GPU memory, which a direct pair allows")
	case placement.No:
		return fail("the NIC has to read its queues in GPU memory, and no pair of this machine is direct").
			so("put the queues into system memory", "NVSHMEM_IBGDA_FORCE_NIC_BUF_MEMTYPE=hostmem")
	}
	return open("the NIC reads its queues in GPU memory; whether a pair of this machine is direct is not known")
}

// nvshmemDeviceEntries are those that choose NVSHMEM's NICs.
var nvshmemDeviceEntries = []entry{
	{Variable: Variable{
		Name: hcaPrefix, Library: "NVSHMEM", Default: "mlx5",
		Effect: "IBGDA and IBDEVX use only devices with this text in their names",
		Source: nvshmemEnv + "; src/modules/transport/ibgda/ibgda.cpp; deepseek-ai/DeepEP#386",
	}, vendors: []Vendor{NVIDIA}, driver: mlx5, set: prefix, unset: func(j *judging) verdict {
		if !j.uses("NVSHMEM_") {
			return verdict{}
		}
		return prefix(j, "mlx5")
	}},
	{Variable: Variable{
		Name: nvshmemHCA, Library: "NVSHMEM", Default: "all devices",
		Effect: "chooses devices and ports; ^ leaves out; only with NVSHMEM_ENABLE_NIC_PE_MAPPING=1",
		Source: nvshmemEnv + "; src/modules/transport/common/transport_common.cpp",
	}, vendors: []Vendor{NVIDIA}, set: func(j *judging, value string) verdict {
		if !j.mapped() {
			return warn("has no effect without %s=1", peMapping).so("turn it on, or take the list away", peMapping+"=1")
		}
		s := parseList(strings.ReplaceAll(value, "^", ""))
		s.not = strings.HasPrefix(value, "^")
		return j.chosen("NVSHMEM", s, []Vendor{NVIDIA}, NIC.verbs)
	}},
	{Variable: Variable{
		Name: "NVSHMEM_HCA_PE_MAPPING", Library: "NVSHMEM", Default: "none",
		Effect: "gives each process a device and a port: mlx5_0:1:2,mlx5_0:2:2; only with NVSHMEM_ENABLE_NIC_PE_MAPPING=1",
		Source: nvshmemEnv,
	}, vendors: []Vendor{NVIDIA}, set: func(j *judging, value string) verdict {
		if !j.mapped() {
			return warn("has no effect without %s=1", peMapping).so("turn it on, or take the mapping away", peMapping+"=1")
		}
		return j.chosen("NVSHMEM", parseList(value), []Vendor{NVIDIA}, NIC.verbs)
	}},
	{Variable: Variable{
		Name: peMapping, Library: "NVSHMEM", Default: "0",
		Effect: "1: processes get NICs in turn, or by a list, in place of the nearest one",
		Source: "nvshmem src/include/host/env/env_defs.h",
	}, vendors: []Vendor{NVIDIA}, set: func(j *judging, value string) verdict {
		switch {
		case !ofNVSHMEM(value):
			return pass("each process uses the NIC that is nearest to its GPU")
		case j.env[nvshmemHCA] != "" || j.env["NVSHMEM_HCA_PE_MAPPING"] != "":
			return pass("each process uses the NIC that a list gives it")
		case len(j.left(selection{}, NIC.verbs)) < 2:
			return pass("has no effect here: this machine has one NIC")
		}
		return warn("processes get NICs in turn, near to their GPUs or not").so("add "+nvshmemHCA+" in the order of the GPUs, or take the variable away", "")
	}},
	{Variable: Variable{
		Name: "NVSHMEM_IB_GID_INDEX", Library: "NVSHMEM", Default: "-1: NVSHMEM looks for a RoCE v2 GID",
		Effect: "NVSHMEM uses this GID on every RoCE port",
		Source: nvshmemEnv,
	}, vendors: []Vendor{NVIDIA}, set: func(j *judging, value string) verdict {
		index := number(value, -1)
		if index < 0 {
			return pass("NVSHMEM looks for a RoCE v2 GID")
		}
		return j.gid("NVSHMEM", int(index), selection{}, NIC.verbs)
	}},
	{Variable: Variable{
		Name: "NVSHMEM_REMOTE_TRANSPORT", Library: "NVSHMEM", Default: "ibrc",
		Effect: "the transport to other machines: ibrc, ucx, libfabric, ibdevx, none",
		Source: "nvshmem src/include/host/env/env_defs.h",
	}, vendors: []Vendor{NVIDIA}, set: remote},
}

func (j *judging) mapped() bool { return j.isSet(peMapping) && ofNVSHMEM(j.env[peMapping]) }

// prefix judges NVSHMEM_HCA_PREFIX.
func prefix(j *judging, value string) verdict {
	ofMLX5 := func(n NIC) bool { return n.Driver == mlx5 && !n.Software }
	lost := names(j.NICs, func(n NIC) bool { return ofMLX5(n) && !strings.Contains(n.Name, value) }, func(n NIC) string { return n.Name })
	if lost == "" {
		return pass("the names of all mlx5 devices have %s", shown(value))
	}
	set := ""
	for _, word := range []string{"mlx5", "ibp", "ibs", "roce"} {
		if !slices.ContainsFunc(j.NICs, func(n NIC) bool { return ofMLX5(n) && !strings.Contains(n.Name, word) }) {
			set = hcaPrefix + "=" + word
		}
	}
	return warn("IBGDA and IBDEVX skip %s, without %s in the name", lost, shown(value)).so("set a text that all names have", set)
}

func remote(j *judging, value string) verdict {
	drives := map[string]func(NIC) bool{
		"ibrc": NIC.verbs, "ucx": byUCX,
		"ibdevx":    func(n NIC) bool { return n.Driver == mlx5 },
		"libfabric": func(n NIC) bool { return !n.Software },
	}[value]
	switch {
	case value == "none":
		return warn("NVSHMEM reaches no other machine").away()
	case drives == nil:
		return misread("NVSHMEM", "ibrc, ucx, libfabric, ibdevx or none")
	case !slices.ContainsFunc(j.NICs, drives):
		return fail("the transport %s drives no NIC of this machine", value).so("choose another transport", "NVSHMEM_REMOTE_TRANSPORT=libfabric")
	}
	return pass("the transport %s drives NICs of this machine", value)
}

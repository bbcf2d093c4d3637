// SPDX-License-Identifier: Apache-2.0

package variables

import (
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/placement"
)

const libfabricBool = "1, true, yes, on, 0, false, no or off"

var libfabricEntries = []entry{
	{Variable: Variable{
		Name: "FI_HMEM_DISABLE_P2P", Library: "libfabric", Since: "1.14", Default: "0",
		Effect: "1: no provider lets a NIC reach GPU memory; verbs then offers no FI_HMEM, EFA none for Neuron and Gaudi",
		Source: "libfabric src/hmem.c; prov/verbs/src/verbs_info.c, vrb_hmem_supported(); prov/efa/src/efa_hmem.c; fi_mr(3)",
	}, set: func(j *judging, value string) verdict {
		return onOrOff(ofLibfabric(value), misread("libfabric", libfabricBool),
			j.costs("libfabric keeps NICs from GPU memory, and copies"),
			pass("libfabric lets NICs reach GPU memory"))
	}},
	{Variable: Variable{
		Name: "FI_HMEM", Library: "libfabric", Since: "1.20", Default: "all",
		Effect: "the kinds of memory that libfabric knows, between semicolons: a GPU's kind that is missing is not recognized",
		Source: "libfabric src/hmem.c, ofi_hmem_set_iface_filter()",
	}, set: hmem},
	useDMABuf("FI_HMEM_CUDA_USE_DMABUF", "2.0", "true", NVIDIA, "libfabric src/hmem_cuda.c; fi_cxi(7)"),
	useDMABuf("FI_HMEM_ROCR_USE_DMABUF", "1.21", "true from 2.0 on", AMD, "libfabric src/hmem_rocr.c; fi_cxi(7)"),
	useDMABuf("FI_HMEM_ZE_USE_DMABUF", "2.5", "true", Intel, "libfabric src/hmem_ze.c"),
	{Variable: Variable{
		Name: "FI_HMEM_CUDA_USE_GDRCOPY", Library: "libfabric", Since: "1.12", Default: "true",
		Effect: "whether the CPU copies by gdrcopy; NICs are not concerned, but a small BAR is shared with them",
		Source: "libfabric src/hmem_cuda.c; ofiwg/libfabric#10502",
	}, vendors: []Vendor{NVIDIA}, set: func(j *judging, value string) verdict {
		switch on := ofLibfabric(value); {
		case on == placement.AnswerUnknown:
			return misread("libfabric", libfabricBool)
		case on == placement.No:
			return pass("the CPU copies without gdrcopy; NICs are not concerned")
		}
		switch placement.Any(j.GPUs, func(g GPU) placement.Answer { return g.SmallBAR }) {
		case placement.Yes:
			return warn("gdrcopy maps parts of the BAR, which is smaller than the memory here: registrations for NICs fail when it is full").
				so("turn gdrcopy off", "FI_HMEM_CUDA_USE_GDRCOPY=0")
		case placement.No:
			return pass("the CPU copies by gdrcopy; NICs are not concerned")
		}
		return open("gdrcopy and NICs share the BAR; whether it is as large as the memory is not known")
	}},
	{Variable: Variable{
		Name: "FI_VERBS_USE_DMABUF", Library: "libfabric", Since: "1.17", Default: "yes",
		Effect: "no: verbs registers GPU memory by ibv_reg_mr(), which needs a peer-memory client",
		Source: "libfabric prov/verbs/src/verbs_init.c; fi_verbs(7)",
	}, set: func(j *judging, value string) verdict {
		return onOrOff(ofLibfabric(value), misread("libfabric", libfabricBool),
			pass("verbs registers GPU memory by dma-buf"),
			j.byRegMR("verbs registers GPU memory by ibv_reg_mr()").away())
	}},
}

// useDMABuf is a switch for the dma-bufs of one vendor.
func useDMABuf(name, since, def string, vendor Vendor, source string) entry {
	return entry{Variable: Variable{
		Name: name, Library: "libfabric", Since: since, Default: def,
		Effect: "0: libfabric exports no dma-bufs of this vendor's memory",
		Source: source,
	}, vendors: []Vendor{vendor}, set: func(j *judging, value string) verdict {
		return onOrOff(ofLibfabric(value), misread("libfabric", libfabricBool),
			pass("libfabric exports dma-bufs"),
			j.peer("libfabric exports no dma-bufs", vendor))
	}}
}

// kinds are libfabric's words for the memory of GPUs.
var kinds = map[Vendor]string{NVIDIA: "cuda", AMD: "rocr", Intel: "ze"}

func hmem(j *judging, value string) verdict {
	if value == "" {
		return pass("libfabric knows all kinds of memory")
	}
	named := strings.Split(strings.ToLower(value), ";")
	for _, g := range j.GPUs {
		if kind := kinds[g.Vendor]; kind != "" && !slices.Contains(named, kind) {
			return warn("libfabric does not recognize the memory of %s GPUs without %q", g.Vendor, kind).so("add the kind, or take the variable away", extended("FI_HMEM", value, ";"+kind))
		}
	}
	return pass("libfabric recognizes the memory of the GPUs")
}

var libfabricProviderEntries = []entry{
	{Variable: Variable{
		Name: "FI_PROVIDER", Library: "libfabric", Default: "all",
		Effect: "chooses providers; ^ leaves out",
		Source: "libfabric src/fabric.c; fi_provider(7)",
	}, set: provider},
	{Variable: Variable{
		Name: "FI_VERBS_DEVICE_NAME", Library: "libfabric", Since: "1.10", Default: "all",
		Effect: "chooses RDMA devices by the beginning of their names",
		Source: "libfabric prov/verbs/src/verbs_info.c; fi_verbs(7)",
	}, set: func(j *judging, value string) verdict {
		return j.chosen("libfabric", parseVerbs(value), nil, NIC.verbs)
	}},
	{Variable: Variable{
		Name: "FI_EFA_IFACE", Library: "libfabric", Since: "2.0", Default: "all",
		Effect: "chooses EFA devices by their names",
		Source: "libfabric prov/efa/src/efa_env.c; fi_efa(7)",
	}, driver: efa, set: func(j *judging, value string) verdict {
		if value == "all" {
			return pass("libfabric uses all EFA devices")
		}
		return j.chosen("libfabric", parseList(value), nil, func(n NIC) bool { return n.Driver == efa })
	}},
	{Variable: Variable{
		Name: "FI_EFA_USE_DEVICE_RDMA", Library: "libfabric", Since: "1.10", Default: "by the device",
		Effect: "0: libfabric emulates RDMA operations, through buffers of its own; 1: an error on a device without RDMA",
		Source: "libfabric prov/efa/src/efa_env.c; fi_efa(7)",
	}, driver: efa, set: func(j *judging, value string) verdict {
		return onOrOff(ofLibfabric(value), misread("libfabric", libfabricBool),
			pass("libfabric uses the RDMA operations of EFA"),
			j.costs("libfabric emulates RDMA operations, and copies"))
	}},
	{Variable: Variable{
		Name: "FI_CXI_ATS", Library: "libfabric", Since: "1.21", Default: "0",
		Effect: "1: addresses are translated by PCIe ATS, which Slingshot supports on AMD processors with iommu_v2 only",
		Source: "libfabric prov/cxi/src/cxip_info.c; fi_cxi(7)",
	}, driver: cxi, set: func(j *judging, value string) verdict {
		if ofLibfabric(value) != placement.Yes {
			return pass("Slingshot translates addresses itself")
		}
		switch j.CPU.Vendor {
		case "":
			return open("Slingshot translates addresses by ATS, on AMD processors with iommu_v2 only; the processor was not read")
		case "AuthenticAMD":
			return pass("Slingshot translates addresses by ATS")
		}
		return warn("Slingshot supports ATS on AMD processors with iommu_v2 only").away()
	}},
	{Variable: Variable{
		Name: "FI_CXI_DISABLE_HMEM_DEV_REGISTER", Library: "libfabric", Since: "1.21", Default: "0",
		Effect: "1: the CPU does not load and store to GPU memory; small messages are copied by the GPU's library",
		Source: "libfabric prov/cxi/src/cxip_info.c; fi_cxi(7)",
	}, driver: cxi, set: func(j *judging, value string) verdict {
		return onOrOff(ofLibfabric(value), misread("libfabric", libfabricBool),
			warn("the CPU does not copy small messages to GPU memory; the NIC's own path stays as it is").away(),
			pass("the CPU copies small messages to GPU memory"))
	}},
	{Variable: Variable{
		Name: "FI_CXI_FORCE_ZE_HMEM_SUPPORT", Library: "libfabric", Since: "1.21", Default: "0",
		Effect: "1: cxi takes Level Zero memory without a look at implicit scaling, which it does not support",
		Source: "libfabric prov/cxi/src/cxip_info.c; fi_cxi(7)",
	}, driver: cxi, vendors: []Vendor{Intel}, set: func(j *judging, value string) verdict {
		switch {
		case ofLibfabric(value) != placement.Yes:
			return pass("cxi looks whether implicit scaling is off")
		case j.env["EnableImplicitScaling"] == "0":
			return pass("cxi takes Level Zero memory, and implicit scaling is off")
		}
		return warn("cxi takes Level Zero memory, and does not support implicit scaling, which is not turned off").so("turn implicit scaling off", "EnableImplicitScaling=0")
	}},
	{Variable: Variable{
		Name: "FI_CXI_DEVICE_NAME", Library: "libfabric", Since: "1.21", Default: "all",
		Effect: "chooses cxi devices by their names",
		Source: "libfabric prov/cxi/src/cxip_info.c",
	}, driver: cxi, set: func(j *judging, value string) verdict {
		return j.chosen("libfabric", parseList(value), nil, func(n NIC) bool { return n.Driver == cxi })
	}},
}

// provider judges FI_PROVIDER.
func provider(j *judging, value string) verdict {
	text, not := strings.CutPrefix(value, "^")
	named := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return r == ',' || r == ';' })
	if len(named) == 0 {
		return pass("libfabric uses all providers")
	}
	has := func(p string) bool { return slices.Contains(named, p) != not }
	drives := func(n NIC) bool {
		switch {
		case n.Software:
			return false
		case n.Driver == efa:
			return has("efa")
		case n.Driver == cxi:
			return has("cxi")
		}
		return has("verbs") || n.Driver == "hfi1" && (has("psm2") || has("opx")) || has("psm3")
	}
	if slices.ContainsFunc(j.NICs, drives) {
		return pass("libfabric has a provider for the NICs of this machine")
	}
	return warn("leaves libfabric no provider for the NICs of this machine: data goes through system memory and sockets").away()
}

var ofiEntries = []entry{
	{Variable: Variable{
		Name: "OFI_NCCL_DISABLE_DMABUF", Library: "aws-ofi-nccl", Since: "1.13.0", Default: "1 in 1.13.2 to 1.14.1; 0 before and after",
		Effect: "1: the plugin offers NCCL no dma-bufs, and needs a peer-memory client",
		Source: "aws-ofi-nccl include/nccl_ofi_param.h; src/nccl_ofi_dmabuf.cpp; aws/aws-ofi-nccl#695, #848",
	}, vendors: nccls, set: func(j *judging, value string) verdict {
		return onOrOff(ofOFI(value), misread("aws-ofi-nccl", "0, 1, true or false"),
			j.peer("the plugin offers no dma-bufs", nccls...),
			pass("the plugin offers dma-bufs to NCCL"))
	}, unset: func(j *judging) verdict {
		old := j.atLeast("aws-ofi-nccl", 1, 13, 2) == placement.Yes && j.atLeast("aws-ofi-nccl", 1, 14, 2) == placement.No
		if !old || j.peer("", nccls...).result != ResultWarn || j.DMABuf != placement.Yes {
			return verdict{}
		}
		return warn("aws-ofi-nccl from 1.13.2 to 1.14.1 offers no dma-bufs by default, and no peer-memory client is registered").so("turn dma-bufs on", "OFI_NCCL_DISABLE_DMABUF=0")
	}},
	{Variable: Variable{
		Name: "OFI_NCCL_DISABLE_GDR_REQUIRED_CHECK", Library: "aws-ofi-nccl", Since: "1.8.0", Default: "0",
		Effect: "1: the plugin runs without GPUDirect RDMA where the instance has it",
		Source: "aws-ofi-nccl include/nccl_ofi_param.h; src/platform-aws.cpp",
	}, driver: efa, vendors: nccls, set: func(j *judging, value string) verdict {
		return onOrOff(ofOFI(value), misread("aws-ofi-nccl", "0, 1, true or false"),
			warn("the plugin does not report a loss of GPUDirect RDMA, and copies through system memory without a message").away(),
			pass("the plugin ends in an error if GPUDirect RDMA is missing"))
	}},
}

// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"strings"
)

// Use is what a buffer was attached for.
type Use string

// The uses. Only that of an MR can be an MR's placement.
const (
	UseUnknown           Use = ""                   // not seen: an attachment that was there before, or whose callers were lost
	UseMR                Use = "MR"                 // a memory region
	UseCQ                Use = "CQ"                 // the buffer of a completion queue
	UseQP                Use = "QP"                 // a buffer of a queue pair
	UseSRQ               Use = "SRQ"                // the buffer of a shared receive queue
	UseWQ                Use = "WQ"                 // the buffer of a work queue
	UseCompletionCounter Use = "completion counter" // the counter's memory (Linux 7.3)
	UseDEVXUmem          Use = "DEVX umem"          // memory that a program hands to mlx5's firmware itself
	UseRDMA              Use = "RDMA object"        // an object of the RDMA core that another call makes
	UseIOMMUFD           Use = "iommufd"            // an address space of iommufd's: a virtual machine, or a driver in user space
	UseVFIO              Use = "VFIO"               // a device of VFIO
	UseOther             Use = "other importer"     // the importer's module says which
)

// Words are the use in a sentence: "attach for ...".
func (u Use) Words() string {
	switch u {
	case UseCQ, UseQP, UseSRQ, UseWQ:
		return "the buffer of a " + string(u)
	case UseCompletionCounter, UseDEVXUmem:
		return "a " + string(u)
	case UseRDMA:
		return "an RDMA object that is no known MR"
	case UseMR:
		return "an MR"
	}
	return string(u)
}

// usesByMethod are uses by the method of uverbs whose handler attaches
// (include/uapi/rdma/ib_user_ioctl_cmds.h, mlx5_user_ioctl_cmds.h).
var usesByMethod = map[string]Use{
	"UVERBS_METHOD_REG_DMABUF_MR":    UseMR,
	"UVERBS_METHOD_REG_MR":           UseMR,
	"UVERBS_METHOD_REREG_DMABUF_MR":  UseMR,
	"UVERBS_METHOD_CQ_CREATE":        UseCQ,
	"UVERBS_METHOD_QP_CREATE":        UseQP,
	"UVERBS_METHOD_SRQ_CREATE":       UseSRQ,
	"UVERBS_METHOD_WQ_CREATE":        UseWQ,
	"UVERBS_METHOD_COMP_CNTR_CREATE": UseCompletionCounter,
	"MLX5_IB_METHOD_DEVX_UMEM_REG":   UseDEVXUmem,
}

// usesByFunction are those of the older ABI's functions (uverbs_cmd.c).
var usesByFunction = map[string]Use{
	"ib_uverbs_rereg_mr": UseMR, "ib_uverbs_create_cq": UseCQ, "ib_uverbs_ex_create_cq": UseCQ, "ib_uverbs_resize_cq": UseCQ,
	"ib_uverbs_create_qp": UseQP, "ib_uverbs_ex_create_qp": UseQP, "ib_uverbs_create_srq": UseSRQ, "ib_uverbs_create_xsrq": UseSRQ,
	"ib_uverbs_ex_create_wq": UseWQ,
}

// useOf is the purpose of an attachment of the RDMA core's, by the functions that led to it,
// the innermost first: "ib_uverbs_handler_UVERBS_METHOD_CQ_CREATE [ib_uverbs]".
func useOf(callers []string) Use {
	for _, name := range callers {
		name, _, _ = strings.Cut(name, " ")
		name, _, _ = strings.Cut(name, ".") // the compiler's: ".isra.0"
		if _, method, ok := strings.Cut(name, "_handler_"); ok {
			if u := usesByMethod[method]; u != UseUnknown {
				return u
			}
		}
		if u := usesByFunction[name]; u != UseUnknown {
			return u
		}
	}
	return UseRDMA
}

// useOfImporter is the purpose of an attachment by the importer's operations. Those of the RDMA
// core are the same for a registration and for a CQ, so they leave it unknown.
func useOfImporter(i *Importer) Use {
	switch {
	case i == nil, i.Operations == "" && i.Module == "":
		return UseUnknown
	case i.Module == "iommufd", i.Operations == "iopt_dmabuf_attach_revoke_ops": // which may be built in
		return UseIOMMUFD
	case i.Module == "vfio", strings.HasPrefix(i.Module, "vfio_"):
		return UseVFIO
	case strings.HasPrefix(i.Operations, "ib_umem_"), strings.HasPrefix(i.Module, "ib_"):
		return UseUnknown
	}
	return UseOther
}

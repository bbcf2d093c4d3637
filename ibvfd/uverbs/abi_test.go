// SPDX-License-Identifier: Apache-2.0

package uverbs

import (
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/gpurdma/gpurdma/internal/abicheck"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Structures with a flexible array: C's sizeof leaves it out, as Go does.
var (
	ioctlStructs = []abicheck.Struct{
		{C: "ib_uverbs_ioctl_hdr", Go: ioctlHdr{}, Fields: []string{"length", "object_id", "method_id", "num_attrs", "reserved1", "driver_id", "reserved2"}},
	}
	writeStructs = []abicheck.Struct{
		{C: "ib_uverbs_alloc_pd", Go: allocPD{}, Fields: []string{"response"}},
		{C: "ib_uverbs_alloc_pd_resp", Go: allocPDResp{}, Fields: []string{"pd_handle"}},
		{C: "ib_uverbs_dealloc_pd", Go: deallocPD{}, Fields: []string{"pd_handle"}},
		{C: "ib_uverbs_rereg_mr", Go: reregMR{}, Fields: []string{"response", "mr_handle", "flags", "start", "length", "hca_va", "pd_handle", "access_flags"}},
		{C: "ib_uverbs_rereg_mr_resp", Go: reregMRResp{}, Fields: []string{"lkey", "rkey"}},
	}
	// data is a member of an unnamed union, which BTF does not name.
	attrStruct = abicheck.Struct{C: "ib_uverbs_attr", Go: attr{}, Fields: []string{"attr_id", "len", "flags", "attr_data", "data"}}
)

func TestHeaders(t *testing.T) {
	headers := abicheck.Headers{
		Files:   []string{"rdma/rdma_user_ioctl_cmds.h", "rdma/ib_user_ioctl_cmds.h", "rdma/ib_user_ioctl_verbs.h", "rdma/ib_user_verbs.h"},
		Package: "linux-libc-dev",
	}
	structs := append(append([]abicheck.Struct{attrStruct}, ioctlStructs...), writeStructs...)
	numbers := []abicheck.Number{
		{C: "RDMA_VERBS_IOCTL", Go: uint64(VerbsIoctl)},
		{C: "UVERBS_ATTR_F_MANDATORY", Go: attrMandatory},
		{C: "UVERBS_OBJECT_DEVICE", Go: objectDevice},
		{C: "UVERBS_OBJECT_MR", Go: objectMR},
		{C: "UVERBS_METHOD_INVOKE_WRITE", Go: methodInvokeWrite},
		{C: "UVERBS_METHOD_GET_CONTEXT", Go: methodGetContext},
		{C: "UVERBS_ATTR_CORE_IN", Go: attrCoreIn},
		{C: "UVERBS_ATTR_CORE_OUT", Go: attrCoreOut},
		{C: "UVERBS_ATTR_WRITE_CMD", Go: attrWriteCmd},
		{C: "UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS", Go: attrGetContextNumCompVectors},
		{C: "UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT", Go: attrGetContextCoreSupport},
		{C: "UVERBS_METHOD_MR_DESTROY", Go: methodMRDestroy},
		{C: "UVERBS_METHOD_QUERY_MR", Go: methodQueryMR},
		{C: "UVERBS_METHOD_REG_DMABUF_MR", Go: methodRegDMABufMR},
		{C: "UVERBS_ATTR_DESTROY_MR_HANDLE", Go: attrDestroyMRHandle},
		{C: "UVERBS_ATTR_QUERY_MR_HANDLE", Go: attrQueryMRHandle},
		{C: "UVERBS_ATTR_QUERY_MR_RESP_LKEY", Go: attrQueryMRLKey},
		{C: "UVERBS_ATTR_QUERY_MR_RESP_RKEY", Go: attrQueryMRRKey},
		{C: "UVERBS_ATTR_QUERY_MR_RESP_LENGTH", Go: attrQueryMRLength},
		{C: "UVERBS_ATTR_QUERY_MR_RESP_IOVA", Go: attrQueryMRIOVA},
		{C: "UVERBS_ATTR_REG_DMABUF_MR_HANDLE", Go: attrRegHandle},
		{C: "UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE", Go: attrRegPD},
		{C: "UVERBS_ATTR_REG_DMABUF_MR_OFFSET", Go: attrRegOffset},
		{C: "UVERBS_ATTR_REG_DMABUF_MR_LENGTH", Go: attrRegLength},
		{C: "UVERBS_ATTR_REG_DMABUF_MR_IOVA", Go: attrRegIOVA},
		{C: "UVERBS_ATTR_REG_DMABUF_MR_FD", Go: attrRegFD},
		{C: "UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS", Go: attrRegAccess},
		{C: "UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY", Go: attrRegLKey},
		{C: "UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY", Go: attrRegRKey},
		{C: "IB_USER_VERBS_CMD_ALLOC_PD", Go: cmdAllocPD},
		{C: "IB_USER_VERBS_CMD_DEALLOC_PD", Go: cmdDeallocPD},
		{C: "IB_USER_VERBS_CMD_REREG_MR", Go: cmdReregMR},
		{C: "RDMA_DRIVER_MLX5", Go: DriverMLX5},
		{C: "RDMA_DRIVER_RXE", Go: DriverRXE},
		{C: "IB_UVERBS_ACCESS_LOCAL_WRITE", Go: AccessLocalWrite},
		{C: "IB_UVERBS_ACCESS_REMOTE_WRITE", Go: AccessRemoteWrite},
		{C: "IB_UVERBS_ACCESS_REMOTE_READ", Go: AccessRemoteRead},
		{C: "IB_UVERBS_ACCESS_REMOTE_ATOMIC", Go: AccessRemoteAtomic},
		{C: "IB_UVERBS_ACCESS_MW_BIND", Go: AccessMWBind},
		{C: "IB_UVERBS_ACCESS_ZERO_BASED", Go: AccessZeroBased},
		{C: "IB_UVERBS_ACCESS_ON_DEMAND", Go: AccessOnDemand},
		{C: "IB_UVERBS_ACCESS_HUGETLB", Go: AccessHugeTLB},
		{C: "IB_UVERBS_ACCESS_RELAXED_ORDERING", Go: AccessRelaxedOrdering},
	}
	headers.Compare(t, structs, numbers)
}

// The running kernel's own idea of the structures.
func TestVMLayoutOfThisKernel(t *testing.T) {
	testenv.VM(t)
	spec, err := btf.LoadKernelModuleSpec("ib_uverbs")
	if err != nil {
		t.Fatal(err)
	}
	if err := abicheck.BTF(spec, ioctlStructs...); err != nil {
		t.Error(err)
	}
	// Types of the write() ABI appear in BTF only where a function keeps them;
	// the attribute has an unnamed union, so that its size and the members
	// before it are compared.
	var c *btf.Struct
	if err := spec.TypeByName("ib_uverbs_attr", &c); err != nil {
		t.Fatal(err)
	}
	if c.Size != 16 || len(c.Members) != 5 || c.Members[4].Offset.Bytes() != 8 {
		t.Errorf("ib_uverbs_attr: %d bytes, members %v", c.Size, c.Members)
	}
}

// SPDX-License-Identifier: Apache-2.0

package uverbs

// From include/uapi/rdma/ib_user_ioctl_cmds.h.

// enum uverbs_default_objects
const (
	objectDevice = 0 // UVERBS_OBJECT_DEVICE
	objectMR     = 7 // UVERBS_OBJECT_MR

	objectNone = 0xfff // of the core's name space (below UVERBS_ID_DRIVER_NS), and in no kernel
)

// enum uverbs_methods_device
const (
	methodInvokeWrite = 0 // UVERBS_METHOD_INVOKE_WRITE
	methodGetContext  = 3 // UVERBS_METHOD_GET_CONTEXT
)

// enum uverbs_attrs_invoke_write_cmd_attr_ids
const (
	attrCoreIn   = 0 // UVERBS_ATTR_CORE_IN
	attrCoreOut  = 1 // UVERBS_ATTR_CORE_OUT
	attrWriteCmd = 2 // UVERBS_ATTR_WRITE_CMD
)

// enum uverbs_attrs_get_context_attr_ids
const (
	attrGetContextNumCompVectors = 0 // UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS
	attrGetContextCoreSupport    = 1 // UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT
)

// enum uverbs_methods_mr
const (
	methodMRDestroy   = 1 // UVERBS_METHOD_MR_DESTROY
	methodQueryMR     = 3 // UVERBS_METHOD_QUERY_MR
	methodRegDMABufMR = 4 // UVERBS_METHOD_REG_DMABUF_MR

	// Of kernel/patches/rdma-rereg, and of no released kernel.
	methodReregDMABufMR = 20 // UVERBS_METHOD_REREG_DMABUF_MR
)

// enum uverbs_attrs_mr_destroy_ids
const attrDestroyMRHandle = 0 // UVERBS_ATTR_DESTROY_MR_HANDLE

// enum uverbs_attrs_query_mr_cmd_attr_ids
const (
	attrQueryMRHandle = 0 // UVERBS_ATTR_QUERY_MR_HANDLE
	attrQueryMRLKey   = 1 // UVERBS_ATTR_QUERY_MR_RESP_LKEY
	attrQueryMRRKey   = 2 // UVERBS_ATTR_QUERY_MR_RESP_RKEY
	attrQueryMRLength = 3 // UVERBS_ATTR_QUERY_MR_RESP_LENGTH
	attrQueryMRIOVA   = 4 // UVERBS_ATTR_QUERY_MR_RESP_IOVA
)

// enum uverbs_attrs_reg_dmabuf_mr_cmd_attr_ids
const (
	attrRegHandle = 0 // UVERBS_ATTR_REG_DMABUF_MR_HANDLE
	attrRegPD     = 1 // UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE
	attrRegOffset = 2 // UVERBS_ATTR_REG_DMABUF_MR_OFFSET
	attrRegLength = 3 // UVERBS_ATTR_REG_DMABUF_MR_LENGTH
	attrRegIOVA   = 4 // UVERBS_ATTR_REG_DMABUF_MR_IOVA
	attrRegFD     = 5 // UVERBS_ATTR_REG_DMABUF_MR_FD
	attrRegAccess = 6 // UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS
	attrRegLKey   = 7 // UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY
	attrRegRKey   = 8 // UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY
)

// enum uverbs_attrs_rereg_dmabuf_mr_cmd_attr_ids, of kernel/patches/rdma-rereg
const (
	attrReregHandle = 0 // UVERBS_ATTR_REREG_DMABUF_MR_HANDLE
	attrReregPD     = 1 // UVERBS_ATTR_REREG_DMABUF_MR_PD_HANDLE
	attrReregOffset = 2 // UVERBS_ATTR_REREG_DMABUF_MR_OFFSET
	attrReregLength = 3 // UVERBS_ATTR_REREG_DMABUF_MR_LENGTH
	attrReregIOVA   = 4 // UVERBS_ATTR_REREG_DMABUF_MR_IOVA
	attrReregFD     = 5 // UVERBS_ATTR_REREG_DMABUF_MR_FD
	attrReregAccess = 6 // UVERBS_ATTR_REREG_DMABUF_MR_ACCESS_FLAGS
)

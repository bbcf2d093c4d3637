// SPDX-License-Identifier: Apache-2.0

package rdmanl

// From include/uapi/rdma/rdma_netlink.h.

const clientNLDev = 5 // RDMA_NL_NLDEV

// nlType is RDMA_NL_GET_TYPE(client, op).
func nlType(client, op uint16) uint16 { return client<<10 | op }

// enum rdma_nldev_command
const (
	cmdGet      = 1  // RDMA_NLDEV_CMD_GET
	cmdResGet   = 9  // RDMA_NLDEV_CMD_RES_GET
	cmdResMRGet = 13 // RDMA_NLDEV_CMD_RES_MR_GET
)

// enum rdma_nldev_attr
const (
	attrDevIndex            = 1  // RDMA_NLDEV_ATTR_DEV_INDEX
	attrDevName             = 2  // RDMA_NLDEV_ATTR_DEV_NAME
	attrPortIndex           = 3  // RDMA_NLDEV_ATTR_PORT_INDEX
	attrFWVersion           = 5  // RDMA_NLDEV_ATTR_FW_VERSION
	attrNodeGUID            = 6  // RDMA_NLDEV_ATTR_NODE_GUID
	attrResSummary          = 15 // RDMA_NLDEV_ATTR_RES_SUMMARY
	attrResSummaryEntry     = 16 // RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY
	attrResSummaryEntryName = 17 // RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME
	attrResSummaryEntryCurr = 18 // RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR
	attrResPID              = 28 // RDMA_NLDEV_ATTR_RES_PID
	attrResKernName         = 29 // RDMA_NLDEV_ATTR_RES_KERN_NAME
	attrResMR               = 40 // RDMA_NLDEV_ATTR_RES_MR
	attrResRKey             = 42 // RDMA_NLDEV_ATTR_RES_RKEY
	attrResLKey             = 43 // RDMA_NLDEV_ATTR_RES_LKEY
	attrResIOVA             = 44 // RDMA_NLDEV_ATTR_RES_IOVA
	attrResMRLen            = 45 // RDMA_NLDEV_ATTR_RES_MRLEN
	attrResPDN              = 60 // RDMA_NLDEV_ATTR_RES_PDN
	attrResMRN              = 62 // RDMA_NLDEV_ATTR_RES_MRN
)

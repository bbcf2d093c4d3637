// SPDX-License-Identifier: Apache-2.0

package rdmanl

// From include/uapi/rdma/rdma_netlink.h.

const clientNLDev = 5 // RDMA_NL_NLDEV

// nlType is RDMA_NL_GET_TYPE(client, op).
func nlType(client, op uint16) uint16 { return client<<10 | op }

// enum rdma_nldev_command
const (
	cmdGet      = 1  // RDMA_NLDEV_CMD_GET
	cmdPortGet  = 5  // RDMA_NLDEV_CMD_PORT_GET
	cmdResGet   = 9  // RDMA_NLDEV_CMD_RES_GET
	cmdResQPGet = 10 // RDMA_NLDEV_CMD_RES_QP_GET
	cmdResCQGet = 12 // RDMA_NLDEV_CMD_RES_CQ_GET
	cmdResMRGet = 13 // RDMA_NLDEV_CMD_RES_MR_GET
	cmdResPDGet = 14 // RDMA_NLDEV_CMD_RES_PD_GET
)

// enum rdma_nldev_attr
const (
	attrDevIndex            = 1  // RDMA_NLDEV_ATTR_DEV_INDEX
	attrDevName             = 2  // RDMA_NLDEV_ATTR_DEV_NAME
	attrPortIndex           = 3  // RDMA_NLDEV_ATTR_PORT_INDEX
	attrFWVersion           = 5  // RDMA_NLDEV_ATTR_FW_VERSION
	attrNodeGUID            = 6  // RDMA_NLDEV_ATTR_NODE_GUID
	attrPortState           = 12 // RDMA_NLDEV_ATTR_PORT_STATE
	attrResSummary          = 15 // RDMA_NLDEV_ATTR_RES_SUMMARY
	attrResSummaryEntry     = 16 // RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY
	attrResSummaryEntryName = 17 // RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME
	attrResSummaryEntryCurr = 18 // RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR
	attrResQP               = 19 // RDMA_NLDEV_ATTR_RES_QP
	attrResLQPN             = 21 // RDMA_NLDEV_ATTR_RES_LQPN
	attrResRQPN             = 22 // RDMA_NLDEV_ATTR_RES_RQPN
	attrResType             = 26 // RDMA_NLDEV_ATTR_RES_TYPE
	attrResState            = 27 // RDMA_NLDEV_ATTR_RES_STATE
	attrResPID              = 28 // RDMA_NLDEV_ATTR_RES_PID
	attrResKernName         = 29 // RDMA_NLDEV_ATTR_RES_KERN_NAME
	attrResCQ               = 35 // RDMA_NLDEV_ATTR_RES_CQ
	attrResCQE              = 37 // RDMA_NLDEV_ATTR_RES_CQE
	attrResUseCnt           = 38 // RDMA_NLDEV_ATTR_RES_USECNT
	attrResMR               = 40 // RDMA_NLDEV_ATTR_RES_MR
	attrResRKey             = 42 // RDMA_NLDEV_ATTR_RES_RKEY
	attrResLKey             = 43 // RDMA_NLDEV_ATTR_RES_LKEY
	attrResIOVA             = 44 // RDMA_NLDEV_ATTR_RES_IOVA
	attrResMRLen            = 45 // RDMA_NLDEV_ATTR_RES_MRLEN
	attrResPD               = 46 // RDMA_NLDEV_ATTR_RES_PD
	attrNDevName            = 51 // RDMA_NLDEV_ATTR_NDEV_NAME
	attrResPDN              = 60 // RDMA_NLDEV_ATTR_RES_PDN
	attrResCQN              = 61 // RDMA_NLDEV_ATTR_RES_CQN
	attrResMRN              = 62 // RDMA_NLDEV_ATTR_RES_MRN
)

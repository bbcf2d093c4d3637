// SPDX-License-Identifier: Apache-2.0

// Package rdmanl is a client of RDMA netlink (NETLINK_RDMA, NLDEV): which RDMA
// devices there are, which MRs live on them, and how many resources of each kind, of
// all processes. Tests look for leaks with it, and an MR finds its number.
//
// Source: include/uapi/rdma/rdma_netlink.h, drivers/infiniband/core/nldev.c.
//
// To ask for another resource, change resource.go.
package rdmanl

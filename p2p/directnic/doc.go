// SPDX-License-Identifier: Apache-2.0

// Package directnic has the rules for machines whose PCI ports need certain ACS bits for
// GPUDirect RDMA. It judges the ports, IOMMU groups and ATS of such a machine.
//
// New PCI IDs go to kinds.go. The shapes of machines, and the ACS that each port of a
// shape needs, are in datadirect.go, inline.go and numa.go. The rules for a host that
// gives GPUs and NICs to guests are in passthrough.go.
//
// The package reads no files. The caller reads all PCI functions, and marks each fact
// that it could not read. Such a fact makes an answer Unknown, never Yes.
//
// The rules are those of rdma_topo (rdma-core, kernel-boot/rdma_topo at commit
// 691953d8d, August 2026), except where a comment says otherwise.
//
// To add a kind of card, change kinds.go.
package directnic

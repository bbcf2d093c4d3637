// SPDX-License-Identifier: Apache-2.0

// Package machine describes virtual machines as data: processors, memory,
// PCI devices, IOMMU, kernel arguments and modules, network and RDMA devices,
// and how several machines are linked. A description can be a Go value or a
// JSON file with the same field names.
//
// To add a machine, change builtin.go; to give machines another device, describe it in machine.go, and give QEMU its
// arguments in qemu.go or pci.go.
package machine

// SPDX-License-Identifier: Apache-2.0

// Package topo shows the PCI tree of GPUs, NICs and NVMe controllers, with the facts that decide
// about the way between them: ACS, the IOMMU, NUMA nodes, links and memory regions. [Read] reads
// the tree, and the package writes it as text, as a drawing or as JSON. To show one more fact about a
// PCI function, change this package.
package topo

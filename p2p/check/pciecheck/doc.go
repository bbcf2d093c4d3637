// SPDX-License-Identifier: Apache-2.0

// Package pciecheck has the checks of PCI Express: isolation by IOMMU and ACS (ISO), links and
// memory regions (PCIE). To add one, write it into its family's file.
package pciecheck

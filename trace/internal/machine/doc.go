// SPDX-License-Identifier: Apache-2.0

// Package machine reads the facts of the machine that tracing needs: its memory map, whether an
// IOMMU translates a device's addresses, and the way between two functions in the PCI tree.
// Change it to tell more kinds of memory apart, or more reasons of a detour.
package machine

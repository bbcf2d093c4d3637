// SPDX-License-Identifier: Apache-2.0

// Package pciids finds the names of PCI devices in the file pci.ids, which distributions install. To read the
// file at another place, or to read another kind of line, change this package.
package pciids

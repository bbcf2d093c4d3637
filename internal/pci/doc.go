// SPDX-License-Identifier: Apache-2.0

// Package pci reads the PCI tree from sysfs: which function a device belongs
// to, what lies upstream of it, and how far two functions are apart.
//
// Each file has one part of configuration space. To read another capability, add a file.
package pci

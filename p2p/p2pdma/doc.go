// SPDX-License-Identifier: Apache-2.0

// Package p2pdma repeats the decision of the kernel's drivers/pci/p2pdma.c: by which way, if
// any, one PCI function reaches the memory of another.
//
// [Decide] follows calc_map_type_and_dist() as Linux 6.1, 6.12, 7.2 and 7.3 have it. Two
// functions below one bridge reach each other by bus addresses, unless a port on the way
// redirects to the root (ACS). All others need a host bridge that the kernel trusts: any on
// an AMD processor from Zen on, otherwise one of a list that grows with kernel versions.
// Without CONFIG_PCI_P2PDMA the kernel supports no pair. To follow another kernel series,
// change this package.
package p2pdma

// SPDX-License-Identifier: Apache-2.0

// Package pciaddr has the address of a PCI function: its domain, bus, device
// and function number. It names GPUs, NICs and the bridges between them.
package pciaddr

// Change addr.go to read another form of address.

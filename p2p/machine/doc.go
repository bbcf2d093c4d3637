// SPDX-License-Identifier: Apache-2.0

// Package machine reads a Linux machine from its files: kernel, processor, PCI functions,
// modules, the command line and the kernel's log. The files are those of this machine, or a
// copy of another machine's below a directory.
//
// A file is read when a rule first needs it. A file that could not be read is a Reading
// with an error, never an empty one. To read one more file of a machine, change this
// package. The packages above it decide what the file means for a GPU and a NIC.
package machine

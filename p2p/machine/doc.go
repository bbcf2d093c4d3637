// SPDX-License-Identifier: Apache-2.0

// Package machine reads a Linux machine as its files show it: kernel, processor, PCI
// functions, modules, the command line and the kernel's log, of this machine or of a copy
// below a directory.
//
// A file is read when a rule first asks for it, and a file that could not be read is a
// [Reading] with an error, never an empty one. To read one more file of a machine, change this
// package; what the file means for a GPU and a NIC belongs in the packages above it.
package machine

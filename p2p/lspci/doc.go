// SPDX-License-Identifier: Apache-2.0

// Package lspci makes the files that package p2p reads below /sys from the text that
// lspci prints. To change what a line of lspci means, or which file a missing line leaves
// unread, change this package.
//
// The text is the output of `lspci -vvvnn -D`, run as root. That of `lspci -tv` can be
// given beside it: it names the root buses, and the bridges whose own lines are missing.
//
// # Unread
//
// A file whose contents lspci does not print is marked as unreadable. It is never
// absent and never zero, since package p2p takes an answer from an absent file. The
// same holds for the lines that a run without root, without -vv or without -nn leaves
// out: the capabilities, the registers, the numbers of vendor and device.
// [Machine.Notes] names the command that prints them.
//
// # RDMA devices
//
// lspci names no RDMA device. A network function whose driver has an RDMA driver
// in the kernel stands for one, as "rdma-0000:18:00.0". Whether the kernel has
// such a device is not known, and neither is its name.
//
// # Configuration space
//
// lspci prints registers as words. This package writes those that package p2p reads
// back into bytes. A capability is absent from the bytes only where the text has the
// whole list of capabilities. Otherwise the file ends before it.
package lspci

// Unanswered are the IDs of the checks that look for RDMA devices. The caller leaves them
// out, because they would find the devices that this package makes up, and pass.
var Unanswered = []string{"NIC-PRESENT", "ENV-NETNS"}

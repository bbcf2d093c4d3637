// SPDX-License-Identifier: Apache-2.0

// Package redact says what of a machine's files may leave the machine, for a
// snapshot that is given to others.
//
// [Taken] lists the files of a snapshot. Each has a [Rule], by which the snapshot
// has the numbers, words, variables, options and fields that a check reads, and
// nothing else. Names that an administrator has chosen are replaced, equal names by
// equal ones: "storage0" becomes "rdma-a0" in all files. A line of the kernel's log
// keeps the words of the kernel's own text.
//
// To let one more file leave the machine, change table.go.
package redact

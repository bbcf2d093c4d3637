// SPDX-License-Identifier: Apache-2.0

// Package redact says what of a machine's files may leave the machine, for a
// snapshot that is given to others.
//
// Nothing is taken that is not listed. [Taken] lists the files, and each of them has
// a [Rule]: the numbers, words, variables, options and fields that a check reads. All
// else is left out. Names that an administrator chose are replaced, equal names by
// equal ones: "storage0" becomes "rdma-a0" wherever it stands. A line of the
// kernel's log keeps the words that the kernel's own text has.
//
// To let one more file leave the machine, change table.go.
package redact

// SPDX-License-Identifier: Apache-2.0

// Package errno names kernel error numbers, including those that user space
// headers leave out.
//
// Drivers leak kernel-internal numbers: NVIDIA's dma-buf exporter, for one,
// answers 524, which strerror(3) calls "Unknown error 524". The names here
// are those of include/linux/errno.h.
//
// To name another number, add it to errno.go.
package errno

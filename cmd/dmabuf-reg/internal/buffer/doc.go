// SPDX-License-Identifier: Apache-2.0

// Package buffer makes the memory that subcommands register: --gpu names an allocator, --fd a dma-buf.
// To describe memory by another field, change this package.
package buffer

// SPDX-License-Identifier: Apache-2.0

// Package inspect is the subcommand inspect: the dma-bufs of the system, and the processes that hold them.
// To show one more fact of a dma-buf, change this package.
package inspect

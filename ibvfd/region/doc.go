// SPDX-License-Identifier: Apache-2.0

// Package region registers a range of a buffer that several dma-bufs make up, with
// several NICs at once: all of it or nothing.
package region

// To register over several NICs by another rule, change region.go.

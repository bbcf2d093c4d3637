// SPDX-License-Identifier: Apache-2.0

// Package node reads what a node has: its GPUs and NICs, and what package p2p says of each pair. To publish
// one more fact of a device, read it here, and write it in package resources.
package node
